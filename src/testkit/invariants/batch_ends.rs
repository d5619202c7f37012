//! A batch ends as complete when it has its completions, and as failed only while it has not.
//!
//! At that moment: a machine that was lost may come back later and tell of a success that nobody waited for.

use quorate_model::{JobKind, JobStatus};
use quorate_state::Command;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("batches end truly", "architecture 1: a batch runs to completion")
};

fn check(step: &Step<'_>) -> Verdict {
    let (Command::SetJobStatus { job, status, .. }, Ok(_)) = (&step.envelope.command, &step.applied.outcome)
    else {
        return Ok(());
    };
    let Some(job) = step.before.job(*job) else { return Ok(()) };
    let Some(JobKind::Batch { completions, .. }) = job.spec().map(|spec| spec.kind) else {
        return Err(format!("{} is no batch and became {}", job.key(), status.as_str()));
    };
    let enough = job.succeeded >= completions;
    ensure(enough == (*status == JobStatus::Complete), || {
        format!("{} became {} after {} of {completions} successes", job.key(), status.as_str(), job.succeeded)
    })
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, JobVersion, NodeId, TaskId, TaskState};
    use quorate_state::lab;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_an_end_that_was_not_reached() {
        for (successes, status, words) in [
            (0, JobStatus::Failed, ""),
            (0, JobStatus::Complete, "became complete after 0 of 1"),
            (1, JobStatus::Complete, ""),
            (1, JobStatus::Failed, "became failed after 1 of 1"),
        ] {
            let mut case = Case::new();
            let kind = JobKind::Batch { completions: 1, parallelism: 1 };
            case.lab.job(lab::spec("import", kind).unwrap()).unwrap();
            case.create(JobId(0), 0, 1);
            case.start(TaskId(0), NodeId(0));
            if successes > 0 {
                case.lab.report(TaskId(0), TaskState::Complete).unwrap();
            }
            let end = Command::SetJobStatus { job: JobId(0), version: JobVersion(1), status };
            let verdict = case.step(end, INVARIANT.step, |_| {}).err().unwrap_or_default();
            assert!(verdict.contains(words) && verdict.is_empty() == words.is_empty(), "{verdict}");
        }
    }

    #[test]
    fn trips_on_a_service_that_ends() {
        let end =
            Command::SetJobStatus { job: JobId(0), version: JobVersion(1), status: JobStatus::Complete };
        assert!(Case::running().step(end, INVARIANT.step, |_| {}).unwrap_err().contains("is no batch"));
    }
}
