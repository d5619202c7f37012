//! A cluster at rest writes no plan to the log: nothing flaps, nothing is said twice.

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("the log is quiet at rest", "architecture 4: a pass over a settled state gives nothing")
};

/// How long nothing must have been planned, in milliseconds.
const QUIET_MS: u64 = 20_000;

fn check(scene: &Scene<'_>) -> Verdict {
    let ago = scene.now_ms.saturating_sub(scene.journal.last_plan);
    ensure(ago >= QUIET_MS, || format!("a plan was applied {ago} ms ago"))
}

#[cfg(test)]
mod tests {
    use quorate_model::JobId;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_plan_at_rest() {
        let mut case = Case::new();
        assert_eq!(case.scene(INVARIANT.at_rest), Ok(()));
        let any = |step: &crate::invariants::Step<'_>| ensure(step.applied.outcome.is_err(), String::new);
        case.step(Command::ForgetJob { job: JobId(7) }, Some(any), |_| {}).unwrap();
        assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains("0 ms ago"));
    }
}
