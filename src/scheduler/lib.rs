//! Which node: pure placement with an explanation.
//!
//! [`schedule`] looks at one snapshot and at the tasks that wait, and answers
//! with a node for each task that fits somewhere and with reasons for the
//! rest. It is pure and deterministic: the same snapshot gives the same plan,
//! and the last tie-break is the node's number. The plan is optimistic: the
//! state machine checks every placement again when it applies it.
//!
//! How: the nodes are laid out in arrays (`Ledger`); equal tasks (same job
//! and version) form a group; a group is filtered against the nodes once, and
//! its candidates wait in a heap by score, so that a further task of the group
//! costs a logarithm and not another scan. Filters that depend on the node
//! alone (ready, runtime, constraints) are evaluated once per class of groups.

mod explain;
mod group;
mod ledger;
mod place;

use std::{collections::BTreeMap, sync::Arc};

use quorate_base::time::Timestamp;
use quorate_model::{Explanation, NodeId, TaskId};
use quorate_state::State;

use group::Need;
use ledger::Ledger;

/// What one pass decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scheduled {
    /// Node per task, in the order of placement.
    pub placed: Vec<(TaskId, NodeId)>,
    /// Tasks that no node takes, by shared reason. Each node is counted for the
    /// first filter it fails, as things stand after all of `placed`.
    pub unplaced: Vec<(Arc<Explanation>, Vec<TaskId>)>,
}

/// Finds nodes for `pending`.
///
/// Tasks that do not wait for a node, or must not start before a moment after
/// `now`, are passed over. Higher priority goes first, then the older group.
#[must_use]
pub fn schedule(view: &State, pending: &[TaskId], now: Timestamp) -> Scheduled {
    let groups = group::collect(view, pending, now);
    if groups.is_empty() {
        return Scheduled::default();
    }
    let mut ledger = Ledger::new(view);
    let mut placed = Vec::new();
    // A node only fills up during a pass: a need that found none finds none later.
    let mut hopeless: BTreeMap<Need, Vec<TaskId>> = BTreeMap::new();
    for group in &groups {
        let need = Need::of(view, group);
        if let Some(waiting) = hopeless.get_mut(&need) {
            waiting.extend(&group.tasks);
            continue;
        }
        let done = place::place(&mut ledger, group, &need, &mut placed);
        if done < group.tasks.len() {
            hopeless.entry(need).or_default().extend(&group.tasks[done..]);
        }
    }
    let unplaced = hopeless
        .into_iter()
        .map(|(need, mut tasks)| {
            tasks.sort_unstable();
            (Arc::new(explain::explain(&mut ledger, &need)), tasks)
        })
        .collect();
    Scheduled { placed, unplaced }
}
