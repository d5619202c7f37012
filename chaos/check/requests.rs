//! Calls under one request id are tries of one write, whoever was asked: one effect, and the first answer for each.

use std::collections::BTreeMap;

use crate::check::{Rule, Violation};
use crate::history::{Call, Op};

/// Errors that prove that a try met the effect of another one instead of its answer. Each name is written to by the
/// tries of one request alone.
const MET_ITSELF: [(Op, &str); 2] = [(Op::Create, "ETAG_MISMATCH"), (Op::Delete, "JOB_NOT_FOUND")];
/// Nobody sends another body under an id.
const REUSED: &str = "REQUEST_ID_REUSED";

/// One call for each request, with what is known of it after all tries, in the order in which they began.
///
/// The write was done after the first try began, and before the first acknowledgement came.
pub fn merged(calls: &[Call]) -> Vec<Call> {
    let mut requests: BTreeMap<&str, Call> = BTreeMap::new();
    for call in calls {
        let one = requests.entry(&call.request_id).or_insert_with(|| call.clone());
        one.invoke = one.invoke.min(call.invoke);
        if let (Some(_), Some(_)) = (one.revision, call.revision) {
            one.returned = one.returned.min(call.returned);
        } else if call.revision.is_some() {
            (one.returned, one.revision, one.manager) = (call.returned, call.revision, call.manager.clone());
            one.error = None;
        } else if one.revision.is_none() {
            one.returned = one.returned.max(call.returned);
        }
        one.outcome = one.outcome.with(call.outcome);
    }
    let mut merged: Vec<Call> = requests.into_values().collect();
    merged.sort_by_key(|call| call.invoke);
    merged
}

/// How many calls were further tries of a request that somebody had sent already.
pub fn repeats(calls: &[Call]) -> usize {
    calls.len() - merged(calls).len()
}

/// Every acknowledged try of a request has the revision of the first one, and none met its own effect.
pub fn check(calls: &[Call]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut answers: BTreeMap<&str, (&Call, u64)> = BTreeMap::new();
    for call in calls {
        found.extend(met_itself(call));
        let Some(revision) = call.revision else { continue };
        let (first, expected) = *answers.entry(&call.request_id).or_insert((call, revision));
        if revision != expected {
            let detail = format!(
                "request {} (job {}) was answered with revision {expected} by {}, and with {revision} by {}",
                call.request_id,
                call.key,
                named(first),
                named(call)
            );
            found.push(Violation { rule: Rule::SameAnswer, detail });
        }
    }
    found
}

fn met_itself(call: &Call) -> Option<Violation> {
    let error = call.error.as_deref()?;
    let is = |reason: &str| error.strip_prefix(reason).is_some_and(|rest| rest.starts_with(':'));
    let met = is(REUSED) || MET_ITSELF.iter().any(|(op, reason)| *op == call.op && is(reason));
    met.then(|| {
        let detail = format!(
            "job {} conflicts with an earlier try of its own request {}: {error}",
            call.key, call.request_id
        );
        Violation { rule: Rule::DoneOnce, detail }
    })
}

fn named(call: &Call) -> &str {
    call.manager.as_deref().unwrap_or("nobody")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Outcome;

    fn call(request: &str, outcome: Outcome, revision: Option<u64>, span: (u64, u64)) -> Call {
        Call {
            id: 0,
            client: "w1".to_owned(),
            op: Op::Create,
            key: format!("job-{request}"),
            request_id: request.to_owned(),
            invoke: span.0,
            returned: span.1,
            outcome,
            revision,
            manager: Some("m1".to_owned()),
            error: None,
        }
    }

    fn rules(calls: &[Call]) -> Vec<Rule> {
        check(calls).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn tries_become_one_call_that_spans_from_the_first_begin_to_the_first_acknowledgement() {
        let calls = [
            call("b", Outcome::Unknown, None, (20, 90)),
            call("a", Outcome::Unknown, None, (10, 50)),
            call("a", Outcome::Ok, Some(7), (12, 40)),
            call("a", Outcome::Ok, Some(7), (11, 30)),
            call("b", Outcome::Fail, None, (5, 95)),
        ];
        let merged = merged(&calls);
        let told: Vec<_> = merged
            .iter()
            .map(|call| (call.request_id.as_str(), call.invoke, call.returned, call.outcome, call.revision))
            .collect();
        assert_eq!(told, [("b", 5, 95, Outcome::Unknown, None), ("a", 10, 30, Outcome::Ok, Some(7))]);
        assert_eq!(repeats(&calls), 3);
        assert_eq!(rules(&calls), []);
    }

    #[test]
    fn another_answer_to_a_further_try_is_found() {
        let calls = [
            call("a", Outcome::Ok, Some(7), (0, 1)),
            call("b", Outcome::Ok, Some(8), (0, 2)),
            call("a", Outcome::Ok, Some(9), (2, 3)),
        ];
        assert_eq!(rules(&calls), [Rule::SameAnswer]);
    }

    #[test]
    fn a_try_that_meets_its_own_effect_is_found() {
        let refused = |op, error: &str| Call {
            op,
            error: Some(error.to_owned()),
            ..call("a", Outcome::Fail, None, (0, 1))
        };
        let itself = [
            refused(Op::Create, "ETAG_MISMATCH: there is one"),
            refused(Op::Delete, "JOB_NOT_FOUND: there is none"),
            refused(Op::Create, "REQUEST_ID_REUSED: for another body"),
        ];
        assert_eq!(rules(&itself), [Rule::DoneOnce; 3]);
        assert_eq!(rules(&[refused(Op::Create, "NO_LEADER: an election runs")]), []);
    }
}
