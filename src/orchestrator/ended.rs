//! Jobs that are not wanted any more: stopped, ended or being purged.

use quorate_model::{JobStatus, TaskId, TaskState};
use quorate_state::{Command, State};

use crate::{Outcome, Reconciler, Tick, bounds};

/// Stops the tasks of jobs that are not active and forgets purged jobs.
pub(crate) struct Ended;

impl Reconciler for Ended {
    fn name(&self) -> &'static str {
        "ended"
    }

    fn reconcile(&self, view: &State, _: &Tick<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut stop, mut purge) = (Vec::<TaskId>::new(), Vec::<TaskId>::new());
        for job in view.jobs() {
            match job.status {
                JobStatus::Active => {}
                JobStatus::Complete | JobStatus::Failed | JobStatus::Stopped => {
                    stop.extend(view.tasks_of(job.id).filter(|t| t.is_live()).map(|t| t.id));
                }
                JobStatus::Purging if view.tasks_of(job.id).next().is_none() => {
                    outcome.commands.push(Command::ForgetJob { job: job.id });
                }
                JobStatus::Purging => {
                    let left = view.tasks_of(job.id).filter(|t| t.desired < TaskState::Remove);
                    purge.extend(left.map(|t| t.id));
                }
            }
        }
        outcome.commands.extend(bounds::desire(TaskState::Shutdown, &stop));
        outcome.commands.extend(bounds::desire(TaskState::Remove, &purge));
        outcome
    }
}
