//! At rest every job is as it should be: enough slots, each with a running task of the newest version, or a
//! stated reason why not.

use std::collections::BTreeSet;

use quorate_model::{Job, JobKind, JobStatus, Slot, Task, TaskState};
use quorate_state::State;

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("jobs converge", "O7 and L2: after the heal replicas are as desired")
};

fn check(scene: &Scene<'_>) -> Verdict {
    for job in scene.state.jobs() {
        let Some(spec) = job.spec() else { return Err(format!("{} has no specification", job.key())) };
        match (job.status, spec.kind) {
            (JobStatus::Active, JobKind::Service { replicas }) => service(scene.state, job, replicas)?,
            (JobStatus::Active, JobKind::Batch { .. }) => batch(scene.state, job)?,
            (_, _) => {}
        }
    }
    Ok(())
}

fn service(state: &State, job: &Job, replicas: u32) -> Verdict {
    let slots: BTreeSet<Slot> =
        state.tasks_of(job.id).filter(|t| t.desired < TaskState::Remove).map(|t| t.slot).collect();
    ensure(slots.len() == replicas as usize, || {
        format!("{} wants {replicas} slots and has {slots:?}", job.key())
    })?;
    let newest = |slot: &Slot| state.tasks_of_slot(job.id, *slot).next_back();
    // A roll-out halts when a new task fails for good or finds no node: what is old goes on.
    let halted = slots.iter().filter_map(newest).any(|t| {
        let failed = !t.is_live() && t.status.state.is_failure();
        job.is_current(t.version) && (failed || waits(t))
    });
    for task in slots.iter().filter_map(newest) {
        let ended = task.status.state.is_terminal() && gives_up(job, task);
        let runs = task.is_live() && task.status.state == TaskState::Running;
        ensure(ended || runs || waits(task), || format!("{} neither runs nor waits: {task:?}", job.key()))?;
        ensure(job.is_current(task.version) || halted, || {
            format!("{} was not rolled out: {task:?}", job.key())
        })?;
    }
    Ok(())
}

/// Whether the job's policy leaves a slot empty after such an end.
fn gives_up(job: &Job, task: &Task) -> bool {
    let Some(spec) = job.spec() else { return false };
    let covered = spec.restart.covers(task.status.state.is_failure());
    let more = spec.reschedule.allows(task.attempt.saturating_add(1));
    task.desired < TaskState::Shutdown && !(covered && more)
}

fn waits(task: &Task) -> bool {
    task.is_unplaced() && task.explanation.is_some()
}

/// A batch that is still active after all this time has tasks that no node takes.
fn batch(state: &State, job: &Job) -> Verdict {
    let mut live = state.tasks_of(job.id).filter(|t| t.is_live()).peekable();
    ensure(live.peek().is_some(), || format!("{} is active and has nothing to run", job.key()))?;
    let stuck = live.find(|t| !waits(t));
    ensure(stuck.is_none(), || format!("{} does not come to its end: {stuck:?}", job.key()))
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, TaskId};
    use quorate_state::lab;

    use super::*;
    use crate::invariants::bad::{Case, service as service_spec};

    fn verdict(case: &Case) -> String {
        case.scene(INVARIANT.at_rest).err().unwrap_or_default()
    }

    #[test]
    fn trips_on_missing_surplus_stale_and_stuck_tasks() {
        let mut case = Case::running();
        assert_eq!(verdict(&case), "");
        case.lab.job(service_spec(2)).unwrap();
        assert!(verdict(&case).contains("wants 2 slots"));
        case.lab.job(service_spec(0)).unwrap();
        assert!(verdict(&case).contains("wants 0 slots"));
        case.lab.job(lab::with_image(service_spec(1), "app:2")).unwrap();
        assert!(verdict(&case).contains("was not rolled out"));
        let mut ended = Case::running();
        ended.lab.report(TaskId(0), TaskState::Failed).unwrap();
        assert!(verdict(&ended).contains("neither runs nor waits"));
        let mut waiting = Case::new();
        waiting.lab.job(service_spec(1)).unwrap();
        waiting.create(JobId(0), 0, 1);
        assert!(verdict(&waiting).contains("neither runs nor waits"));
    }

    #[test]
    fn trips_on_a_batch_that_does_not_end() {
        let mut case = Case::new();
        let kind = JobKind::Batch { completions: 1, parallelism: 1 };
        case.lab.job(lab::spec("import", kind).unwrap()).unwrap();
        assert!(verdict(&case).contains("nothing to run"));
        case.create(JobId(0), 0, 1);
        case.start(TaskId(0), quorate_model::NodeId(0));
        assert!(verdict(&case).contains("does not come to its end"));
    }
}
