//! Which slots a job gives up first when it has too many.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use quorate_model::{NodeId, Slot};
use quorate_state::State;

use crate::seat::{Seat, is_lost};

/// How little is lost with a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// Nothing: no task, or none that has a node.
    Nothing,
    /// A task that does not run yet.
    Start,
    /// A running one.
    Work,
}

/// `count` slots to close (SwarmKit's order): unplaced first, then not running, then the last copy
/// on the most crowded node, then the highest slot.
pub(crate) fn victims(view: &State, seats: &[Seat<'_>], count: usize) -> BTreeSet<Slot> {
    if count == 0 {
        return BTreeSet::new();
    }
    let mut ranked: Vec<(Loss, Option<NodeId>, Slot)> = seats.iter().map(|seat| rank(view, seat)).collect();
    // Per node, the copies that stay longest come first; a copy's place in that row says how crowded its node is.
    ranked.sort_unstable_by_key(|(loss, _, slot)| (Reverse(*loss), *slot));
    let mut copies: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut order: Vec<_> = ranked
        .into_iter()
        .map(|(loss, node, slot)| {
            let copy = node.map_or(0, |node| {
                let copy = copies.entry(node).or_default();
                *copy += 1;
                *copy
            });
            (loss, Reverse(copy), Reverse(slot))
        })
        .collect();
    order.sort_unstable();
    order.into_iter().take(count).map(|(_, _, Reverse(slot))| slot).collect()
}

fn rank(view: &State, seat: &Seat<'_>) -> (Loss, Option<NodeId>, Slot) {
    match seat.live() {
        Some(task) if task.node.is_some() && !is_lost(view, task) => {
            let running = task.is_up();
            (if running { Loss::Work } else { Loss::Start }, task.node, seat.slot)
        }
        Some(_) | None => (Loss::Nothing, None, seat.slot),
    }
}
