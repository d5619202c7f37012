//! What callers feel of dead, frozen and changing managers.

mod fake;
mod streams;
mod watches;

use std::time::Duration;

use crate::{Client, ClientError, Options};
use fake::{Act, Fake, dead_address, options};
use quorate_base::{Clock, Rng, TaskGroup};
use quorate_wire::api::{ApplyJobRequest, GetJobRequest, ScaleJobRequest};
use quorate_wire::status::{ApiError, Reason};

fn group() -> TaskGroup {
    TaskGroup::new("test", |_| {})
}

/// A client that tries `seeds` in this order.
fn client(seeds: &[&str], options: Options) -> Client {
    let seeds: Vec<String> = seeds.iter().map(|seed| (*seed).to_owned()).collect();
    // The order of the seeds is shuffled: take a seed of the shuffle that keeps it.
    for seed in 0.. {
        let client = Client::with(&seeds, options.clone(), Clock::system(), Rng::seeded(seed)).unwrap();
        if client.managers() == seeds {
            return client;
        }
    }
    unreachable!()
}

fn apply() -> ApplyJobRequest {
    ApplyJobRequest::default()
}

fn not_leader(address: &str) -> Act {
    Act::Refuse(ApiError::new(Reason::NotLeader, "m1 does not lead").with("leader_address", address))
}

fn ids(fake: &Fake) -> Vec<String> {
    fake.seen().into_iter().map(|seen| seen.request_id).collect()
}

#[tokio::test]
async fn a_leader_change_in_the_middle_of_a_write_keeps_its_request_id() {
    let group = group();
    let (a, b, c) = (Fake::start(&group).await, Fake::start(&group).await, Fake::start(&group).await);
    a.script([not_leader(&b.address)]);
    b.script([Act::Refuse(ApiError::new(Reason::CommitTimeout, "outcome unknown")), not_leader(&c.address)]);
    let client = client(&[&a.address], options());
    client.apply_job(apply()).await.unwrap();
    let mut all: Vec<String> = [&a, &b, &c].into_iter().flat_map(ids).collect();
    assert!(all.len() >= 3 && all.iter().all(|id| id.len() == 26), "{all:?}");
    all.dedup();
    assert_eq!(all.len(), 1, "one write, one id");
    client.apply_job(apply()).await.unwrap();
    assert_ne!(ids(&c).last(), all.first(), "another write, another id");
}

#[tokio::test]
async fn writes_go_to_the_leader_once_an_answer_named_it_and_reads_stay_where_they_are() {
    let group = group();
    let (a, b) = (Fake::start(&group).await, Fake::start(&group).await);
    a.follows(&b.address);
    b.follows(&b.address);
    let client = client(&[&a.address], options());
    client.apply_job(apply()).await.unwrap();
    assert_eq!(client.leader().as_deref(), Some(b.address.as_str()));
    for _ in 0..3 {
        client.scale_job(ScaleJobRequest::default()).await.unwrap();
    }
    assert_eq!((a.seen().len(), b.seen().len()), (1, 3));
}

#[tokio::test]
async fn a_dead_endpoint_is_passed_over_and_then_left_alone() {
    let group = group();
    let (dead, alive) = (dead_address().await, Fake::start(&group).await);
    let client = client(&[&dead, &alive.address], options());
    for _ in 0..5 {
        client.get_job(GetJobRequest::default()).await.unwrap();
        client.apply_job(apply()).await.unwrap();
    }
    assert_eq!(alive.seen().len(), 10);
}

#[tokio::test]
async fn a_frozen_endpoint_is_left_with_the_same_request_id() {
    let group = group();
    let (frozen, alive) = (Fake::start(&group).await, Fake::start(&group).await);
    frozen.script(vec![Act::Hang; 10]);
    let client = client(
        &[&frozen.address, &alive.address],
        Options { try_limit: Duration::from_millis(500), ..options() },
    );
    client.apply_job(apply()).await.unwrap();
    let first = ids(&frozen).remove(0);
    assert!(!ids(&alive).is_empty() && ids(&alive).iter().all(|id| *id == first));
    assert!(frozen.seen()[0].timeout.is_some(), "the server knows how long anybody listens");
    client.apply_job(apply()).await.unwrap();
    assert_eq!(frozen.seen().len(), 1, "it stands behind the others for a while");
}

#[tokio::test]
async fn the_wait_that_a_server_asks_for_is_kept() {
    const WAIT: Duration = Duration::from_millis(250);
    let group = group();
    let busy = Fake::start(&group).await;
    busy.script([Act::Refuse(ApiError::new(Reason::Overloaded, "too much is waiting").after(WAIT))]);
    client(&[&busy.address], options()).apply_job(apply()).await.unwrap();
    let seen = busy.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[1].at.since(seen[0].at) >= WAIT);
    assert_eq!(seen[0].request_id, seen[1].request_id);
}

#[tokio::test]
async fn the_deadline_bounds_everything_and_says_what_is_known() {
    let group = group();
    let frozen = Fake::start(&group).await;
    frozen.script(vec![Act::Hang; 100]);
    let hasty =
        Options { deadline: Duration::from_millis(200), try_limit: Duration::from_millis(40), ..options() };
    let patient = client(&[&frozen.address], hasty);
    let mut request = apply();
    request.request_id = "my-own-id".into();
    match patient.apply_job(request).await.unwrap_err() {
        ClientError::Deadline { tries, last: None, request_id, outcome_unknown, .. } => {
            assert_eq!((tries.len(), tries[0].endpoint.as_str()), (1, frozen.address.as_str()));
            assert_eq!(tries[0].failure, "no answer in time");
            assert_eq!(request_id.as_deref(), Some("my-own-id"));
            assert!(outcome_unknown);
        }
        other => panic!("{other:?}"),
    }
    assert!(ids(&frozen).iter().all(|id| id == "my-own-id"));
}

#[tokio::test]
async fn a_cluster_without_a_leader_is_reported_with_its_own_words() {
    let group = group();
    let a = Fake::start(&group).await;
    // Longer than anybody waits: the call ends at once.
    let refusal = ApiError::new(Reason::NoLeader, "m1 knows no leader").after(Duration::from_secs(3600));
    a.script([Act::Refuse(refusal)]);
    let options = Options { deadline: Duration::from_secs(60), ..options() };
    match client(&[&a.address], options).apply_job(apply()).await.unwrap_err() {
        ClientError::Deadline { last: Some(last), outcome_unknown, .. } => {
            assert_eq!(last.reason, Reason::NoLeader);
            assert!(!outcome_unknown, "nothing was written, the manager said so");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.seen().len(), 1);
}

#[tokio::test]
async fn a_refusal_for_good_is_not_repeated() {
    let group = group();
    let a = Fake::start(&group).await;
    a.script([Act::Refuse(ApiError::new(Reason::EtagMismatch, "moved"))]);
    match client(&[&a.address], options()).apply_job(apply()).await.unwrap_err() {
        ClientError::Api { error, endpoint, request_id } => {
            assert_eq!(error.reason, Reason::EtagMismatch);
            assert_eq!(endpoint, a.address);
            assert_eq!(request_id, Some(ids(&a).remove(0)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.seen().len(), 1);
}

#[tokio::test]
async fn where_nobody_listens_the_call_ends_before_its_deadline() {
    let (one, two) = (dead_address().await, dead_address().await);
    let options = Options {
        deadline: Duration::from_secs(3600),
        unreachable_after: Duration::from_millis(1),
        ..options()
    };
    match client(&[&one, &two], options).apply_job(apply()).await.unwrap_err() {
        ClientError::Unreachable { tries } => {
            assert_eq!(tries.len(), 2);
            assert!(tries.iter().all(|one| one.failure.contains("refused")), "{tries:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_of_something_else_is_named_as_such() {
    let group = group();
    let a = Fake::start(&group).await;
    // The fake offers no task service, so it answers like any other gRPC server.
    let request = quorate_wire::api::GetTaskRequest::default();
    match client(&[&a.address], options()).get_task(request).await.unwrap_err() {
        ClientError::Foreign { endpoint, code, .. } => {
            assert_eq!((endpoint, code), (a.address.clone(), tonic::Code::Unimplemented));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_manager_is_asked_also_those_that_only_the_others_know() {
    let group = group();
    let (a, b, dead) = (Fake::start(&group).await, Fake::start(&group).await, dead_address().await);
    a.knows(&[&a.address, &b.address]);
    b.knows(&[&dead, "192.0.2.1:7420"]);
    let client = client(&[&a.address], options());
    let answers = client.cluster_status_each().await;
    let asked: Vec<_> = answers.iter().map(|one| (one.endpoint.as_str(), one.answer.is_ok())).collect();
    // The last one may not be dialled in plain text: it is not asked at all.
    assert_eq!(asked, [(a.address.as_str(), true), (b.address.as_str(), true), (dead.as_str(), false)]);
}

#[tokio::test]
async fn bad_seeds_and_bad_ids_are_refused_before_anything_is_sent() {
    assert!(matches!(Client::new(&[], options()), Err(ClientError::NoManagers)));
    assert!(matches!(Client::new(&["nonsense".into()], options()), Err(ClientError::Address(_))));
    let client = client(&[&dead_address().await], options());
    let request = ApplyJobRequest { request_id: "not visible\u{7f}".into(), ..apply() };
    assert!(matches!(client.apply_job(request).await, Err(ClientError::RequestId(_))));
}
