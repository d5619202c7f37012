//! A task runs on one machine only, and on the one it was given.

use std::collections::BTreeMap;

use quorate_model::TaskState;

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    always: Some(check),
    at_rest: Some(check),
    ..Invariant::new("a task runs on one node", "O3: a task instance runs on at most one node")
};

fn check(scene: &Scene<'_>) -> Verdict {
    let mut seen = BTreeMap::new();
    for agent in scene.agents {
        for (task, _) in agent.containers.iter().filter(|(_, c)| c.phase == TaskState::Running) {
            let other = seen.insert(*task, &agent.name);
            ensure(other.is_none(), || format!("{task} runs on {other:?} and {}", agent.name))?;
            let home = scene.state.task(*task).and_then(|t| t.node).and_then(|node| scene.state.node(node));
            ensure(home.is_none_or(|node| node.name == agent.name), || {
                format!("{task} belongs to {home:?} and runs on {}", agent.name)
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::TaskId;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_two_copies_and_on_a_foreign_one() {
        let mut case = Case::running();
        assert_eq!(case.scene(INVARIANT.always), Ok(()));
        case.contain(TaskId(0), 1);
        assert!(case.scene(INVARIANT.always).unwrap_err().contains("t0 runs on"));
        case.agents[0].containers.clear();
        assert!(case.scene(INVARIANT.always).unwrap_err().contains("t0 belongs to"));
    }
}
