//! At rest what runs is what the state says, on both sides, and nothing else is paid for.

use quorate_model::TaskState;

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("no orphans and no leaks at rest", "O7: no orphan container, no leaked reservation")
};

fn check(scene: &Scene<'_>) -> Verdict {
    for agent in scene.agents {
        let node = scene.state.node_named(&agent.name).map(|n| n.id);
        for task in agent.containers.iter().filter(|(_, c)| c.phase == TaskState::Running).map(|(id, _)| *id)
        {
            let record = scene.state.task(task);
            let wanted = record.is_some_and(|t| t.is_live() && t.node.is_some() && t.node == node);
            ensure(wanted, || format!("{} runs {task}, but the state has {record:?}", agent.name))?;
        }
    }
    for task in scene.state.tasks().filter(|t| t.holds_resources()) {
        ensure(task.is_live(), || format!("{} is not wanted, yet it holds resources: {task:?}", task.id))?;
        let home = task.node.and_then(|id| scene.state.node(id));
        let agent = scene.agents.iter().find(|a| home.is_some_and(|node| node.name == a.name));
        let phase = agent.and_then(|a| a.containers.get(&task.id)).map(|c| c.phase);
        ensure(phase == Some(task.status.state), || {
            format!("{} is {} in the state and {phase:?} on its node", task.id, task.status.state)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::TaskId;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_an_orphan_a_ghost_and_a_leak() {
        let mut orphan = Case::running();
        assert_eq!(orphan.scene(INVARIANT.at_rest), Ok(()));
        orphan.contain(TaskId(7), 1);
        assert!(orphan.scene(INVARIANT.at_rest).unwrap_err().contains("n1 runs t7"));
        let mut ghost = Case::running();
        ghost.agents[0].containers.clear();
        assert!(ghost.scene(INVARIANT.at_rest).unwrap_err().contains("None on its node"));
        let mut leak = Case::running();
        leak.agents[0].containers.clear();
        leak.lab.done(Command::SetDesired { desired: TaskState::Shutdown, tasks: vec![TaskId(0)] }).unwrap();
        assert!(leak.scene(INVARIANT.at_rest).unwrap_err().contains("holds resources"));
    }
}
