//! The nodes as arrays, with what the plan has already given away.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use quorate_model::{JobId, Node, NodeId, Resources};
use quorate_state::State;

use crate::group::{Class, Need};

/// Tasks of one job on one node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Copies {
    /// Wanted ones: what an even spread counts.
    pub(crate) wanted: u32,
    /// All that hold resources, also those that are being stopped: what a bound per node counts.
    pub(crate) holding: u32,
}

/// What each node has left. Positions are those of `nodes`, which are in the order of their numbers.
pub(crate) struct Ledger<'a> {
    view: &'a State,
    pub(crate) nodes: Vec<&'a Node>,
    pub(crate) free: Vec<Resources>,
    capacity: Vec<Resources>,
    /// Fuller dimension of the node, in parts of [`FULL`].
    pub(crate) load: Vec<u32>,
    /// Living tasks of any job.
    pub(crate) tasks: Vec<u32>,
    classes: BTreeMap<Class, Rc<[u32]>>,
    /// Where a host port is taken; filled when the first group asks for one.
    ports: Option<BTreeMap<(u16, bool), BTreeSet<u32>>>,
    copies: BTreeMap<JobId, BTreeMap<u32, Copies>>,
}

/// A node without anything free.
const FULL: u64 = 1 << 20;

impl<'a> Ledger<'a> {
    pub(crate) fn new(view: &'a State) -> Self {
        let nodes: Vec<&Node> = view.nodes().map(AsRef::as_ref).collect();
        let capacity: Vec<_> = nodes.iter().map(|n| n.facts.allocatable()).collect();
        let free: Vec<_> = nodes.iter().zip(&capacity).map(|(n, c)| c.minus(view.usage(n.id))).collect();
        let load = capacity.iter().zip(&free).map(|(c, f)| load(*c, *f)).collect();
        let tasks = nodes.iter().map(|n| view.living(n.id)).collect();
        let (classes, copies) = (BTreeMap::new(), BTreeMap::new());
        Self { view, nodes, free, capacity, load, tasks, classes, ports: None, copies }
    }

    fn position(&self, node: NodeId) -> Option<u32> {
        let at = self.nodes.binary_search_by_key(&node, |n| n.id).ok()?;
        u32::try_from(at).ok()
    }

    /// Positions of the nodes that pass the filters on the node alone.
    pub(crate) fn candidates(&mut self, class: &Class) -> Rc<[u32]> {
        if let Some(known) = self.classes.get(class) {
            return known.clone();
        }
        let passes = |node: &Node| {
            node.takes_tasks()
                && class.runtimes.iter().all(|kind| node.facts.runtimes.contains_key(kind))
                && class.constraints.iter().all(|c| c.holds(node))
        };
        let found: Rc<[u32]> =
            (0..).zip(&self.nodes).filter(|(_, node)| passes(node)).map(|(at, _)| at).collect();
        self.classes.insert(class.clone(), found.clone());
        found
    }

    /// Tasks of a job by position; nodes without any are absent.
    pub(crate) fn copies(&mut self, job: JobId) -> &BTreeMap<u32, Copies> {
        if !self.copies.contains_key(&job) {
            let mut found: BTreeMap<u32, Copies> = BTreeMap::new();
            for task in self.view.tasks_of(job).filter(|t| t.holds_resources()) {
                let Some(at) = task.node.and_then(|node| self.position(node)) else { continue };
                let copies = found.entry(at).or_default();
                copies.holding += 1;
                copies.wanted += u32::from(task.is_live());
            }
            self.copies.insert(job, found);
        }
        self.copies.entry(job).or_default()
    }

    /// The first of `wanted` that is taken at a position.
    pub(crate) fn taken_port(&mut self, at: u32, wanted: &BTreeSet<(u16, bool)>) -> Option<(u16, bool)> {
        if wanted.is_empty() {
            return None;
        }
        let taken = self.ports();
        wanted.iter().copied().find(|port| taken.get(port).is_some_and(|nodes| nodes.contains(&at)))
    }

    /// Positions at which any of `wanted` is taken.
    pub(crate) fn taken_ports(&mut self, wanted: &BTreeSet<(u16, bool)>) -> BTreeSet<u32> {
        if wanted.is_empty() {
            return BTreeSet::new();
        }
        let taken = self.ports();
        wanted.iter().filter_map(|port| taken.get(port)).flatten().copied().collect()
    }

    fn ports(&mut self) -> &mut BTreeMap<(u16, bool), BTreeSet<u32>> {
        if self.ports.is_none() {
            self.ports = Some(self.find_ports());
        }
        self.ports.get_or_insert_default()
    }

    fn find_ports(&self) -> BTreeMap<(u16, bool), BTreeSet<u32>> {
        let mut found: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        let publishing =
            self.view.jobs().filter(|j| j.specs.values().any(|s| s.host_ports().next().is_some()));
        for task in publishing.flat_map(|job| self.view.tasks_of(job.id)).filter(|t| t.holds_resources()) {
            let Some(at) = task.node.and_then(|node| self.position(node)) else { continue };
            for port in self.view.spec_of(task).into_iter().flat_map(|s| s.host_ports()) {
                found.entry(port).or_default().insert(at);
            }
        }
        found
    }

    /// Gives one more task of `need` to a position.
    pub(crate) fn take(&mut self, job: JobId, need: &Need, at: u32) {
        let index = at as usize;
        self.free[index] = self.free[index].minus(need.reserve());
        self.load[index] = load(self.capacity[index], self.free[index]);
        self.tasks[index] += 1;
        for port in &need.ports {
            self.ports().entry(*port).or_default().insert(at);
        }
        let copies = self.copies.entry(job).or_default().entry(at).or_default();
        copies.wanted += 1;
        copies.holding += 1;
    }
}

fn load(capacity: Resources, free: Resources) -> u32 {
    let part = |capacity: u64, free: u64| {
        ((capacity - free.min(capacity)) * FULL).checked_div(capacity).unwrap_or(FULL)
    };
    // Memory in KiB: 64 TiB times FULL still fits into 64 bits.
    let fuller = part(capacity.cpu_millis, free.cpu_millis)
        .max(part(capacity.memory_bytes >> 10, free.memory_bytes >> 10));
    u32::try_from(fuller).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_that_of_the_fuller_dimension() {
        let of = |cpu_millis, memory_bytes| Resources { cpu_millis, memory_bytes };
        assert_eq!(load(of(1000, 1 << 30), of(1000, 1 << 30)), 0);
        assert_eq!(load(of(1000, 1 << 30), of(750, 1 << 29)), 1 << 19);
        assert_eq!(load(of(0, 1 << 30), of(0, 1 << 30)), 1 << 20, "a node without capacity is full");
        assert_eq!(load(of(1_000_000, 64 << 40), of(0, 0)), 1 << 20, "the largest node does not overflow");
    }
}
