//! Exact-once: answered requests are remembered, within bounds.

use std::{sync::Arc, time::Duration};

use quorate_base::id::RequestId;
use quorate_model::{Revision, Term};
use quorate_state::{Actor, Applied, Command, Envelope, Rejection, Request, lab::Lab, request};

use crate::{service, truth};

fn ask(lab: &mut Lab, user: &str, id: &str, fingerprint: u64, replicas: u32) -> Applied {
    let envelope = Envelope {
        proposed_at: lab.now,
        fence: None,
        actor: Actor::User(Arc::from(user)),
        request: Some(Request { id: RequestId::new(id).unwrap(), fingerprint }),
        trace: None,
        command: Command::ApplyJob { spec: Arc::new(service(replicas)), expect: None },
    };
    lab.push(&envelope)
}

#[test]
fn a_retry_gets_the_first_answer_and_changes_nothing() {
    let mut lab = Lab::new();
    let first = ask(&mut lab, "ann", "r1", 1, 1);
    ask(&mut lab, "ann", "r2", 2, 5);
    let before = truth::records(&lab.state);
    // Also from another leader, and after a restart from the image.
    lab.at.term = Term(9);
    lab.state = truth::rebuilt(&lab.state);
    let retry = ask(&mut lab, "ann", "r1", 1, 1);
    assert_eq!((retry.outcome, retry.revision, retry.replayed), (first.outcome, Revision(1), true));
    assert!(retry.events.is_empty());
    assert_eq!(truth::records(&lab.state), before);
}

#[test]
fn an_id_is_the_caller_s_own_and_bound_to_its_body() {
    let mut lab = Lab::new();
    ask(&mut lab, "ann", "r1", 1, 1);
    assert!(!ask(&mut lab, "bob", "r1", 1, 2).replayed, "another caller's id is another id");
    let reused = ask(&mut lab, "ann", "r1", 99, 3);
    assert!(matches!(reused.outcome, Err(Rejection::RequestReused { .. })));
}

#[test]
fn a_refusal_is_an_answer_that_a_late_first_try_cannot_undo() {
    let mut lab = Lab::new();
    let user = |lab: &mut Lab, expect| {
        lab.push(&Envelope {
            proposed_at: lab.now,
            fence: None,
            actor: Actor::User(Arc::from("ann")),
            request: Some(Request { id: RequestId::new("r1").unwrap(), fingerprint: 1 }),
            trace: None,
            command: Command::ApplyJob { spec: Arc::new(service(1)), expect },
        })
    };
    let refused = user(&mut lab, Some(Revision(7)));
    assert!(matches!(refused.outcome, Err(Rejection::EtagMismatch { .. })));
    // What was refused at first would be accepted by now, in another term and after a restart from the image.
    lab.job(service(1)).unwrap();
    lab.at.term = Term(9);
    lab.state = truth::rebuilt(&lab.state);
    let before = truth::records(&lab.state);
    let late = user(&mut lab, None);
    assert_eq!((late.outcome, late.revision, late.replayed), (refused.outcome, Revision(1), true));
    assert_eq!(truth::records(&lab.state), before);
}

#[test]
fn a_plan_s_refusal_and_a_reused_id_are_not_remembered() {
    let mut lab = Lab::new();
    let envelope = Envelope {
        proposed_at: lab.now,
        fence: Some(Term(7)),
        actor: Actor::User(Arc::from("ann")),
        request: Some(Request { id: RequestId::new("r1").unwrap(), fingerprint: 1 }),
        trace: None,
        command: Command::ApplyJob { spec: Arc::new(service(1)), expect: None },
    };
    assert!(matches!(lab.push(&envelope).outcome, Err(Rejection::StaleFence { .. })));
    assert_eq!(lab.state.request_count(), 0);
    let first = ask(&mut lab, "ann", "r1", 1, 1);
    assert!(matches!(ask(&mut lab, "ann", "r1", 2, 1).outcome, Err(Rejection::RequestReused { .. })));
    assert_eq!(ask(&mut lab, "ann", "r1", 1, 1).outcome, first.outcome, "the first answer stays");
}

#[test]
fn memory_of_requests_is_bounded_by_age() {
    let mut lab = Lab::new();
    for round in 0..50 {
        ask(&mut lab, "ann", &format!("r{round}"), round, 1);
        lab.pass(Duration::from_secs(360));
    }
    assert!(lab.state.request_count() <= 12, "{} remembered", lab.state.request_count());
    assert!(ask(&mut lab, "ann", "r45", 45, 1).replayed);
    assert!(!ask(&mut lab, "ann", "r1", 1, 1).replayed);
}

#[test]
fn memory_of_requests_is_bounded_by_count() {
    let mut lab = Lab::new();
    let extra = 10;
    for round in 0..request::MAX_COUNT + extra {
        ask(&mut lab, "ann", &format!("r{round}"), 1, 1);
    }
    assert_eq!(lab.state.request_count(), request::MAX_COUNT);
    assert!(!ask(&mut lab, "ann", "r0", 1, 1).replayed, "the oldest goes first");
    assert!(ask(&mut lab, "ann", &format!("r{}", extra + 1), 1, 1).replayed);
}
