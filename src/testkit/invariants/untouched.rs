//! What runs on a healthy machine is stopped for a reason in the state, and elections are none.

use quorate_model::{Job, JobKind, Task, TaskState};
use quorate_state::{Command, State};

use super::{Invariant, Scene, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check_orders),
    always: Some(check_kills),
    at_rest: Some(check_kills),
    ..Invariant::new(
        "nothing is stopped without a reason",
        "R3: no container on a healthy agent is restarted or moved by a leader change",
    )
};

/// The longest that a plan may be old when it is applied: that of a leader which was cut off.
const PLAN_AGE_MS: u64 = 4_000;

fn check_kills(scene: &Scene<'_>) -> Verdict {
    scene.journal.killed_in_error.clone().map_or(Ok(()), Err)
}

fn check_orders(step: &Step<'_>) -> Verdict {
    let Command::SetDesired { tasks, .. } = &step.envelope.command else { return Ok(()) };
    for old in tasks.iter().filter_map(|id| step.before.task(*id)).filter(|t| t.is_live()) {
        let stopped = step.after.task(old.id).is_some_and(|t| t.desired >= TaskState::Shutdown);
        ensure(!stopped || has_reason(step, old), || {
            format!("{} was stopped for no reason: {old:?}", old.id)
        })?;
    }
    Ok(())
}

fn has_reason(step: &Step<'_>, task: &Task) -> bool {
    let Some(job) = step.before.job(task.job) else { return true };
    let recent = |at: Option<&u64>| at.is_some_and(|at| at.saturating_add(PLAN_AGE_MS) >= step.now_ms);
    let node_lost = task.node.is_none_or(|node| recent(step.journal.last_down.get(&node)));
    !job.status.wants_tasks()
        || !job.is_current(task.version)
        || node_lost
        || recent(step.journal.last_edit.get(&job.id))
        || is_surplus(step.before, job, task)
}

fn is_surplus(state: &State, job: &Job, task: &Task) -> bool {
    let Some(spec) = job.spec() else { return true };
    match spec.kind {
        JobKind::Service { replicas } => {
            let open = state.tasks_of(job.id).filter(|t| t.desired < TaskState::Remove).map(|t| t.slot);
            let open: std::collections::BTreeSet<_> = open.collect();
            open.len() > replicas as usize
        }
        JobKind::Batch { completions, parallelism } => {
            let wanted = parallelism.min(completions.saturating_sub(job.succeeded)) as usize;
            let live = state.tasks_of(job.id).filter(|t| t.is_live()).count();
            live >= wanted || task.slot.0 >= spec.kind.width()
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, NodeId, TaskId};

    use super::*;
    use crate::invariants::bad::{Case, service};

    fn stop() -> Command {
        Command::SetDesired { desired: TaskState::Shutdown, tasks: vec![TaskId(0)] }
    }

    #[test]
    fn trips_on_an_order_without_a_reason() {
        let mut case = Case::running();
        case.now_ms = 60_000;
        assert!(case.step(stop(), INVARIANT.step, |_| {}).unwrap_err().contains("t0 was stopped"));
        let mut lost = Case::running();
        lost.journal.last_down.insert(NodeId(0), lost.now_ms - 100);
        assert_eq!(lost.step(stop(), INVARIANT.step, |_| {}), Ok(()));
        let mut edited = Case::running();
        edited.journal.last_edit.insert(JobId(0), edited.now_ms - PLAN_AGE_MS - 1);
        assert!(edited.step(stop(), INVARIANT.step, |_| {}).is_err(), "that was long ago");
        let mut surplus = Case::running();
        surplus.lab.job(service(0)).unwrap();
        assert_eq!(surplus.step(stop(), INVARIANT.step, |_| {}), Ok(()));
    }

    #[test]
    fn trips_on_a_container_killed_in_error() {
        let mut case = Case::running();
        let state = case.lab.state.clone();
        case.journal.killed(&state, &"n1".parse().unwrap(), TaskId(0));
        assert_eq!(case.scene(INVARIANT.always), Ok(()), "it belongs to another node");
        case.journal.killed(&state, &"n0".parse().unwrap(), TaskId(0));
        assert!(case.scene(INVARIANT.always).unwrap_err().contains("n0 killed t0"));
    }
}
