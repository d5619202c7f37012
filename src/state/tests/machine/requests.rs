//! Exact-once: answered requests are remembered, within bounds.

use std::{sync::Arc, time::Duration};

use quorate_base::id::RequestId;
use quorate_model::{Revision, Term};
use quorate_state::{Actor, Applied, Command, Envelope, Receipt, Rejection, Request, lab::Lab, request};

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
fn a_refused_request_is_not_remembered() {
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
    user(&mut lab, Some(Revision(7))).outcome.unwrap_err();
    assert_eq!(lab.state.request_count(), 0);
    assert!(matches!(user(&mut lab, None).outcome, Ok(Receipt::Job { created: true, .. })));
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
