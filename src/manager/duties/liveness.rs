//! Which agents were heard when: leader memory, never in the log.
//!
//! A new leader gives every node one full lease before it counts any as lost,
//! so a change of leader never moves a task.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use quorate_base::{
    sync::lock,
    time::{Clock, Mono},
};
use quorate_model::{NodeId, NodeStatus};
use quorate_state::State;

/// When each agent was heard last in this term.
#[derive(Debug)]
pub struct Liveness {
    clock: Clock,
    since: Mono,
    heard: Mutex<BTreeMap<NodeId, Mono>>,
}

/// What is known of the nodes' silence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Silence {
    /// Nodes that count as ready and were not heard for a whole lease.
    pub overdue: Vec<NodeId>,
    /// How long until the next node may be overdue; `None` = no other node is ready.
    pub next: Option<Duration>,
}

impl Liveness {
    /// Memory of a term that begins now.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { since: clock.monotonic(), clock, heard: Mutex::default() }
    }

    /// The node was heard.
    pub fn heard(&self, node: NodeId) {
        lock(&self.heard).insert(node, self.clock.monotonic());
    }

    /// How long ago the node was heard in this term; `None` when it was not.
    #[must_use]
    pub fn quiet(&self, node: NodeId) -> Option<Duration> {
        let heard = lock(&self.heard).get(&node).copied()?;
        Some(self.clock.monotonic().since(heard))
    }

    /// Compares what was heard with the lease of the cluster.
    #[must_use]
    pub fn silence(&self, view: &State) -> Silence {
        let lease = view.settings().node_lease;
        let now = self.clock.monotonic();
        let heard = lock(&self.heard);
        let mut silence = Silence::default();
        for node in view.nodes().filter(|n| n.status == NodeStatus::Ready) {
            let quiet = now.since(heard.get(&node.id).copied().unwrap_or(self.since));
            if quiet >= lease {
                silence.overdue.push(node.id);
            } else {
                let left = lease.saturating_sub(quiet);
                silence.next = Some(silence.next.map_or(left, |n| n.min(left)));
            }
        }
        silence
    }
}
