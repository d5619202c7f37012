//! Tasks count as gone only after their node was lost for the whole time that the settings give it.

use std::time::Duration;

use quorate_state::{Command, Receipt};

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new(
        "lost nodes get their time to come back",
        "features 4.3: tasks become orphans when their node was down for the configured time",
    )
};

/// Clocks of two leaders differ by up to four seconds.
const SKEW: Duration = Duration::from_secs(4);

fn check(step: &Step<'_>) -> Verdict {
    let (Command::OrphanTasks { tasks }, Ok(Receipt::Changed { refused, .. })) =
        (&step.envelope.command, &step.applied.outcome)
    else {
        return Ok(());
    };
    let least = step.before.settings().orphan_after.saturating_sub(SKEW);
    for task in tasks.iter().filter(|id| !refused.contains(id)).filter_map(|id| step.before.task(*id)) {
        let since = task.node.and_then(|node| step.journal.down_since.get(&node)).copied();
        let lost = since.map(|since| Duration::from_millis(step.now_ms.saturating_sub(since)));
        ensure(lost >= Some(least), || format!("{} counts as gone after {lost:?}: {task:?}", task.id))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{NodeId, NodeStatus, TaskId};

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_task_given_up_too_soon() {
        let lost_for = |ms| {
            let mut case = Case::running();
            let (node, status) = (NodeId(0), NodeStatus::Down);
            case.lab.done(Command::SetNodeStatus { node, status, reason: "x".into() }).unwrap();
            case.now_ms = 100_000_000;
            case.journal.down_since.insert(node, case.now_ms - ms);
            case.step(Command::OrphanTasks { tasks: vec![TaskId(0)] }, INVARIANT.step, |_| {})
        };
        assert_eq!(lost_for(24 * 3_600_000), Ok(()));
        assert!(lost_for(60_000).unwrap_err().contains("t0 counts as gone after Some(60s)"));
    }
}
