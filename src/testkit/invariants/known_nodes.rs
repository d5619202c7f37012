//! An undisturbed leader plans with nodes that are ready: what it knows to be down gets nothing.

use quorate_state::Command;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new(
        "nothing is planned for nodes that are down",
        "architecture 4: plans are made on the newest snapshot",
    )
};

/// The longest that an undisturbed leader's plan is on its way, in milliseconds.
const PLAN_AGE_MS: u64 = 100;

fn check(step: &Step<'_>) -> Verdict {
    let Command::AssignTasks { placements } = &step.envelope.command else { return Ok(()) };
    let old = |since: u64| since + PLAN_AGE_MS < step.now_ms;
    if step.envelope.fence != Some(step.at.term) || !step.journal.calm_since.is_some_and(old) {
        return Ok(());
    }
    for (task, node) in placements {
        let down = step.journal.down_since.get(node).copied();
        ensure(!down.is_some_and(old), || {
            format!("{task} is planned for node {node}, which is down since {down:?} ms")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{NodeId, TaskId};

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_placement_on_a_node_known_to_be_down() {
        let verdict = |down_since, calm_since| {
            let mut case = Case::running();
            case.journal.down_since.insert(NodeId(1), down_since);
            case.journal.calm_since = calm_since;
            let placements = vec![(TaskId(0), NodeId(1))];
            case.step(Command::AssignTasks { placements }, INVARIANT.step, |_| {})
        };
        assert!(verdict(50_000, Some(50_000)).unwrap_err().contains("planned for node 1"));
        assert_eq!(verdict(59_950, Some(50_000)), Ok(()), "it went down while the plan was on its way");
        assert_eq!(verdict(50_000, None), Ok(()), "nobody leads");
    }
}
