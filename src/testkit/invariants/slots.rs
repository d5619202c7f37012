//! One slot, one task: never two that are wanted, never two that run unless one's node was given up.

use std::collections::BTreeMap;

use quorate_model::TaskState;

use super::{Invariant, Scene, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(one_wanted),
    always: Some(one_running),
    at_rest: Some(one_running),
    ..Invariant::new("a slot has one task", "features 4.2 and 4.6: one task per slot; stop first, then start")
};

fn one_wanted(step: &Step<'_>) -> Verdict {
    let mut seen = BTreeMap::new();
    for task in step.after.tasks().filter(|t| t.is_live()) {
        let other = seen.insert((task.job, task.slot), task.id);
        ensure(other.is_none(), || {
            format!("slot {} of job {} has {other:?} and {}", task.slot, task.job, task.id)
        })?;
    }
    Ok(())
}

fn one_running(scene: &Scene<'_>) -> Verdict {
    let mut seen = BTreeMap::new();
    let running =
        scene.agents.iter().flat_map(|a| a.containers.iter().map(move |(task, c)| (&a.name, task, c)));
    for (agent, task, container) in running.filter(|(_, _, c)| c.phase == TaskState::Running && !c.forsaken) {
        let other = seen.insert((container.job, container.slot), (task, agent));
        ensure(other.is_none(), || {
            format!(
                "slot {} of job {} runs as {other:?} and as {task} on {agent}",
                container.slot, container.job
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, NodeId, Slot, TaskId};
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::{Case, with_task};

    #[test]
    fn trips_on_two_wanted_and_on_two_running() {
        let mut case = Case::running();
        case.create(JobId(0), 1, 1);
        case.start(TaskId(1), NodeId(1));
        assert_eq!(case.scene(INVARIANT.always), Ok(()));
        let none = || Command::AssignTasks { placements: vec![] };
        assert_eq!(case.step(none(), INVARIANT.step, |_| {}), Ok(()));
        let wanted = case.step(none(), INVARIANT.step, |bent| {
            bent.after.state = with_task(&bent.after.state, TaskId(1), |t| t.slot = Slot(0));
        });
        assert!(wanted.unwrap_err().contains("slot 0 of job 0 has"));
        case.agents[1].containers.values_mut().for_each(|c| c.slot = Slot(0));
        assert!(case.scene(INVARIANT.always).unwrap_err().contains("slot 0 of job 0 runs as"));
        case.agents[0].containers.values_mut().for_each(|c| c.forsaken = true);
        assert_eq!(case.scene(INVARIANT.always), Ok(()), "its node was lost in between");
    }
}
