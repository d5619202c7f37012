//! A purge leaves nothing, and a job that is not wanted runs nothing.

use quorate_model::JobStatus;

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("purged jobs leave nothing", "O8: removal leaves nothing")
};

fn check(scene: &Scene<'_>) -> Verdict {
    for job in scene.state.jobs() {
        ensure(job.status != JobStatus::Purging, || format!("{} is not forgotten", job.key()))?;
        let living = scene.state.tasks_of(job.id).find(|t| !t.status.state.is_terminal());
        let rests = job.status.wants_tasks() || living.is_none();
        ensure(rests, || format!("{} is {} and has {living:?}", job.key(), job.status.as_str()))?;
    }
    for task in scene.state.tasks() {
        ensure(scene.state.job(task.job).is_some(), || format!("{} has no job", task.id))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::Name;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_job_that_stays_and_on_a_task_that_stays() {
        for (purge, words) in [(true, "is not forgotten"), (false, "is stopped and has")] {
            let mut case = Case::running();
            assert_eq!(case.scene(INVARIANT.at_rest), Ok(()));
            let (namespace, name) = (Name::default_namespace(), "web".parse().unwrap());
            case.lab.done(Command::DeleteJob { namespace, name, purge, expect: None }).unwrap();
            assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains(words));
        }
    }
}
