//! Placing one group.

use std::{cmp::Reverse, collections::BinaryHeap};

use quorate_model::{NodeId, Strategy, TaskId};

use crate::{
    group::{Group, Need},
    ledger::Ledger,
};

/// Places tasks of the group, oldest first, until no node fits; returns how many.
pub(crate) fn place(
    ledger: &mut Ledger<'_>,
    group: &Group<'_>,
    need: &Need,
    placed: &mut Vec<(TaskId, NodeId)>,
) -> usize {
    let mut scores = Scores::new(ledger, group, need);
    let candidates = ledger.candidates(&need.class);
    let taken = ledger.taken_ports(&need.ports);
    let open = |ledger: &Ledger<'_>, at: u32| {
        (fits(ledger, need, &scores, at) && !taken.contains(&at)).then(|| scores.key(ledger, at))
    };
    if let [task] = group.tasks[..] {
        let best = candidates.iter().filter_map(|at| open(ledger, *at)).min();
        let Some(best) = best else { return 0 };
        take(ledger, group, need, &mut scores, position(best), task, placed);
        return 1;
    }
    let mut heap: BinaryHeap<Reverse<u128>> =
        candidates.iter().filter_map(|at| open(ledger, *at)).map(Reverse).collect();
    for (done, task) in group.tasks.iter().enumerate() {
        let Some(Reverse(best)) = heap.pop() else { return done };
        let at = position(best);
        take(ledger, group, need, &mut scores, at, *task, placed);
        // A node that gave its host port to this task has none for the next one.
        if need.ports.is_empty() && fits(ledger, need, &scores, at) {
            heap.push(Reverse(scores.key(ledger, at)));
        }
    }
    group.tasks.len()
}

fn take(
    ledger: &mut Ledger<'_>,
    group: &Group<'_>,
    need: &Need,
    scores: &mut Scores,
    at: u32,
    task: TaskId,
    placed: &mut Vec<(TaskId, NodeId)>,
) {
    ledger.take(group.job, need, at);
    let index = at as usize;
    scores.wanted[index] += 1;
    if let Some(holding) = scores.holding.get_mut(index) {
        *holding += 1;
    }
    placed.push((task, ledger.nodes[index].id));
}

/// Room and bound: the filters that move with each placement, besides host ports.
fn fits(ledger: &Ledger<'_>, need: &Need, scores: &Scores, at: u32) -> bool {
    let index = at as usize;
    need.reserve().fits(ledger.free[index])
        && need.most.is_none_or(|most| scores.holding[index] < most.per_node)
}

/// The group's job per position, dense for the length of one placement.
struct Scores {
    strategy: Strategy,
    wanted: Vec<u32>,
    /// Empty unless the job bounds its tasks per node.
    holding: Vec<u32>,
}

impl Scores {
    fn new(ledger: &mut Ledger<'_>, group: &Group<'_>, need: &Need) -> Self {
        let nodes = ledger.nodes.len();
        let mut wanted = vec![0; nodes];
        let mut holding = if need.most.is_some() { vec![0; nodes] } else { Vec::new() };
        for (at, copies) in ledger.copies(group.job) {
            let index = *at as usize;
            wanted[index] = copies.wanted;
            if let Some(slot) = holding.get_mut(index) {
                *slot = copies.holding;
            }
        }
        Self { strategy: need.strategy, wanted, holding }
    }

    /// The smaller the better; the position in the low bits makes it unique and is the last tie-break.
    fn key(&self, ledger: &Ledger<'_>, at: u32) -> u128 {
        let index = at as usize;
        let (load, tasks) = (ledger.load[index], ledger.tasks[index]);
        let [first, second, third] = match self.strategy {
            Strategy::Spread => [self.wanted[index], load, tasks],
            Strategy::Binpack => [u32::MAX - load, u32::MAX - tasks, 0],
        };
        u128::from(first) << 96 | u128::from(second) << 64 | u128::from(third) << 32 | u128::from(at)
    }
}

fn position(key: u128) -> u32 {
    (key & u128::from(u32::MAX)) as u32
}
