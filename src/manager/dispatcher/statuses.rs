//! Statuses that agents report: written to the log, counted where they have no effect, then acknowledged.

use std::collections::BTreeMap;

use quorate_model::{Name, NodeId, TaskId};
use quorate_state::{Actor, Command, Receipt, Rejection, Report, State};
use quorate_telemetry::metrics;
use quorate_wire::agent as pb;
use tracing::warn;

use crate::{
    core::{Core, Leading},
    proposer::WriteError,
};

/// Statuses in one batch.
pub(super) const MAX_BATCH: usize = 10_000;

/// Writes statuses to the log. What is committed, or has no effect, is acknowledged: it need not come again.
///
/// A status has no effect when it cannot be read, when nobody knows its task, when the task is another node's or has
/// ended, when a newer one is there, or when its state lies below the known one.
pub(super) async fn write(
    core: Core,
    leading: Leading,
    node: NodeId,
    name: Name,
    batch: pb::StatusBatch,
) -> Result<pb::StatusAck, WriteError> {
    let mut marks = Vec::new();
    let mut reports: Vec<Report> = Vec::new();
    for status in batch.statuses {
        marks.push(pb::StatusMark { task_id: status.task_id, seq: status.seq });
        let task = status.task_id;
        match Report::try_from(status) {
            Ok(report) => reports.push(report),
            Err(invalid) => {
                metrics::agent_statuses_refused("unreadable", 1);
                warn!(node = %name, task, %invalid, "a status was not readable");
            }
        }
    }
    if !reports.is_empty() {
        let before = core.node.view();
        let count = reports.len() as u64;
        let doubtful: BTreeMap<TaskId, &'static str> =
            reports.iter().map(|report| (report.task, refusal(&before, node, report))).collect();
        let command = Command::ReportStatuses { node, reports };
        metrics::agent_status_batches(1);
        let written =
            core.proposer.submit_fenced(Actor::Agent(name.clone()), leading.fence.term, command).await;
        if let Err(WriteError::Rejected(Rejection::StaleFence { .. })) = written {
            metrics::agent_statuses_refused("fence", count);
        }
        if let Receipt::Changed { refused, .. } = written?.receipt {
            for task in refused {
                let reason = doubtful.get(&task).copied().unwrap_or("old");
                metrics::agent_statuses_refused(reason, 1);
                tracing::debug!(node = %name, %task, reason, "a status had no effect");
            }
        }
    }
    Ok(pb::StatusAck { marks })
}

/// Why the state refuses the report, if it does: that a newer one is there already is the last thing that is left.
fn refusal(view: &State, node: NodeId, report: &Report) -> &'static str {
    match view.task(report.task) {
        None => "unknown",
        Some(task) if task.node != Some(node) => "foreign",
        Some(task) if task.status.state.is_terminal() => "ended",
        Some(task) if report.status.seq > task.status.seq && report.status.state < task.status.state => {
            "backwards"
        }
        Some(_) => "old",
    }
}
