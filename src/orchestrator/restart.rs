//! What follows on a slot's last task: restart conditions, back-off, giving up.

use quorate_base::time::Timestamp;
use quorate_model::{Job, JobKind, JobSpec, Task, TaskState};
use quorate_state::State;

use crate::{
    bounds::Birth,
    seat::{Seat, is_current, is_lost},
};

/// What an empty slot gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// A task, not to be started before its time.
    Start(Birth),
    /// Nothing yet: what ran there still stops.
    Wait,
    /// Nothing any more: it ended as its policy allows, or its attempts are used up.
    GivenUp,
}

/// What a slot without a live task gets next.
pub(crate) fn next(view: &State, job: &Job, spec: &JobSpec, seat: &Seat<'_>, now: Timestamp) -> Next {
    let last = seat.newest;
    let at_once = |attempt| Next::Start(Birth { slot: seat.slot, attempt, not_before: Timestamp::EPOCH });
    if seat.is_stopping(view) {
        return Next::Wait;
    }
    if !is_current(job, last) {
        return at_once(0);
    }
    // The loss of a node is not the task's fault: no wait, and its row of failures neither grows nor ends.
    if is_lost_work(view, last) {
        return at_once(last.attempt);
    }
    // The leader stopped it, and wants one again.
    if last.desired >= TaskState::Shutdown {
        return at_once(0);
    }
    let batch = matches!(spec.kind, JobKind::Batch { .. });
    if batch && last.status.state == TaskState::Complete {
        return at_once(0);
    }
    let failure = batch || last.status.state.is_failure();
    let attempt = if ran_long(last, spec) { 1 } else { last.attempt.saturating_add(1) };
    if !spec.restart.covers(failure) || !spec.reschedule.allows(attempt) {
        return Next::GivenUp;
    }
    // Counted from now, on the leader's clock: an agent's clock that is behind would make a tight loop of crashes.
    let not_before = now.saturating_add(spec.reschedule.wait(attempt));
    Next::Start(Birth { slot: seat.slot, attempt, not_before })
}

fn is_lost_work(view: &State, task: &Task) -> bool {
    match task.status.state {
        TaskState::Orphaned => true,
        state => !state.is_terminal() && is_lost(view, task),
    }
}

/// Whether the task ran longer than the longest wait, so that its end starts a new row of failures.
fn ran_long(task: &Task, spec: &JobSpec) -> bool {
    task.status.running_since.is_some_and(|since| task.status.at.since(since) > spec.reschedule.max_delay)
}
