//! Tasks as callers name them: `t42`, `web[1]` or `shop/web[1]`.

use std::sync::Arc;

use quorate_model::{Invalid, Job, Slot, Task, TaskId};
use quorate_state::State;
use quorate_wire::{
    api::namespace,
    status::{ApiError, Reason},
};

use crate::api::{invalid, jobs, name};

/// The task that a caller names; of a slot, the newest one.
///
/// # Errors
/// `ARGUMENT_INVALID` when the text names none, `JOB_NOT_FOUND` and `TASK_NOT_FOUND` when there is none.
pub(super) fn find_task(view: &State, text: &str) -> Result<Arc<Task>, ApiError> {
    let found = match slot_of(view, text)? {
        Some((job, slot)) => view.tasks_of_slot(job.id, slot).next_back(),
        None => view.task(text.parse::<TaskId>().map_err(|_| no_reference(text))?),
    };
    found.cloned().ok_or_else(|| task_not_found(text))
}

/// The slot that a text names; `None` when it is no reference to a slot.
fn slot_of<'a>(view: &'a State, text: &str) -> Result<Option<(&'a Arc<Job>, Slot)>, ApiError> {
    let Some((job, rest)) = text.split_once('[') else { return Ok(None) };
    let digits = rest.strip_suffix(']').ok_or_else(|| no_reference(text))?;
    let slot = digits.parse().map(Slot).map_err(|_| no_reference(text))?;
    let (ns, job) = job.split_once('/').unwrap_or(("", job));
    let (ns, job) = (namespace(ns)?, name("task", job)?);
    let found = view.job_named(&ns, &job).ok_or_else(|| jobs::not_found(&ns, &job))?;
    Ok(Some((found, slot)))
}

fn no_reference(text: &str) -> ApiError {
    let why =
        format!("{text:?} is no task: name one by id, like t42, or by slot, like web[1] or shop/web[1]");
    invalid(Invalid::new("task", why))
}

/// The error of a task that is not there.
pub(super) fn task_not_found(task: impl std::fmt::Display) -> ApiError {
    ApiError::new(Reason::TaskNotFound, format!("there is no task {task}")).with("task", task)
}
