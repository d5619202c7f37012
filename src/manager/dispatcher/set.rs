//! Sets of assignments and their differences: pure.

use std::collections::BTreeMap;

use quorate_model::{NodeId, TaskId};
use quorate_state::State;
use quorate_wire::agent::{self as pb, Wanted};

/// The tasks of one node as they were last told to its agent.
pub(super) type Told = BTreeMap<TaskId, Wanted>;

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) assignments: Vec<pb::Assignment>,
    pub(super) removals: Vec<u64>,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.assignments.is_empty() && self.removals.is_empty()
    }
}

/// The tasks that `node` should know of: all of its own.
///
/// An ended task stays in the set until it is forgotten: so long its agent keeps the container, and with it the log.
pub(super) fn wanted(view: &State, node: NodeId) -> Told {
    view.tasks_on(node).map(|t| (t.id, Wanted::of(t))).collect()
}

/// What changed from `told` to `wanted`.
pub(super) fn difference(view: &State, told: &Told, wanted: &Told) -> Difference {
    let mut out = Difference::default();
    for (id, now) in wanted {
        let known = told.get(id);
        if known == Some(now) {
            continue;
        }
        let Some(task) = view.task(*id) else { continue };
        let Some(mut assignment) = quorate_wire::agent::assignment(view, task) else { continue };
        if known.is_some() {
            assignment.spec = None;
        }
        out.assignments.push(assignment);
    }
    out.removals = told.keys().filter(|id| !wanted.contains_key(id)).map(|id| id.0).collect();
    out
}

/// The hash that both sides compare.
pub(super) fn hash(set: &Told) -> u64 {
    quorate_wire::agent::set_hash(set.iter().map(|(id, wanted)| (*id, *wanted)))
}
