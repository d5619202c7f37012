//! A healthy machine is ready, and nothing wanted stays on one that is lost.

use quorate_model::NodeStatus;

use super::{Invariant, Scene, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(left_in_time),
    at_rest: Some(check),
    ..Invariant::new(
        "lost nodes are left and healthy ones used",
        "O6: tasks of an unreachable node are placed anew",
    )
};

/// Time that an undisturbed leader has to stop the tasks of a lost node, in milliseconds: a few passes.
const SOON_MS: u64 = 500;

fn left_in_time(step: &Step<'_>) -> Verdict {
    let due = |since: u64| since + SOON_MS < step.now_ms;
    if !step.journal.calm_since.is_some_and(due) {
        return Ok(());
    }
    for (node, _) in step.journal.down_since.iter().filter(|(_, since)| due(**since)) {
        let left = step.after.tasks_on(*node).find(|t| t.is_live());
        ensure(left.is_none(), || format!("node {node} is lost and still has {left:?}"))?;
    }
    Ok(())
}

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

    #[test]
    fn trips_when_a_calm_leader_leaves_a_task_behind() {
        let verdict = |down_since, calm_since| {
            let mut case = Case::running();
            case.journal.down_since.insert(NodeId(0), down_since);
            case.journal.calm_since = calm_since;
            case.step(Command::RemoveTasks { tasks: vec![] }, INVARIANT.step, |_| {})
        };
        assert!(verdict(50_000, Some(50_000)).unwrap_err().contains("node 0 is lost"));
        assert_eq!(verdict(59_800, Some(50_000)), Ok(()), "it has only just been lost");
        assert_eq!(verdict(50_000, Some(59_800)), Ok(()), "the leader is new");
        assert_eq!(verdict(50_000, None), Ok(()), "nobody leads");
    }
}
