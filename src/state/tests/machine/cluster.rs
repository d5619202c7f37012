//! Commands on managers and the cluster.

use std::time::Duration;

use quorate_base::{id::ClusterId, time::Timestamp};
use quorate_model::{ClusterVersion, Epoch, Manager, RaftId, Revision, Settings, Term};
use quorate_state::{Actor, Command, Envelope, Rejection, lab::Lab};

use crate::{name, refusal, service, truth};

fn manager(id: u64, host: &str) -> Manager {
    Manager {
        id: RaftId(id),
        name: name(host),
        api_addr: format!("{host}:7700"),
        agent_addr: format!("{host}:7701"),
        raft_addr: format!("{host}:7702"),
        binary_version: "0.1.0".to_owned(),
        can_follow: ClusterVersion::V1,
        changed: Revision(0),
    }
}

#[test]
fn a_cluster_is_named_once() {
    let mut lab = Lab::new();
    let init = |bits| Command::InitCluster { cluster: ClusterId::from_u128(bits), epoch: Epoch(1) };
    lab.done(init(1)).unwrap();
    lab.done(init(1)).unwrap();
    assert_eq!(refusal(&mut lab, init(2)), Rejection::AlreadyInitialised);
    assert_eq!((lab.state.cluster(), lab.state.epoch()), (Some(ClusterId::from_u128(1)), Epoch(1)));
}

#[test]
fn managers_are_added_changed_and_removed() {
    let mut lab = Lab::new();
    let upsert = |manager| Command::UpsertManager { manager };
    assert_eq!(lab.apply(upsert(manager(7, "m1"))).events.len(), 1);
    assert_eq!(lab.apply(upsert(manager(7, "m1"))).events.len(), 0, "the same again is no change");
    assert_eq!(lab.apply(upsert(manager(7, "m1b"))).events.len(), 1);
    assert_eq!(lab.state.manager_named("m1b").map(|m| m.changed), Some(Revision(3)));
    lab.done(Command::RemoveManager { id: RaftId(7) }).unwrap();
    assert!(matches!(
        refusal(&mut lab, Command::RemoveManager { id: RaftId(7) }),
        Rejection::Gone { what: "manager", id: 7 }
    ));
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut lab = Lab::new();
    let bad = Settings { node_lease: Duration::from_millis(1), task_history: 1000, ..Settings::default() };
    let refused = refusal(&mut lab, Command::UpdateSettings { settings: bad }).to_string();
    assert!(refused.contains("nodeLease") && refused.contains("taskHistory"), "{refused}");
    let settings = Settings { task_history: 1, ..Settings::default() };
    assert_eq!(lab.apply(Command::UpdateSettings { settings: settings.clone() }).events.len(), 1);
    assert_eq!(lab.apply(Command::UpdateSettings { settings }).events.len(), 0);
}

#[test]
fn a_plan_of_another_term_is_refused_whichever_is_newer() {
    let mut lab = Lab::new();
    lab.at.term = Term(5);
    for planned in [4, 6] {
        let before = truth::records(&lab.state);
        let spec = std::sync::Arc::new(service(1));
        let refused = lab.push(&Envelope {
            proposed_at: lab.now,
            fence: Some(Term(planned)),
            actor: Actor::Manager(name("m1")),
            request: None,
            trace: None,
            command: Command::ApplyJob { spec, expect: None },
        });
        assert_eq!(refused.outcome, Err(Rejection::StaleFence { planned: Term(planned), term: Term(5) }));
        assert_eq!(truth::records(&lab.state), before);
    }
    assert_eq!(lab.state.applied(), lab.at, "the position moves all the same");
}

#[test]
fn replicated_time_never_goes_back() {
    let mut lab = Lab::new();
    lab.job(service(1)).unwrap();
    let before = lab.state.now();
    lab.now = Timestamp::from_millis(5);
    lab.job(service(2)).unwrap();
    assert_eq!(lab.state.now(), before);
}
