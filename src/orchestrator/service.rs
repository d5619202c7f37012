//! Services: each replica has a slot, each slot one live task of the newest version.

use std::collections::BTreeSet;

use quorate_base::time::Timestamp;
use quorate_model::{Job, JobKind, JobSpec, Slot, Task, TaskId, TaskState};
use quorate_state::{Command, State};

use crate::{
    Outcome, Reconciler, Tick,
    bounds::{self, Birth, MAX_PASS},
    restart::{self, Next},
    rollout::{self, Pace},
    seat::{self, Seat, ends_at_once, is_current, is_lost},
    victims::victims,
};

/// Replicas, restarts and roll-outs of services.
pub(crate) struct Service;

impl Reconciler for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn reconcile(&self, view: &State, tick: &Tick<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        for job in view.jobs().filter(|job| job.status.wants_tasks()) {
            let Some(spec) = job.spec() else { continue };
            if let JobKind::Service { replicas } = spec.kind {
                let tasks = seat::tasks(view, job.id);
                let mut plan = Plan::new(view, job, spec, tick.moment(view));
                plan.make(&seat::seats(&tasks).collect::<Vec<_>>(), replicas);
                plan.wake.into_iter().for_each(|at| outcome.wake(at));
                outcome.commands.extend(plan.commands());
            }
        }
        outcome
    }
}

/// What one service asks for.
struct Plan<'a> {
    view: &'a State,
    job: &'a Job,
    spec: &'a JobSpec,
    now: Timestamp,
    close: Vec<TaskId>,
    stop: Vec<TaskId>,
    births: Vec<Birth>,
    /// When time alone lets the roll-out go on.
    wake: Option<Timestamp>,
}

impl<'a> Plan<'a> {
    fn new(view: &'a State, job: &'a Job, spec: &'a JobSpec, now: Timestamp) -> Self {
        let (close, stop, births) = (Vec::new(), Vec::new(), Vec::new());
        Self { view, job, spec, now, close, stop, births, wake: None }
    }

    fn make(&mut self, seats: &[Seat<'_>], replicas: u32) {
        let open: Vec<Seat<'_>> = seats.iter().filter(|s| s.is_open()).copied().collect();
        let surplus = open.len().saturating_sub(replicas as usize);
        let closing = victims(self.view, &open, surplus);
        let (closed, kept): (Vec<_>, Vec<_>) = open.into_iter().partition(|s| closing.contains(&s.slot));
        for seat in closed {
            self.close.extend(seat.tasks.iter().filter(|t| t.desired < TaskState::Remove).map(|t| t.id));
        }
        self.keep(&kept, replicas);
        let missing = (replicas as usize).saturating_sub(kept.len());
        self.open(seats, missing.min(MAX_PASS));
    }

    /// Looks after the slots that stay.
    fn keep(&mut self, seats: &[Seat<'_>], replicas: u32) {
        let next: Vec<Option<Next>> = seats.iter().map(|seat| self.next(seat)).collect();
        let pace = Pace { view: self.view, job: self.job, now: self.now };
        let flight = pace.in_flight(seats.iter().zip(next.iter().copied()));
        let mut stale = Vec::new();
        for (seat, next) in seats.iter().zip(next) {
            if let Some(Next::Start(birth)) = next {
                self.births.push(birth);
            }
            let Some(live) = seat.live() else { continue };
            self.drop_doubles(seat, live);
            let current = is_current(self.job, live);
            if is_lost(self.view, live) {
                self.replace(seat, live, if current { live.attempt } else { 0 });
            } else if !current && !live.is_up() {
                // It serves nobody: nothing is lost by not waiting for its turn.
                self.replace(seat, live, 0);
            } else if !current {
                stale.push(live.id);
            }
        }
        let next = rollout::stop_next(&stale, flight.slots, replicas);
        self.wake = flight.settles_at.filter(|_| next.len() < stale.len());
        self.stop.extend(next);
    }

    /// What an empty slot gets.
    fn next(&self, seat: &Seat<'_>) -> Option<Next> {
        match seat.live() {
            None => Some(restart::next(self.view, self.job, self.spec, seat, self.now)),
            Some(_) => None,
        }
    }

    /// Stops a live task; its successor comes in the same pass when nothing has to be waited for.
    fn replace(&mut self, seat: &Seat<'_>, live: &Task, attempt: u32) {
        self.stop.push(live.id);
        if ends_at_once(self.view, live) && !seat.is_stopping(self.view) {
            self.births.push(Birth { slot: seat.slot, attempt, not_before: Timestamp::EPOCH });
        }
    }

    fn drop_doubles(&mut self, seat: &Seat<'_>, keep: &Task) {
        self.stop.extend(seat.tasks.iter().filter(|t| t.is_live() && t.id != keep.id).map(|t| t.id));
    }

    /// Opens the lowest slots that are neither open nor still stopping.
    fn open(&mut self, seats: &[Seat<'_>], count: usize) {
        let used: BTreeSet<Slot> =
            seats.iter().filter(|s| s.is_open() || s.is_stopping(self.view)).map(|s| s.slot).collect();
        let free = (0..=u32::MAX).map(Slot).filter(|slot| !used.contains(slot));
        let births = free.take(count).map(|slot| Birth { slot, attempt: 0, not_before: Timestamp::EPOCH });
        self.births.extend(births);
    }

    fn commands(self) -> impl Iterator<Item = Command> {
        let close: Vec<_> = bounds::desire(TaskState::Remove, &self.close).collect();
        let stop: Vec<_> = bounds::desire(TaskState::Shutdown, &self.stop).collect();
        close.into_iter().chain(stop).chain(bounds::create(self.job.id, self.job.version, self.births))
    }
}
