//! A task only moves forward, stays where it was placed, and never lives again.

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("task states only grow", "O4: per task the state only moves forward, no resurrection")
};

fn check(step: &Step<'_>) -> Verdict {
    for old in step.before.tasks() {
        let Some(new) = step.after.task(old.id) else {
            ensure(old.status.state.is_terminal(), || {
                format!("{} vanished while it was {}", old.id, old.status.state)
            })?;
            continue;
        };
        let forward = new.status.state >= old.status.state && new.desired >= old.desired;
        let ended = !old.status.state.is_terminal() || new.status.state == old.status.state;
        let fixed = (old.node.is_none() || old.node == new.node)
            && (old.job, old.version, old.slot, old.attempt) == (new.job, new.version, new.slot, new.attempt);
        ensure(forward && ended && fixed, || format!("{old:?} became {new:?}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{TaskId, TaskState};
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_step_back_and_on_a_vanished_task() {
        let stop = || Command::SetDesired { desired: TaskState::Shutdown, tasks: vec![TaskId(0)] };
        assert_eq!(Case::running().step(stop(), INVARIANT.step, |_| {}), Ok(()));
        let back = Case::running().step(stop(), INVARIANT.step, |bent| {
            std::mem::swap(&mut bent.before, &mut bent.after);
        });
        assert!(back.unwrap_err().contains("became"));
        let vanished = Case::running().step(stop(), INVARIANT.step, |bent| bent.after = Case::new().lab);
        assert!(vanished.unwrap_err().contains("vanished while it was running"));
    }
}
