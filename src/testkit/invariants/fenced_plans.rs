//! What was planned in one term changes nothing in another.

use quorate_state::Rejection;

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("plans are fenced by their term", "O2: only the leader of the current term decides")
};

fn check(step: &Step<'_>) -> Verdict {
    let foreign = step.envelope.fence.is_some_and(|fence| fence != step.at.term);
    let refused =
        matches!(step.applied.outcome, Err(Rejection::StaleFence { .. })) && step.applied.events.is_empty();
    ensure(!foreign || refused, || {
        format!("planned in {:?}, applied in {:?}: {:?}", step.envelope.fence, step.at, step.applied.outcome)
    })
}

#[cfg(test)]
mod tests {
    use quorate_model::Term;
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::{Case, service};

    #[test]
    fn trips_on_an_effect_of_another_term() {
        let command = Command::ApplyJob { spec: service(1).into(), expect: None };
        let verdict = Case::new().step(command.clone(), INVARIANT.step, |bent| bent.after.at.term = Term(2));
        assert!(verdict.unwrap_err().contains("planned in"));
        let mut case = Case::new();
        case.lab.at.term = Term(2);
        assert_eq!(case.step(command, INVARIANT.step, |_| {}), Ok(()));
    }
}
