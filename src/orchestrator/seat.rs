//! The tasks of one slot, as the reconcilers look at them.

use quorate_model::{Job, JobId, Slot, Task, TaskState};
use quorate_state::State;

/// All tasks of a job, by slot and number.
pub(crate) fn tasks(view: &State, job: JobId) -> Vec<&Task> {
    view.tasks_of(job).map(AsRef::as_ref).collect()
}

/// The slots that have tasks, in order. `tasks` is what [`tasks`] gave.
pub(crate) fn seats<'a>(tasks: &'a [&'a Task]) -> impl Iterator<Item = Seat<'a>> {
    tasks
        .chunk_by(|a, b| a.slot == b.slot)
        .filter_map(|run| Some(Seat { slot: run.first()?.slot, newest: run.last()?, tasks: run }))
}

/// A slot with at least one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) slot: Slot,
    pub(crate) newest: &'a Task,
    /// Oldest first.
    pub(crate) tasks: &'a [&'a Task],
}

impl<'a> Seat<'a> {
    /// The task that is wanted and has not ended.
    pub(crate) fn live(&self) -> Option<&'a Task> {
        self.tasks.iter().rev().copied().find(|t| t.is_live())
    }

    /// Whether the slot counts as a replica: scaling down closes a slot by desiring `Remove` of all its tasks.
    pub(crate) fn is_open(&self) -> bool {
        self.tasks.iter().any(|t| t.desired < TaskState::Remove)
    }

    /// Whether something that is no longer wanted may still run where it can be heard: a successor
    /// must wait, or two would run at once.
    pub(crate) fn is_stopping(&self, view: &State) -> bool {
        view.is_stopping(self.tasks.iter().copied())
    }

    /// The task before the newest.
    pub(crate) fn predecessor(&self) -> Option<&'a Task> {
        self.tasks.iter().rev().nth(1).copied()
    }
}

/// Whether the task's node is down.
pub(crate) fn is_lost(view: &State, task: &Task) -> bool {
    view.is_lost(task)
}

/// Whether stopping the task frees its slot at once: nobody has to be waited for.
pub(crate) fn ends_at_once(view: &State, task: &Task) -> bool {
    task.node.is_none() || is_lost(view, task)
}

/// Whether the task runs what the job's newest version wants.
pub(crate) fn is_current(job: &Job, task: &Task) -> bool {
    job.is_current(task.version)
}
