//! The gauges that are read off consensus and the state; only when asked for, so nobody pays between scrapes.

use std::collections::BTreeMap;

use quorate_base::time::Timestamp;
use quorate_model::{Filter, JobKind, NodeStatus, Task, TaskState};
use quorate_state::State;
use quorate_telemetry::metrics;

use crate::core::Core;

/// Why a task may wait for a node.
const WAITS: [&str; 11] = [
    "unseen",
    "back_off",
    "no_node",
    "not_ready",
    "runtime",
    "constraint",
    "cpu",
    "memory",
    "port",
    "max_per_node",
    "pressure",
];

/// Sets them. Returns whether this manager leads: only then are those of the replicated state set.
pub(super) fn set(core: &Core) -> bool {
    let now = core.node.leadership().borrow().clone();
    metrics::raft_has_leader(now.me || now.leader.is_some());
    metrics::raft_is_leader(now.me);
    metrics::raft_term(now.term.0);
    if let Some(ago) = core.last_contact() {
        metrics::raft_last_contact(ago);
    }
    metrics::store_size("log", core.node.log_stats().disk_bytes);
    if now.me {
        let status = core.node.status();
        let last = status.last_log.map_or(0, |r| r.0);
        for member in &status.members {
            let matched = member.matched.map_or(0, |r| r.0);
            metrics::raft_replication_lag(&member.name, last.saturating_sub(matched));
        }
        count(&core.node.view());
    }
    now.me
}

fn count(view: &State) {
    for state in TaskState::ALL {
        metrics::tasks(state.as_str(), view.tasks().filter(|t| t.status.counted_state() == state).count());
    }
    for status in [NodeStatus::Ready, NodeStatus::Down] {
        metrics::nodes(status.as_str(), view.nodes().filter(|n| n.status == status).count());
    }
    for kind in ["service", "batch"] {
        for status in ["active", "complete", "failed", "stopped", "purging"] {
            let count = view
                .jobs()
                .filter(|j| {
                    j.status.as_str() == status && j.spec().map(|s| JobKind::as_str(s.kind)) == Some(kind)
                })
                .count();
            metrics::jobs(kind, status, count);
        }
    }
    let mut waiting: BTreeMap<&str, usize> = WAITS.into_iter().map(|reason| (reason, 0)).collect();
    for task in view.unplaced() {
        *waiting.entry(waits_for(task, view.now())).or_default() += 1;
    }
    for (reason, count) in waiting {
        metrics::scheduler_pending_tasks(reason, count);
    }
}

/// The reason that keeps most nodes from taking a task.
fn waits_for(task: &Task, now: Timestamp) -> &'static str {
    if task.not_before > now {
        return "back_off";
    }
    let Some(why) = &task.explanation else { return "unseen" };
    // Of equals the first: a node counts for the first filter that it fails.
    let most = why.reasons.iter().rev().max_by_key(|reason| reason.nodes);
    match most.map(|reason| reason.filter) {
        None => "no_node",
        Some(Filter::Ready) => "not_ready",
        Some(Filter::Runtime) => "runtime",
        Some(Filter::Constraint) => "constraint",
        Some(Filter::Cpu) => "cpu",
        Some(Filter::Memory) => "memory",
        Some(Filter::Port) => "port",
        Some(Filter::MaxPerNode) => "max_per_node",
        Some(Filter::Pressure) => "pressure",
    }
}
