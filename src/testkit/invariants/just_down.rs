//! A node is marked down only when its agent could not be heard: elections, however many, take nothing from it.

use quorate_model::NodeStatus;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new(
        "only unheard nodes are marked down",
        "R3 and P12: a new leader gives every node a whole lease before it counts anything as lost",
    )
};

/// A judgement made while the node was down may be applied just after it came back.
const CROSSING_MS: u64 = 100;

/// A lease, and the time a plan takes to be applied. A healthy agent finds a new leader within its lease.
const MOST_MS: u64 = 5_500;

fn check(step: &Step<'_>) -> Verdict {
    for node in step.after.nodes().filter(|n| n.status == NodeStatus::Down) {
        let was_ready = step.before.node(node.id).is_some_and(|n| n.status == NodeStatus::Ready);
        let Some(agent) = step.agents.iter().find(|a| a.name == node.name) else { continue };
        let healthy_for = step.now_ms.saturating_sub(agent.healthy_since);
        // A machine with an emptied disk must wait until its older self is given up.
        let came_back = step.journal.came_back.get(&node.id).copied().unwrap_or(0);
        let crossed = came_back > 0 && came_back + CROSSING_MS >= step.now_ms;
        let wronged = was_ready
            && !crossed
            && agent.healthy()
            && agent.identity() == node.agent
            && healthy_for > MOST_MS;
        ensure(!wronged, || {
            format!("{} is marked down though its agent is healthy for {healthy_for} ms", node.name)
        })?;
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
    fn trips_when_a_healthy_agent_is_given_up() {
        let down =
            || Command::SetNodeStatus { node: NodeId(1), status: NodeStatus::Down, reason: "x".into() };
        let verdict = |bend: &dyn Fn(&mut Case)| {
            let mut case = Case::new();
            bend(&mut case);
            case.step(down(), INVARIANT.step, |_| {})
        };
        assert!(verdict(&|_| {}).unwrap_err().contains("n1 is marked down"));
        let back = |at| move |case: &mut Case| _ = case.journal.came_back.insert(NodeId(1), at);
        assert!(verdict(&back(59_000)).is_err(), "that is long ago");
        assert_eq!(verdict(&back(59_950)), Ok(()));
        assert_eq!(verdict(&|case| case.agents[1].up = false), Ok(()));
        assert_eq!(verdict(&|case| case.agents[1].linked = false), Ok(()));
        assert_eq!(verdict(&|case| case.agents[1].healthy_since = 55_000), Ok(()));
        assert_eq!(verdict(&|case| case.agents[1].disk = 2), Ok(()));
    }
}
