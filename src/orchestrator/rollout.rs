//! The pace at which tasks of an old version are replaced: stop first, a part of the slots at a time.

use quorate_model::{Job, TaskId, TaskState};
use quorate_state::State;

use crate::{
    restart::Next,
    seat::{Seat, is_current, is_lost},
};

/// Slots of `replicas` that may be without a running task because of a roll-out.
pub(crate) fn budget(replicas: u32) -> usize {
    (replicas / 4).max(1) as usize
}

/// How many slots are without a running task and could have one, given what each gets next.
///
/// A slot whose new task fails stays in flight, so a version that cannot run stops its own roll-out
/// while the rest of the old one still serves. A slot that had no node before the roll-out lost
/// nothing by it and does not hold it up; where it got the node of another slot, it makes up for that one.
pub(crate) fn in_flight<'a>(
    view: &State,
    job: &Job,
    slots: impl Iterator<Item = (&'a Seat<'a>, Option<Next>)>,
) -> usize {
    let (mut lost, mut gained) = (0_usize, 0);
    for (seat, next) in slots {
        match flight(view, job, seat, next) {
            Flight::Lost => lost += 1,
            Flight::Gained => gained += 1,
            Flight::Neither => {}
        }
    }
    lost.saturating_sub(gained)
}

enum Flight {
    Lost,
    Gained,
    Neither,
}

fn flight(view: &State, job: &Job, seat: &Seat<'_>, next: Option<Next>) -> Flight {
    let lost = |yes: bool| if yes { Flight::Lost } else { Flight::Neither };
    let Some(live) = seat.live() else {
        return match next {
            Some(Next::Wait) => Flight::Lost,
            Some(Next::Start(_)) => lost(seat.newest.node.is_some()),
            Some(Next::GivenUp) | None => lost(seat.newest.status.state.is_failure()),
        };
    };
    if is_lost(view, live) {
        return Flight::Lost;
    }
    let waits = live.status.state < TaskState::Running;
    if !is_current(job, live) {
        return lost(waits && live.node.is_some());
    }
    match seat.predecessor() {
        None => lost(waits && live.node.is_some()),
        Some(before) if before.node.is_some() => lost(waits),
        Some(_) if live.node.is_none() => Flight::Neither,
        Some(before) if !waits && !is_current(job, before) => Flight::Gained,
        Some(_) => lost(waits),
    }
}

/// The running tasks of an old version that are stopped now, given how many slots are in flight.
pub(crate) fn stop_next(stale: &[TaskId], in_flight: usize, replicas: u32) -> &[TaskId] {
    let room = budget(replicas).saturating_sub(in_flight);
    &stale[..room.min(stale.len())]
}
