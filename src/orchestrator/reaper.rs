//! The reaper: bounds the history of each slot.

use quorate_model::{Job, JobKind, TaskId, TaskState};
use quorate_state::{Command, State};

use crate::{
    Outcome, Reconciler, Tick,
    bounds::MAX_LISTED,
    seat::{self, Seat},
};

/// Deletes tasks that ended and that nobody needs any more.
pub(crate) struct Reaper;

impl Reconciler for Reaper {
    fn name(&self) -> &'static str {
        "reaper"
    }

    fn reconcile(&self, view: &State, _: &Tick<'_>) -> Outcome {
        let history = view.settings().task_history as usize;
        let mut dead = Vec::new();
        for job in view.jobs() {
            let tasks = seat::tasks(view, job.id);
            for seat in seat::seats(&tasks) {
                dead.extend(expired(job, &seat, history));
            }
        }
        let commands =
            dead.chunks(MAX_LISTED).map(|tasks| Command::RemoveTasks { tasks: tasks.to_vec() }).collect();
        Outcome { commands, wake_at: None }
    }
}

fn expired(job: &Job, seat: &Seat<'_>, history: usize) -> Vec<TaskId> {
    let keep = if is_beyond(job, seat) { 0 } else { history };
    // The newest task of a slot that is in use decides what comes next: its attempt, its end.
    let decides = job.status.wants_tasks() && !is_beyond(job, seat);
    let mut kept = 0;
    let mut dead = Vec::new();
    for task in seat.tasks.iter().rev().filter(|t| t.status.state.is_terminal()) {
        if task.desired == TaskState::Remove {
            dead.push(task.id);
        } else if kept < keep || (decides && task.id == seat.newest.id) {
            kept += 1;
        } else {
            dead.push(task.id);
        }
    }
    dead
}

/// Whether the lane of a batch is beyond its width. Slots of a service are closed by desiring `Remove`.
fn is_beyond(job: &Job, seat: &Seat<'_>) -> bool {
    job.spec()
        .is_some_and(|spec| matches!(spec.kind, JobKind::Batch { .. }) && seat.slot.0 >= spec.kind.width())
}
