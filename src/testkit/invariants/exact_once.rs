//! A request takes effect once, however often it is sent and whoever leads.

use super::{Invariant, Step, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(check),
    ..Invariant::new("requests take effect once", "C3: a retried submit makes one job")
};

fn check(step: &Step<'_>) -> Verdict {
    let Some(request) = &step.envelope.request else { return Ok(()) };
    let times = step.journal.effects.get(&request.id).copied().unwrap_or(0);
    ensure(times <= 1, || format!("request {} took effect {times} times", request.id))
}

#[cfg(test)]
mod tests {
    use quorate_base::id::RequestId;
    use quorate_model::RaftId;
    use quorate_state::{Command, Request};

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_a_second_effect() {
        let id = RequestId::new("r1").unwrap();
        for (times, holds) in [(1, true), (2, false)] {
            let mut case = Case::new();
            case.journal.effects.insert(id.clone(), times);
            let verdict = case.step(Command::RemoveManager { id: RaftId(1) }, INVARIANT.step, |bent| {
                bent.envelope.request = Some(Request { id: id.clone(), fingerprint: 1 });
            });
            assert_eq!(verdict.is_ok(), holds, "{verdict:?}");
        }
    }
}
