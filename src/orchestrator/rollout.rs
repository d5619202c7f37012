//! The pace at which tasks of an old version are replaced: stop first, a part of the slots at a time.

use std::time::Duration;

use quorate_base::time::Timestamp;
use quorate_model::{Job, Task, TaskId};
use quorate_state::State;

use crate::{
    restart::Next,
    seat::{Seat, is_current, is_lost},
};

/// Slots of `replicas` that may be without a running task because of a roll-out.
pub(crate) fn budget(replicas: u32) -> usize {
    (replicas / 4).max(1) as usize
}

/// How long a replacement must be up before its slot counts as done, so that a version that starts and
/// crashes at once does not pass for one that runs.
pub(crate) const MIN_UP: Duration = Duration::from_secs(2);

/// The slots that a roll-out waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// How many.
    pub(crate) slots: usize,
    /// When the first of them has been up for long enough, if it goes on to run.
    pub(crate) settles_at: Option<Timestamp>,
}

enum Flight {
    Lost,
    /// Up, but not for long enough before this moment.
    Fresh(Timestamp),
    Gained,
    Neither,
}

/// Where a job's roll-out stands at a moment.
pub(crate) struct Pace<'a> {
    pub(crate) view: &'a State,
    pub(crate) job: &'a Job,
    pub(crate) now: Timestamp,
}

impl Pace<'_> {
    /// How many slots are without a running task and could have one, given what each gets next.
    ///
    /// A slot whose new task fails stays in flight, so a version that cannot run stops its own roll-out
    /// while the rest of the old one still serves. A slot that had no node before the roll-out lost
    /// nothing by it and does not hold it up; where it got the node of another slot, it makes up for that one.
    pub(crate) fn in_flight<'b>(
        &self,
        slots: impl Iterator<Item = (&'b Seat<'b>, Option<Next>)>,
    ) -> InFlight {
        let (mut lost, mut gained, mut settles_at) = (0_usize, 0, None::<Timestamp>);
        for (seat, next) in slots {
            match self.flight(seat, next) {
                Flight::Lost => lost += 1,
                Flight::Fresh(until) => {
                    lost += 1;
                    settles_at = Some(settles_at.map_or(until, |known| known.min(until)));
                }
                Flight::Gained => gained += 1,
                Flight::Neither => {}
            }
        }
        InFlight { slots: lost.saturating_sub(gained), settles_at }
    }

    fn flight(&self, seat: &Seat<'_>, next: Option<Next>) -> Flight {
        let lost = |yes: bool| if yes { Flight::Lost } else { Flight::Neither };
        let Some(live) = seat.live() else {
            return match next {
                Some(Next::Wait) => Flight::Lost,
                Some(Next::Start(_)) => lost(seat.newest.node.is_some()),
                Some(Next::GivenUp) | None => lost(seat.newest.status.state.is_failure()),
            };
        };
        if is_lost(self.view, live) {
            return Flight::Lost;
        }
        let waits = !live.is_up();
        if !is_current(self.job, live) {
            return lost(waits && live.node.is_some());
        }
        if let Some(until) = self.fresh_until(live) {
            return Flight::Fresh(until);
        }
        match seat.predecessor() {
            None => lost(waits && live.node.is_some()),
            Some(before) if before.node.is_some() => lost(waits),
            Some(_) if live.node.is_none() => Flight::Neither,
            Some(before) if !waits && !is_current(self.job, before) => Flight::Gained,
            Some(_) => lost(waits),
        }
    }

    /// Until when a task that is up has not been up for long enough. A beginning that is further ahead
    /// than that was told by a clock that is off and says nothing.
    fn fresh_until(&self, task: &Task) -> Option<Timestamp> {
        let since = task.status.running_since.filter(|_| task.is_up())?;
        let until = since.saturating_add(MIN_UP);
        (until > self.now && since.since(self.now) <= MIN_UP).then_some(until)
    }
}

/// The running tasks of an old version that are stopped now, given how many slots are in flight.
pub(crate) fn stop_next(stale: &[TaskId], in_flight: usize, replicas: u32) -> &[TaskId] {
    let room = budget(replicas).saturating_sub(in_flight);
    &stale[..room.min(stale.len())]
}
