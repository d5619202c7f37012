//! Batches: lanes that run one task after the other until enough have succeeded.
//!
//! The slots of a batch are its lanes, as many as may run at once; the number of successful runs is
//! the job's own counter, so the records of finished tasks may be forgotten.

use std::collections::BTreeSet;

use quorate_base::time::Timestamp;
use quorate_model::{Job, JobKind, JobSpec, JobStatus, Slot, TaskId, TaskState};
use quorate_state::{Command, State};

use crate::{
    Outcome, Reconciler, Tick,
    bounds::{self, Birth},
    restart::{self, Next},
    seat::{self, Seat, ends_at_once, is_current, is_lost},
    victims::victims,
};

/// Runs, retries and the end of batches.
pub(crate) struct Batch;

impl Reconciler for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn reconcile(&self, view: &State, tick: &Tick<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        for job in view.jobs().filter(|job| job.status.wants_tasks()) {
            let Some(spec) = job.spec() else { continue };
            let JobKind::Batch { completions, parallelism } = spec.kind else { continue };
            if job.succeeded >= completions {
                outcome.commands.push(ended(job, JobStatus::Complete));
                continue;
            }
            let wanted = parallelism.min(completions - job.succeeded) as usize;
            let tasks = seat::tasks(view, job.id);
            let seats: Vec<Seat<'_>> = seat::seats(&tasks).collect();
            let lanes = Lanes { view, job, spec, now: tick.moment(view), width: spec.kind.width() };
            outcome.commands.extend(lanes.plan(&seats, wanted));
        }
        outcome
    }
}

fn ended(job: &Job, status: JobStatus) -> Command {
    Command::SetJobStatus { job: job.id, version: job.version, status }
}

struct Lanes<'a> {
    view: &'a State,
    job: &'a Job,
    spec: &'a JobSpec,
    now: Timestamp,
    width: u32,
}

impl Lanes<'_> {
    fn plan(&self, seats: &[Seat<'_>], wanted: usize) -> Vec<Command> {
        let (inside, outside): (Vec<_>, Vec<_>) = seats.iter().copied().partition(|s| s.slot.0 < self.width);
        let close = live_tasks(outside.iter());
        // What runs an old version, or on a lost node, does not count; the rest above what is wanted is surplus.
        let (useful, useless): (Vec<_>, Vec<_>) =
            inside.iter().copied().filter(|s| s.live().is_some()).partition(|s| self.is_useful(s));
        let surplus = victims(self.view, &useful, useful.len().saturating_sub(wanted));
        let kept = useful.len() - surplus.len();
        let stopped = useless.iter().chain(useful.iter().filter(|s| surplus.contains(&s.slot)));
        let stop = live_tasks(stopped);
        let (births, waiting) = self.births(&inside, wanted.saturating_sub(kept));
        let mut commands: Vec<Command> = bounds::desire(TaskState::Remove, &close).collect();
        commands.extend(bounds::desire(TaskState::Shutdown, &stop));
        if kept == 0 && births.is_empty() && !waiting {
            commands.push(ended(self.job, JobStatus::Failed));
        }
        commands.extend(bounds::create(self.job.id, self.job.version, births));
        commands
    }

    fn is_useful(&self, seat: &Seat<'_>) -> bool {
        seat.live().is_some_and(|live| is_current(self.job, live) && !is_lost(self.view, live))
    }

    /// Up to `count` new tasks in the lowest free lanes, and whether a lane is still stopping.
    fn births(&self, inside: &[Seat<'_>], count: usize) -> (Vec<Birth>, bool) {
        let mut births = Vec::new();
        let mut waiting = false;
        let used: BTreeSet<Slot> = inside.iter().map(|s| s.slot).collect();
        for seat in inside.iter().filter(|s| !self.is_useful(s)) {
            match self.next(seat) {
                Next::Start(birth) => births.push(birth),
                Next::Wait => waiting = true,
                Next::GivenUp => {}
            }
        }
        let unused = (0..self.width).map(Slot).filter(|slot| !used.contains(slot));
        let fresh = unused.map(|slot| Birth { slot, attempt: 0, not_before: Timestamp::EPOCH });
        births.extend(fresh.take(count));
        births.sort_unstable();
        births.truncate(count);
        (births, waiting)
    }

    fn next(&self, seat: &Seat<'_>) -> Next {
        let Some(live) = seat.live() else {
            return restart::next(self.view, self.job, self.spec, seat, self.now);
        };
        if !ends_at_once(self.view, live) || seat.is_stopping(self.view) {
            return Next::Wait;
        }
        let attempt = if is_current(self.job, live) { live.attempt } else { 0 };
        Next::Start(Birth { slot: seat.slot, attempt, not_before: Timestamp::EPOCH })
    }
}

fn live_tasks<'a>(seats: impl Iterator<Item = &'a Seat<'a>>) -> Vec<TaskId> {
    seats.flat_map(|s| s.tasks.iter().filter(|t| t.is_live()).map(|t| t.id)).collect()
}
