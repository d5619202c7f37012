//! Measures of what happens, taken from what consensus and the state machine tell.

use std::{collections::BTreeSet, convert::Infallible};

use quorate_base::tasks::{TaskGroup, TaskKind};
use quorate_model::{Revision, Task, TaskId, TaskState};
use quorate_raft::{Node, Update};
use quorate_state::{Change, Event, Object, State};
use quorate_telemetry::metrics;
use tokio::sync::broadcast::error::RecvError;

/// Takes them in `group`.
pub(crate) fn start(node: Node, group: &TaskGroup) {
    group.spawn(TaskKind::best_effort("leader changes"), leaders(node.clone()));
    group.spawn(TaskKind::best_effort("measures"), changes(node));
}

async fn leaders(node: Node) -> Result<(), Infallible> {
    let mut leadership = node.leadership();
    let mut last = None;
    loop {
        let leader = leadership.borrow_and_update().leader.as_ref().map(|leader| leader.id);
        if leader.is_some() && leader != last {
            metrics::raft_leader_changes(1);
            last = leader;
        }
        if leadership.changed().await.is_err() {
            return Ok(());
        }
    }
}

async fn changes(node: Node) -> Result<(), Infallible> {
    let mut updates = node.updates();
    let mut applied = node.applied();
    let mut waiting = Waiting::of(&node.view());
    let mut counted = node.view().applied().index;
    loop {
        tokio::select! {
            update = updates.recv() => match update {
                Ok(Update::Changed { events, .. }) => {
                    let leads = node.leadership().borrow().me;
                    for took in events.iter().filter_map(|event| waiting.take(event)).filter(|_| leads) {
                        metrics::scheduler_submit_to_running(took);
                    }
                }
                Ok(Update::Replaced { .. }) | Err(RecvError::Lagged(_)) => waiting = Waiting::of(&node.view()),
                Err(RecvError::Closed) => return Ok(()),
            },
            changed = applied.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let Revision(reached) = *applied.borrow_and_update();
                metrics::raft_proposals_applied(reached.saturating_sub(counted.0));
                counted = counted.max(Revision(reached));
            }
        }
    }
}

/// The tasks that did not run yet.
struct Waiting(BTreeSet<TaskId>);

impl Waiting {
    fn of(view: &State) -> Self {
        Self(view.tasks().filter(|task| not_yet(task)).map(|task| task.id).collect())
    }

    /// From the creation of a task until it ran, when the event tells that.
    fn take(&mut self, event: &Event) -> Option<std::time::Duration> {
        let Object::Task(task) = &event.object else { return None };
        if event.change != Change::Deleted && not_yet(task) {
            self.0.insert(task.id);
            return None;
        }
        if !self.0.remove(&task.id) {
            return None;
        }
        // It ran even if it waits for a restart by now.
        let runs = (task.status.state == TaskState::Running).then_some(task.status.at);
        task.status.running_since.or(runs).map(|since| since.since(task.created_at))
    }
}

fn not_yet(task: &Task) -> bool {
    task.status.state < TaskState::Running
}
