//! What agents tell of their machines in passing: kept in the leader's memory while their sessions last, never in the
//! log.

use std::{collections::BTreeMap, sync::Mutex};

use quorate_base::sync::lock;
use quorate_model::NodeId;
use quorate_wire::{
    agent as pb,
    common::{NodeUsage, TaskProgress},
};

/// Tasks, starts and orphans that are kept of one node.
const MOST: usize = 100;

/// What one agent told last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    /// What its machine and tasks use.
    pub(crate) usage: Option<NodeUsage>,
    /// How far starts are.
    pub(crate) progress: Vec<TaskProgress>,
    /// Containers that no task has.
    pub(crate) orphans: Vec<pb::Orphan>,
}

/// What all agents told.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<BTreeMap<NodeId, Told>>);

impl Memory {
    /// Takes over what a heartbeat says.
    pub(super) fn note(&self, node: NodeId, beat: pb::Heartbeat) {
        let mut nodes = lock(&self.0);
        let told = nodes.entry(node).or_default();
        if let Some(mut usage) = beat.usage {
            usage.tasks.truncate(MOST);
            told.usage = Some(usage);
        }
        (told.progress, told.orphans) = (beat.progress, beat.orphans);
        told.progress.truncate(MOST);
        told.orphans.truncate(MOST);
    }

    /// The node's session is over.
    pub(super) fn forget(&self, node: NodeId) {
        lock(&self.0).remove(&node);
    }

    /// Nothing is known any more.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// What the node's agent told last; nothing without a session.
    pub(crate) fn of(&self, node: NodeId) -> Told {
        lock(&self.0).get(&node).cloned().unwrap_or_default()
    }

    /// How many containers of the node no task has, as far as it told.
    pub(crate) fn orphans(&self, node: NodeId) -> usize {
        lock(&self.0).get(&node).map_or(0, |told| told.orphans.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_stays_and_is_bounded_and_the_rest_is_replaced() {
        let (memory, node) = (Memory::default(), NodeId(1));
        let usage = NodeUsage { tasks: vec![Default::default(); 500], ..NodeUsage::default() };
        let orphans = vec![pb::Orphan::default(); 300];
        memory.note(node, pb::Heartbeat { usage: Some(usage), orphans, ..pb::Heartbeat::default() });
        assert_eq!((memory.of(node).usage.unwrap().tasks.len(), memory.orphans(node)), (MOST, MOST));
        memory.note(node, pb::Heartbeat::default());
        assert!(memory.of(node).usage.is_some(), "not every heartbeat measures");
        assert_eq!(memory.orphans(node), 0);
        memory.forget(node);
        assert_eq!(memory.of(node), Told::default());
    }
}
