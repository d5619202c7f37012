//! A healthy machine is ready, and nothing wanted stays on one that is lost.

use quorate_model::NodeStatus;

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new(
        "lost nodes are left and healthy ones used",
        "O6: tasks of an unreachable node are placed anew",
    )
};

fn check(scene: &Scene<'_>) -> Verdict {
    for node in scene.state.nodes() {
        let healthy = scene.agents.iter().any(|a| a.name == node.name && a.healthy());
        let down = node.status == NodeStatus::Down;
        ensure(healthy != down, || {
            format!("{} is {} with a healthy agent: {healthy}", node.name, node.status.as_str())
        })?;
        let left = scene.state.tasks_on(node.id).find(|t| t.is_live());
        ensure(!down || left.is_none(), || format!("{} is down and still has {left:?}", node.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::NodeId;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_wrong_status_and_on_a_task_left_behind() {
        let mut case = Case::running();
        assert_eq!(case.scene(INVARIANT.at_rest), Ok(()));
        case.agents[0].up = false;
        assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains("n0 is ready"));
        let down = Command::SetNodeStatus { node: NodeId(0), status: NodeStatus::Down, reason: "x".into() };
        case.lab.done(down).unwrap();
        assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains("still has"));
        case.agents[0].up = true;
        assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains("n0 is down"));
    }
}
