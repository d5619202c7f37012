//! Screens of healthy, fragile and broken clusters.

use super::*;
use quorate_client::Try;
use quorate_wire::api::RaftStatus;
use quorate_wire::common::duration;

fn managers() -> Vec<Manager> {
    (1..=3)
        .map(|n| Manager {
            name: format!("m{n}"),
            api_address: format!("127.0.0.1:742{n}"),
            binary_version: "0.1.0".into(),
            role: ManagerRole::Voter.into(),
            ..Manager::default()
        })
        .collect()
}

fn answer(n: u64, leader: &str, term: u64, applied: u64) -> ManagerAnswer {
    let leads = leader == format!("m{n}");
    let state = if leads { ManagerState::Leader } else { ManagerState::Follower };
    let meta = ResponseMeta {
        cluster_id: "01JD0".into(),
        manager: format!("m{n}"),
        leader: leader.into(),
        term,
        applied_revision: applied,
        last_contact: Some(duration(Duration::from_millis(38))),
        ..ResponseMeta::default()
    };
    let raft = RaftStatus {
        state: state.into(),
        term,
        last_flush: Some(duration(Duration::from_micros(2_100))),
        store_bytes: 84 << 20,
        ..RaftStatus::default()
    };
    let response = GetClusterStatusResponse {
        meta: Some(meta),
        raft: Some(raft),
        managers: managers(),
        quorum: 2,
        nodes_ready: 3,
        nodes_total: 3,
        tasks_running: 6,
        jobs: 1,
        ..GetClusterStatusResponse::default()
    };
    ManagerAnswer { endpoint: format!("127.0.0.1:742{n}"), answer: Ok(response) }
}

fn silent(n: u64) -> ManagerAnswer {
    let endpoint = format!("127.0.0.1:742{n}");
    let failed = Try { endpoint: endpoint.clone(), times: 1, failure: "cannot connect: refused".into() };
    ManagerAnswer { endpoint, answer: Err(failed) }
}

#[test]
fn a_healthy_cluster() {
    let answers = [answer(2, "m1", 7, 48_213), answer(1, "m1", 7, 48_213), answer(3, "m1", 7, 48_120)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::Good);
    assert_eq!(
        view.to_text(&Layout::plain()).unwrap(),
        "\
cluster 01JD0 · quorum 2 of 3 · tolerates 1 failure · leader m1 (term 7) · revision 48213
   NAME  ADDRESS         ROLE   STATE     TERM  APPLIED  LAG  CONTACT  FLUSH  STORE  VERSION
*  m1    127.0.0.1:7421  voter  leader       7    48213    0  –        2.1ms  84MiB  0.1.0
   m2    127.0.0.1:7422  voter  follower     7    48213    0  38ms     2.1ms  84MiB  0.1.0
   m3    127.0.0.1:7423  voter  follower     7    48120   93  38ms     2.1ms  84MiB  0.1.0
1 job · 6 tasks run, 0 wait for a node · 3 of 3 nodes ready"
    );
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut answers = [answer(1, "m1", 7, 48_213), silent(2), answer(3, "m2", 6, 48_120)];
    for one in &mut answers {
        if let Ok(answer) = &mut one.answer {
            answer.meta.as_mut().unwrap().cluster_id = "01KBBX2Q4ZJ7M0V3Y8N5T6R9WC".into();
        }
    }
    let view = View::new(&answers);
    for width in [60, 80, 120] {
        let text = view.to_text(&Layout { width: Some(width), ..Layout::plain() }).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("silent") && text.contains("does not answer"), "{text}");
    }
}

#[test]
fn one_manager_is_dead_and_another_follows_an_old_leader() {
    let answers = [answer(1, "m1", 7, 100), silent(2), answer(3, "m2", 6, 90)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::Fragile);
    assert_eq!(
        view.to_text(&Layout::plain()).unwrap(),
        "\
cluster 01JD0 · quorum 2 of 3 · tolerates no failure · leader m1 (term 7) · revision 100
   NAME  ADDRESS         ROLE   STATE     TERM  APPLIED  LAG  CONTACT  FLUSH  STORE  VERSION
*  m1    127.0.0.1:7421  voter  leader       7      100    0  –        2.1ms  84MiB  0.1.0
   m2    127.0.0.1:7422  voter  silent       –        –    –  –            –      –  0.1.0
   m3    127.0.0.1:7423  voter  follower     6       90   10  38ms     2.1ms  84MiB  0.1.0
1 job · 6 tasks run, 0 wait for a node · 3 of 3 nodes ready
! 127.0.0.1:7422 does not answer: cannot connect: refused
! m3 says that m2 leads (term 6), m1 says m1 (term 7)"
    );
}

#[test]
fn without_a_leader_it_is_said_what_is_missing() {
    let answers = [silent(1), silent(2), answer(3, "", 8, 90)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::NoQuorum);
    assert_eq!(
        view.headline(&Layout::plain()),
        "cluster 01JD0 · quorum 2 of 3 · no leader (term 8) · revision 90"
    );
    assert_eq!(
        view.notes(),
        [
            "no quorum: 1 of 3 managers answers, 2 are needed; writes wait",
            "127.0.0.1:7421 does not answer: cannot connect: refused",
            "127.0.0.1:7422 does not answer: cannot connect: refused",
        ]
    );
}

#[test]
fn a_leader_whose_majority_is_silent_is_no_quorum() {
    let answers = [answer(1, "m1", 7, 100), silent(2), silent(3)];
    assert_eq!(View::new(&answers).health(), Health::NoQuorum);
}

#[test]
fn where_all_answer_and_none_leads_the_term_is_told_and_nothing_else() {
    let answers = [answer(3, "", 8, 90), answer(1, "", 8, 91), answer(2, "", 7, 91)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::NoLeader);
    assert_eq!(
        view.notes(),
        ["no leader: 3 of 3 managers answer, and none is elected since term 8; writes wait"]
    );
}

#[test]
fn before_a_cluster_is_formed_it_is_said_who_is_waited_for() {
    let joining = |n| {
        let mut one = answer(n, "", 0, 0);
        if let Ok(answer) = &mut one.answer {
            answer.managers.clear();
            answer.meta.as_mut().unwrap().cluster_id.clear();
            answer.raft.as_mut().unwrap().state = ManagerState::Joining.into();
        }
        one
    };
    let answers = [joining(2), silent(3), joining(1)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::NotFormed);
    assert_eq!(
        view.headline(&Layout::plain()),
        "cluster not formed yet: m1, m2 are waiting for 127.0.0.1:7423"
    );
    assert_eq!(view.notes(), ["127.0.0.1:7423 does not answer: cannot connect: refused"]);
    assert_eq!(View::new(&[joining(1)]).headline(&Layout::plain()), "cluster not formed yet: m1 is joining");
    // One that joins a cluster which stands says nothing about its leader.
    let answers = [answer(1, "m1", 7, 9), answer(2, "m1", 7, 9), joining(3)];
    assert!(View::new(&answers).notes().is_empty());
}

#[test]
fn where_nobody_answers_the_endpoints_are_listed() {
    let answers = [silent(1)];
    let view = View::new(&answers);
    assert_eq!(view.health(), Health::Silent);
    let text = view.to_text(&Layout::plain()).unwrap();
    assert!(text.starts_with("no manager answers\n"), "{text}");
    assert!(text.contains("?     127.0.0.1:7421  –     silent"), "{text}");
}

#[test]
fn of_two_that_claim_to_lead_the_higher_term_counts() {
    let answers = [answer(1, "m1", 7, 100), answer(2, "m2", 8, 101), answer(3, "m2", 8, 101)];
    let view = View::new(&answers);
    assert!(view.headline(&Layout::plain()).contains("leader m2 (term 8)"));
    assert_eq!(view.notes(), ["m1 says that m1 leads (term 7), m2 says m2 (term 8)"]);
}

#[test]
fn programs_get_every_answer_and_every_silence() {
    let answers = [answer(1, "m1", 7, 100), silent(2)];
    let value = View::new(&answers).to_json();
    assert_eq!(value["leader"], "m1");
    assert_eq!(value["quorum"], 2);
    assert_eq!(value["managers"][0]["status"]["meta"]["manager"], "m1");
    assert_eq!(value["managers"][1]["error"], "cannot connect: refused");
}
