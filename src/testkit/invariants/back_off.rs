//! A task that failed is not started anew as if nothing had been: its row of failures goes on, or it is given up.

use quorate_model::TaskState;
use quorate_state::{Change, Object};

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new(
        "failures are answered with back-off",
        "features 4.5: so no tight loop; attempts are counted per slot",
    )
};

fn check(step: &Step<'_>) -> Verdict {
    for event in &step.applied.events {
        let (Change::Created, Object::Task(task)) = (event.change, &event.object) else { continue };
        let Some((version, at)) = step.journal.failed.get(&(task.job, task.slot)) else { continue };
        // The newest before it: since then it may have succeeded, been stopped, or been lost with its node.
        let newest = step.before.tasks_of_slot(task.job, task.slot).next_back();
        let same = newest.is_none_or(|old| {
            let failed = matches!(old.status.state, TaskState::Failed | TaskState::Rejected);
            failed && old.desired <= TaskState::Running && old.version == *version
        });
        let job = step.after.job(task.job);
        let edited = step.journal.last_edit.get(&task.job).is_some_and(|edit| edit >= at);
        let continues = same && !edited && job.is_some_and(|job| job.is_current(*version));
        ensure(!continues || task.attempt > 0, || {
            format!("the slot failed at {at} ms and starts afresh: {task:?}")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_base::time::Timestamp;
    use quorate_model::{JobId, JobVersion, Slot, TaskId};
    use quorate_state::{Command, NewTasks};

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_fresh_start_after_a_failure() {
        let verdict = |attempt, edited| {
            let mut case = Case::running();
            case.lab.report(TaskId(0), TaskState::Failed).unwrap();
            case.journal.failed.insert((JobId(0), Slot(0)), (JobVersion(1), 50_000));
            case.journal.last_edit.insert(JobId(0), edited);
            let group = NewTasks { first: Slot(0), count: 1, attempt, not_before: Timestamp::EPOCH };
            let create = Command::CreateTasks { job: JobId(0), version: JobVersion(1), groups: vec![group] };
            case.step(create, INVARIANT.step, |_| {})
        };
        assert!(verdict(0, 0).unwrap_err().contains("starts afresh"));
        assert_eq!(verdict(1, 0), Ok(()));
        assert_eq!(verdict(0, 55_000), Ok(()), "a user changed the job since");
    }
}
