//! Placement: gives waiting tasks to the scheduler.

use std::sync::Arc;

use quorate_model::{Explanation, TaskId};
use quorate_state::{Command, State};

use crate::{
    Outcome, Reconciler, Tick,
    bounds::{MAX_LISTED, MAX_PASS, MAX_PLACED},
};

/// Assigns nodes and records why there is none.
pub(crate) struct Placement;

impl Reconciler for Placement {
    fn name(&self) -> &'static str {
        "placement"
    }

    fn reconcile(&self, view: &State, tick: &Tick<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let now = tick.moment(view);
        let mut due = Vec::with_capacity(view.unplaced_count());
        for task in view.unplaced() {
            if task.not_before > now {
                outcome.wake(task.not_before);
            } else {
                due.push(task.id);
            }
        }
        if due.is_empty() {
            return outcome;
        }
        let mut plan = quorate_scheduler::schedule(view, &due, now);
        plan.placed.truncate(MAX_PASS);
        let placements = plan.placed.chunks(MAX_PLACED);
        outcome.commands.extend(placements.map(|p| Command::AssignTasks { placements: p.to_vec() }));
        outcome.commands.extend(explain(view, plan.unplaced));
        outcome
    }
}

/// Only what differs from the stored reason: a pending task must not write to the log at every pass.
fn explain(view: &State, unplaced: Vec<(Arc<Explanation>, Vec<TaskId>)>) -> Vec<Command> {
    let mut commands = Vec::new();
    let (mut groups, mut listed) = (Vec::new(), 0);
    for (why, tasks) in unplaced {
        let news = |id: &TaskId| view.task(*id).is_some_and(|t| t.explanation.as_ref() != Some(&why));
        let changed: Vec<TaskId> = tasks.into_iter().filter(news).collect();
        for part in changed.chunks(MAX_LISTED) {
            if listed + part.len() > MAX_LISTED {
                commands.push(Command::ExplainTasks { groups: std::mem::take(&mut groups) });
                listed = 0;
            }
            listed += part.len();
            groups.push((why.clone(), part.to_vec()));
        }
    }
    if !groups.is_empty() {
        commands.push(Command::ExplainTasks { groups });
    }
    commands
}
