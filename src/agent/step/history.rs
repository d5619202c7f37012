//! What happened to a task, as it is kept with its status.

use std::sync::Arc;

use quorate_base::Timestamp;
use quorate_model::task::{MAX_DETAIL, cut};
use quorate_model::{TaskEvent, TaskEventKind, TaskStatus};

use super::{Cause, Exit};

/// Whether `new` is worth a report: events alone are not, they ride on the next one.
pub(crate) fn is_news(old: &TaskStatus, new: &TaskStatus) -> bool {
    TaskStatus { events: Arc::clone(&old.events), ..new.clone() } != *old
}

/// Enters an event. One that repeats the last one is left out, and of adoptions in a row the last one is kept: neither
/// silent engines nor restarts of the agent push out what matters.
pub(super) fn with_event(
    status: &mut TaskStatus,
    kind: TaskEventKind,
    at: Timestamp,
    code: Option<i32>,
    detail: &str,
) {
    let detail = Some(cut(detail, MAX_DETAIL)).filter(|text| !text.is_empty());
    if let Some(last) = status.events.last()
        && last.kind == kind
    {
        if kind == TaskEventKind::Adopted {
            let before = status.events.len() - 1;
            status.events = status.events.iter().take(before).cloned().collect();
        } else if last.code == code && last.detail.as_deref() == detail {
            return;
        }
    }
    let event = TaskEvent { kind, at, code, detail: detail.map(Into::into) };
    *status = status.clone().with_event(event);
}

/// How an end is told: its kind, with the exit code or the number of the signal.
pub(super) fn of_exit(exit: &Exit) -> (TaskEventKind, Option<i32>) {
    match exit.cause {
        Cause::Itself => (TaskEventKind::Exited, exit.code),
        Cause::Signal(signal) => (TaskEventKind::Killed, Some(signal)),
        Cause::OutOfMemory => (TaskEventKind::OutOfMemory, exit.code),
    }
}
