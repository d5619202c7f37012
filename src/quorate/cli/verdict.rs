//! When a wait is over, and how: a judgement over what was seen so far, without asking anybody.

use std::time::Duration;

use quorate_base::Mono;
use quorate_wire::api::{JobStatus, TaskState};

use super::wait::Goal;
use crate::render::job::kind;
use crate::render::progress::Moment;

/// How long the tasks of a service must stay up before it counts as running: one that ends at once is running, too, for
/// a moment.
pub(super) const STABLE: Duration = Duration::from_secs(1);
/// How long tasks that no node takes are waited for while nothing else is to come. Longer than a node needs to join or
/// to say what has become free.
pub(super) const UNPLACEABLE: Duration = Duration::from_secs(10);

/// How a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is something to wait for.
    Pending,
    /// As wanted; it has to stay so for this long.
    Verifying(Duration),
    /// As wanted.
    Done,
    /// The job failed.
    Failed,
    /// Replicas are missing that will not be tried again.
    GivenUp,
    /// Tasks are missing that no node takes.
    Unplaced,
}

/// What makes two moments the same: not reasons, which count down.
type Shape = (u32, Option<quorate_wire::api::TaskCounts>, Vec<(String, i32, u32, bool)>);

/// The judge of one wait.
#[derive(Debug)]
pub(super) struct Judge {
    goal: Goal,
    /// The shape of the last moment, and since when it is that.
    same: Option<(Shape, Mono)>,
}

impl Judge {
    pub(super) const fn new(goal: Goal) -> Self {
        Self { goal, same: None }
    }

    /// Judges `moment`, seen `now`.
    pub(super) fn judge(&mut self, moment: &Moment, now: Mono) -> Verdict {
        let shape = shape(moment);
        let since = match &self.same {
            Some((before, since)) if *before == shape => *since,
            _ => now,
        };
        self.same = Some((shape, since));
        let unmoved = now.since(since);
        let job = &moment.job;
        match job.status() {
            _ if self.goal == Goal::Forgotten => Verdict::Pending,
            JobStatus::Failed => Verdict::Failed,
            JobStatus::Active if kind(job) == "service" && job.converged => match STABLE.checked_sub(unmoved)
            {
                _ if moment.tasks.iter().any(crate::render::task::is_restarting) => Verdict::Pending,
                Some(left) if !left.is_zero() && moment.wants_tasks() => Verdict::Verifying(left),
                _ => Verdict::Done,
            },
            _ if job.converged => Verdict::Done,
            _ if moving(moment) => Verdict::Pending,
            _ if moment.gave_up() && unmoved >= STABLE => Verdict::GivenUp,
            _ if !moment.gave_up() && !moment.unplaced().is_empty() && unmoved >= UNPLACEABLE => {
                Verdict::Unplaced
            }
            _ => Verdict::Pending,
        }
    }
}

/// Whether a task is on its way, so that it makes sense to wait.
fn moving(moment: &Moment) -> bool {
    let counts = moment.job.counts.unwrap_or_default();
    counts.starting + counts.stopping > 0
        || moment.unsettled().iter().any(|task| task.placement_failure.is_none())
}

fn shape(moment: &Moment) -> Shape {
    let tasks = moment.tasks.iter().map(|task| {
        let up = task.state() == TaskState::Running && task.running_since.is_some();
        (task.id.clone(), task.state, task.restarts, up)
    });
    (moment.job.version, moment.job.counts, tasks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::job::tests::service;
    use crate::render::task::tests::task;
    use quorate_base::{Clock, Timestamp};
    use quorate_wire::api::{Job, PlacementFailure, Task, TaskCounts};

    fn moment(counts: TaskCounts, tasks: Vec<Task>) -> Moment {
        Moment { job: service("web", counts), tasks }
    }

    fn two(running: u32) -> TaskCounts {
        TaskCounts { desired: 2, running, starting: 2 - running, ..TaskCounts::default() }
    }

    fn up() -> Vec<Task> {
        vec![task(1, 0, TaskState::Running), task(2, 1, TaskState::Running)]
    }

    /// Verdicts over moments, each seen that long after the first.
    fn verdicts(seen: &[(u64, &Moment)]) -> Vec<Verdict> {
        let start = Clock::manual(Timestamp::EPOCH).monotonic();
        let mut judge = Judge::new(Goal::Settled);
        seen.iter()
            .map(|(millis, moment)| judge.judge(moment, start.saturating_add(Duration::from_millis(*millis))))
            .collect()
    }

    #[test]
    fn what_stays_up_for_a_while_is_done() {
        let settled = moment(two(2), up());
        let left = |millis| Verdict::Verifying(Duration::from_millis(millis));
        let seen = verdicts(&[(0, &settled), (400, &settled), (1000, &settled)]);
        assert_eq!(seen, [left(1000), left(600), Verdict::Done]);
    }

    #[test]
    fn a_restart_a_failure_or_an_end_begins_the_window_anew() {
        let settled = moment(two(2), up());
        let mut restarted = settled.clone();
        restarted.tasks[1].restarts = 1;
        let mut failed = settled.clone();
        failed.job.counts = Some(TaskCounts { failed: 1, ..two(2) });
        for after in [&restarted, &failed] {
            let seen = verdicts(&[(0, &settled), (900, after), (1100, after), (1900, after)]);
            assert!(matches!(seen[2], Verdict::Verifying(_)), "{seen:?}");
            assert_eq!(seen[3], Verdict::Done);
        }
        let mut restarting = settled.clone();
        restarting.tasks[1].running_since = None;
        let one = moment(two(1), vec![task(1, 0, TaskState::Running), task(2, 1, TaskState::Starting)]);
        for after in [&restarting, &one] {
            let seen = verdicts(&[(0, &settled), (900, after), (60_000, after)]);
            assert_eq!(seen[1..], [Verdict::Pending, Verdict::Pending]);
        }
    }

    #[test]
    fn what_wants_no_tasks_and_what_was_stopped_is_done_at_once() {
        let none = moment(TaskCounts::default(), Vec::new());
        assert_eq!(verdicts(&[(0, &none)]), [Verdict::Done]);
        let job = Job { status: JobStatus::Stopped.into(), ..service("web", TaskCounts::default()) };
        assert_eq!(verdicts(&[(0, &Moment { job, tasks: Vec::new() })]), [Verdict::Done]);
    }

    #[test]
    fn replicas_that_gave_up_end_the_wait_unless_something_moves() {
        let counts = TaskCounts { desired: 2, running: 1, given_up: 1, ..TaskCounts::default() };
        let tasks = || vec![task(1, 0, TaskState::Running), task(2, 1, TaskState::Failed)];
        let still = moment(counts, tasks());
        assert_eq!(verdicts(&[(0, &still), (1000, &still)]), [Verdict::Pending, Verdict::GivenUp]);
        let moving = moment(TaskCounts { running: 0, starting: 1, ..counts }, tasks());
        assert_eq!(verdicts(&[(0, &moving), (1000, &moving)]), [Verdict::Pending, Verdict::Pending]);
    }

    #[test]
    fn tasks_that_no_node_takes_end_the_wait_once_nothing_else_is_to_come() {
        let failure = Some(PlacementFailure::default());
        let unplaced = Task { placement_failure: failure, ..task(2, 1, TaskState::Pending) };
        let counts = TaskCounts { desired: 2, running: 1, pending: 1, ..TaskCounts::default() };
        let still = moment(counts, vec![task(1, 0, TaskState::Running), unplaced.clone()]);
        let seen = verdicts(&[(0, &still), (9_900, &still), (10_000, &still)]);
        assert_eq!(seen, [Verdict::Pending, Verdict::Pending, Verdict::Unplaced]);
        let starting = TaskCounts { running: 0, starting: 1, ..counts };
        let moving = moment(starting, vec![task(1, 0, TaskState::Starting), unplaced.clone()]);
        assert_eq!(verdicts(&[(0, &moving), (60_000, &moving)])[1], Verdict::Pending);
        let backing_off = Task { placement_failure: None, ..unplaced };
        let moving = moment(counts, vec![task(1, 0, TaskState::Running), backing_off]);
        assert_eq!(verdicts(&[(0, &moving), (60_000, &moving)])[1], Verdict::Pending);
    }
}
