//! Replicated time and the log position never go back, whatever the leaders' clocks show.

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("replicated time never goes back", "architecture 5: replicated time never goes back")
};

fn check(step: &Step<'_>) -> Verdict {
    let (old, new) = (step.before, step.after);
    ensure(new.now() >= old.now(), || format!("from {} to {}", old.now(), new.now()))?;
    ensure(new.applied() > old.applied(), || format!("from {:?} to {:?}", old.applied(), new.applied()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_model::RaftId;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_clock_and_on_a_log_that_go_back() {
        let any = || Command::RemoveManager { id: RaftId(1) };
        assert_eq!(Case::new().step(any(), INVARIANT.step, |_| {}), Ok(()));
        let stuck = Case::new().step(any(), INVARIANT.step, |bent| bent.after = bent.before.clone());
        assert!(stuck.unwrap_err().contains("Position"));
        let mut case = Case::new();
        case.lab.pass(Duration::from_secs(1));
        let back = case.step(any(), INVARIANT.step, |bent| std::mem::swap(&mut bent.before, &mut bent.after));
        assert!(back.unwrap_err().contains('Z'));
    }
}
