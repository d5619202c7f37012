//! What the world remembers for the invariants, and no part of the product does.

use std::collections::BTreeMap;

use quorate_base::id::RequestId;
use quorate_model::{JobId, JobVersion, Name, NodeId, NodeStatus, Slot, Task, TaskId, TaskState, Term};
use quorate_state::{Applied, Change, Command, Envelope, Object, Receipt, Rejection, State};

/// The world's own records.
#[derive(Debug, Default)]
pub struct Journal {
    /// Acknowledged jobs that nobody has asked to purge since: number and least version.
    pub acknowledged: BTreeMap<Name, (JobId, JobVersion)>,
    /// How often each request took effect.
    pub effects: BTreeMap<RequestId, u32>,
    /// When each node was last seen down, in milliseconds.
    pub last_down: BTreeMap<NodeId, u64>,
    /// When each node came back last, in milliseconds.
    pub came_back: BTreeMap<NodeId, u64>,
    /// Since when each down node is down, in milliseconds.
    pub down_since: BTreeMap<NodeId, u64>,
    /// Since when one leader plans undisturbed, in milliseconds; `None` = nobody does.
    pub calm_since: Option<u64>,
    /// When a plan of a leader was applied last, in milliseconds.
    pub last_plan: u64,
    /// Slots whose newest task failed by itself: its version and when, in milliseconds.
    pub failed: BTreeMap<(JobId, Slot), (JobVersion, u64)>,
    /// When a user changed each job last, in milliseconds.
    pub last_edit: BTreeMap<JobId, u64>,
    /// Newest words that each agent obeyed, by its identity.
    pub obeyed: BTreeMap<String, (Term, u64)>,
    /// An agent that obeyed older words than before.
    pub disobedience: Option<String>,
    /// A running container that was killed though its task is wanted where it ran.
    pub killed_in_error: Option<String>,
    purges: BTreeMap<Name, Purges>,
    pub(super) connections: u64,
    pub(super) tokens: u64,
}

/// Purges of a job that may still take effect.
#[derive(Debug, Default)]
struct Purges {
    unanswered: u32,
    lands_until: u64,
}

impl Journal {
    /// Takes an applied entry in.
    pub(crate) fn record(&mut self, now: u64, envelope: &Envelope, applied: &Applied) {
        // A refusal is an answer as well: a later try must not be run again.
        let counts = applied.outcome.as_ref().map_or_else(Rejection::is_remembered, |_| true);
        if let (Some(request), false, true) = (&envelope.request, applied.replayed, counts) {
            *self.effects.entry(request.id.clone()).or_default() += 1;
        }
        if envelope.fence.is_some() && is_plan(&envelope.command) {
            self.last_plan = now;
        }
        let by_user = envelope.request.is_some();
        for event in &applied.events {
            match &event.object {
                Object::Node(node) if node.status == NodeStatus::Down => {
                    self.last_down.insert(node.id, u64::MAX);
                    self.down_since.entry(node.id).or_insert(now);
                }
                Object::Node(node) => {
                    self.down_since.remove(&node.id);
                    if let Some(down) = self.last_down.get_mut(&node.id)
                        && *down == u64::MAX
                    {
                        *down = now;
                        self.came_back.insert(node.id, now);
                    }
                }
                Object::Job(job) if by_user => {
                    self.last_edit.insert(job.id, now);
                }
                Object::Task(task) => self.record_end(now, event.change, task),
                Object::Job(_) | Object::Manager(_) | Object::Settings(_) => {}
            }
        }
    }

    fn record_end(&mut self, now: u64, change: Change, task: &Task) {
        let failed = matches!(task.status.state, TaskState::Failed | TaskState::Rejected);
        if change == Change::Updated && failed && task.desired <= TaskState::Running {
            self.failed.insert((task.job, task.slot), (task.version, now));
        }
    }

    /// A user asks for a purge: from now on the job may vanish.
    pub(super) fn purge_asked(&mut self, job: &Name) {
        self.acknowledged.remove(job);
        self.purges.entry(job.clone()).or_default().unanswered += 1;
    }

    /// A try of a purge is on its way and arrives by `until`, even when another try was answered before.
    pub(super) fn purge_sent(&mut self, job: &Name, until: u64) {
        let purges = self.purges.entry(job.clone()).or_default();
        purges.lands_until = purges.lands_until.max(until);
    }

    /// A client has its answer to a call that it first sent at `asked`.
    pub(super) fn acked(&mut self, job: &Name, command: &Command, asked: u64, applied: &Applied) {
        let purges = self.purges.entry(job.clone()).or_default();
        match (command, &applied.outcome) {
            (Command::DeleteJob { purge, .. }, _) => purges.unanswered -= u32::from(*purge),
            (_, Ok(Receipt::Job { id, version, .. }))
                if purges.unanswered == 0 && purges.lands_until < asked =>
            {
                let known = self.acknowledged.entry(job.clone()).or_insert((*id, *version));
                known.1 = known.1.max(*version);
            }
            _ => {}
        }
    }

    /// An agent obeys; older words than before must have been refused.
    pub(crate) fn obeys(&mut self, agent: &str, fence: (Term, u64)) {
        let newest = self.obeyed.entry(agent.to_owned()).or_insert(fence);
        if fence < *newest {
            self.disobedience = Some(format!("{agent} obeys {fence:?} after {newest:?}"));
        }
        *newest = fence.max(*newest);
    }

    /// A running container is killed because its task is no longer assigned.
    pub(crate) fn killed(&mut self, state: &State, agent: &Name, task: TaskId) {
        let node = state.node_named(agent).map(|n| n.id);
        let wanted = state.task(task).filter(|t| t.is_live() && t.node.is_some() && t.node == node);
        if wanted.is_some() {
            self.killed_in_error = Some(format!("{agent} killed {task}, which is wanted there"));
        }
    }
}

/// Whether a controller proposes such a command, and not the dispatcher.
fn is_plan(command: &Command) -> bool {
    !matches!(
        command,
        Command::ReportStatuses { .. } | Command::RegisterNode { .. } | Command::UpdateSettings { .. }
    )
}
