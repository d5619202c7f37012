//! Nodes: from what the leader hears to what the state says.

use std::collections::BTreeSet;

use quorate_base::time::format_duration;
use quorate_model::{Node, NodeId, NodeStatus, TaskId};
use quorate_state::{Command, State};

use crate::{Outcome, Reconciler, Tick, bounds::MAX_LISTED};

/// Marks nodes down, and gives up what a lost node ran. A node is up again when its agent registers.
pub(crate) struct Nodes;

impl Reconciler for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn reconcile(&self, view: &State, tick: &Tick<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut orphans = Vec::new();
        let overdue: BTreeSet<NodeId> = tick.overdue.iter().copied().collect();
        for node in view.nodes() {
            match node.status {
                NodeStatus::Ready if overdue.contains(&node.id) => {
                    let lease = format_duration(view.settings().node_lease);
                    let reason = format!("its agent was not heard for {lease}");
                    let status = NodeStatus::Down;
                    outcome.commands.push(Command::SetNodeStatus { node: node.id, status, reason });
                }
                NodeStatus::Ready => {}
                NodeStatus::Down => orphans.extend(orphaned(view, node, tick, &mut outcome)),
            }
        }
        let lists = orphans.chunks(MAX_LISTED).map(|tasks| Command::OrphanTasks { tasks: tasks.to_vec() });
        outcome.commands.extend(lists);
        outcome
    }
}

/// The tasks of a node that is lost for too long; otherwise notes when it will be.
fn orphaned(view: &State, node: &Node, tick: &Tick<'_>, outcome: &mut Outcome) -> Vec<TaskId> {
    let living: Vec<TaskId> =
        view.tasks_on(node.id).filter(|t| !t.status.state.is_terminal()).map(|t| t.id).collect();
    let due = node.status_since.saturating_add(view.settings().orphan_after);
    if living.is_empty() || due <= tick.moment(view) {
        return living;
    }
    outcome.wake(due);
    Vec::new()
}
