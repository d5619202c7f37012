//! What follows on a slot's last task, by the rule of [`State::sequel`], as the reconcilers plan it.

use quorate_base::time::Timestamp;
use quorate_model::{Job, JobSpec};
use quorate_state::{Sequel, State};

use crate::{bounds::Birth, seat::Seat};

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
    let start = |attempt, not_before| Next::Start(Birth { slot: seat.slot, attempt, not_before });
    match view.sequel(job, spec, seat.newest) {
        Sequel::Wait => Next::Wait,
        Sequel::AtOnce(attempt) => start(attempt, Timestamp::EPOCH),
        // Counted from now, on the leader's clock: an agent's clock that is behind would make a tight loop of crashes.
        Sequel::Replace(attempt, wait) => start(attempt, now.saturating_add(wait)),
        Sequel::GivenUp => Next::GivenUp,
    }
}
