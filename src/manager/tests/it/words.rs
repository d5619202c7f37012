//! What agents may say, and what becomes of it: heartbeats, changed machines, bad statuses.

use std::time::Duration;

use quorate_wire::{
    agent::{self as pb, session_request, session_response::Body},
    api, common,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{
    agents::{Agent, hello},
    cluster::{Cluster, until},
    writes::{apply, service},
};

const RUNNING: u32 = 512;
const STARTING: u32 = 448;

/// The value of a metric with those labels, as the admin server shows it.
async fn metric(cluster: &Cluster, at: usize, series: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(cluster.members[at].addresses.admin).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

async fn refused(cluster: &Cluster, reason: &str, count: f64) {
    let series = format!("quorate_agent_statuses_refused_total{{reason=\"{reason}\"}}");
    until(&series, async || (metric(cluster, 0, &series).await == Some(count)).then_some(())).await;
}

async fn say(agent: &Agent, body: session_request::Body) {
    agent.say.send(pb::SessionRequest { body: Some(body) }).await.unwrap();
}

fn beat(applied_sequence: u64, set_hash: u64) -> session_request::Body {
    session_request::Body::Heartbeat(pb::Heartbeat { applied_sequence, set_hash, ..pb::Heartbeat::default() })
}

/// A session with `count` tasks: the agent, the number and the hash of its set, and the tasks.
async fn with_tasks(cluster: &Cluster, count: u32) -> (Agent, pb::AssignmentSet, Vec<pb::Assignment>) {
    let mut agent = Agent::dial(cluster, 0, hello("n1", "a")).await;
    let (_, mut newest) = agent.opened().await;
    cluster.jobs(0).apply_job(apply(service("web", count))).await.unwrap();
    let mut tasks = Vec::new();
    while tasks.len() < count as usize {
        let Body::Increment(set) = agent.next().await else { panic!("no increment") };
        tasks.extend(set.assignments.clone());
        newest = set;
    }
    (agent, newest, tasks)
}

/// Waits until the report with that number is acknowledged, and so committed.
async fn acknowledged(agent: &mut Agent, seq: u64) {
    loop {
        if let Body::Ack(ack) = agent.next().await
            && ack.marks.iter().any(|mark| mark.seq == seq)
        {
            return;
        }
    }
}

async fn complete(agent: &mut Agent) -> pb::AssignmentSet {
    loop {
        if let Body::Complete(set) = agent.next().await {
            return set;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_holds_another_set_gets_the_complete_one() {
    let cluster = Cluster::start(1).await;
    let (mut agent, newest, tasks) = with_tasks(&cluster, 3).await;
    // The truth, and a lie about a set that is not the newest any more, are no reason.
    say(&agent, beat(newest.results_in, newest.set_hash)).await;
    say(&agent, beat(newest.results_in - 1, 1)).await;
    say(&agent, beat(newest.results_in, newest.set_hash ^ 1)).await;
    let again = complete(&mut agent).await;
    assert_eq!((again.applies_to, again.results_in), (0, newest.results_in + 1), "at the first lie alone");
    assert_eq!((again.assignments.len(), again.set_hash), (tasks.len(), newest.set_hash));
    assert!(again.assignments.iter().all(|task| task.spec.is_some()));
    let series = "quorate_agent_resyncs_total{reason=\"mismatch\"}";
    assert_eq!(metric(&cluster, 0, series).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_complete_set_comes_again_and_again() {
    let cluster = Cluster::start_with(1, |config| config.resync = Duration::from_millis(200)).await;
    let mut agent = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, first) = agent.opened().await;
    let second = complete(&mut agent).await;
    let third = complete(&mut agent).await;
    assert_eq!([second.results_in, third.results_in], [first.results_in + 1, first.results_in + 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_task_stays_in_the_set_until_it_is_forgotten() {
    let cluster = Cluster::start(1).await;
    let (mut agent, _, tasks) = with_tasks(&cluster, 1).await;
    let id = tasks[0].task_id;
    agent.report(id, RUNNING, 1).await;
    let delete = api::DeleteJobRequest { name: "web".to_owned(), ..api::DeleteJobRequest::default() };
    cluster.jobs(0).delete_job(delete).await.unwrap();
    let stop = loop {
        if let Body::Increment(set) = agent.next().await {
            break set;
        }
    };
    assert!(stop.removals.is_empty() && stop.assignments[0].desired_state > RUNNING);
    const SHUTDOWN: u32 = 640;
    agent.report(id, SHUTDOWN, 2).await;
    acknowledged(&mut agent, 2).await;
    let mut second = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, set) = second.opened().await;
    let known: Vec<_> = set.assignments.iter().map(|task| (task.task_id, task.observed_state)).collect();
    assert_eq!(known, [(id, SHUTDOWN)], "so its log can still be read, and nobody starts it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_machine_is_written_within_the_session() {
    let cluster = Cluster::start(1).await;
    let (agent, _, _) = with_tasks(&cluster, 1).await;
    let mut facts = hello("n1", "a").facts.unwrap();
    facts.conditions.insert("disk-pressure".to_owned(), "95 % is used".to_owned());
    say(&agent, session_request::Body::Facts(facts)).await;
    let node = async || {
        let request = api::GetNodeRequest { name: "n1".to_owned(), read: None };
        cluster.nodes(0).get_node(request).await.unwrap().into_inner().node.unwrap()
    };
    let pressed =
        until("the trouble", async || Some(node().await).filter(|n| !n.conditions.is_empty())).await;
    assert_eq!(pressed.conditions[0].kind, "disk-pressure");
    assert_eq!((pressed.status(), pressed.tasks), (api::NodeStatus::Ready, 1), "what runs goes on");
    say(&agent, session_request::Body::Facts(hello("n1", "a").facts.unwrap())).await;
    until("its end", async || node().await.conditions.is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_machines_use_is_told_by_every_manager() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let mut agent = Agent::dial(&cluster, leader, hello("n1", "a")).await;
    agent.opened().await;
    let usage = common::NodeUsage {
        cpu_millis: 700,
        tasks: vec![common::TaskUsage { task_id: 1, cpu_millis: 600, ..Default::default() }; 300],
        ..Default::default()
    };
    let progress =
        vec![common::TaskProgress { task_id: 1, done_bytes: 5, total_bytes: 9, ..Default::default() }];
    let orphans = vec![pb::Orphan { task_id: 9, name: "x".to_owned(), ..Default::default() }];
    let heartbeat = pb::Heartbeat { usage: Some(usage), progress, orphans, ..Default::default() };
    say(&agent, session_request::Body::Heartbeat(heartbeat)).await;
    let told = until("the usage", async || {
        let request = api::ListUsageRequest { node: "n1".to_owned() };
        let nodes = cluster.nodes(follower).list_usage(request).await.unwrap().into_inner().nodes;
        nodes.into_iter().find(|node| node.usage.is_some())
    })
    .await;
    let usage = told.usage.unwrap();
    assert_eq!((told.node.as_str(), usage.cpu_millis, usage.tasks.len()), ("n1", 700, 100), "bounded");
    assert_eq!((told.progress[0].done_bytes, told.progress[0].total_bytes), (5, 9));
    let request = api::ListNodesRequest::default();
    let node = cluster.nodes(leader).list_nodes(request).await.unwrap().into_inner().nodes.remove(0);
    assert!(node.orphans == 1 && node.last_heard.is_some());
    let unknown = api::ListUsageRequest { node: "n9".to_owned() };
    let status = cluster.nodes(follower).list_usage(unknown).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_statuses_have_no_effect_and_are_counted_by_reason() {
    let cluster = Cluster::start(1).await;
    let (mut agent, _, tasks) = with_tasks(&cluster, 1).await;
    let id = tasks[0].task_id;
    let other = Agent::dial(&cluster, 0, hello("n2", "b")).await;
    other.report(id, RUNNING, 5).await;
    refused(&cluster, "foreign", 1.0).await;
    agent.report(id, RUNNING, 5).await;
    acknowledged(&mut agent, 5).await;
    agent.report(id, STARTING, 6).await;
    refused(&cluster, "backwards", 1.0).await;
    agent.report(id, RUNNING, 5).await;
    refused(&cluster, "old", 1.0).await;
    agent.report(4_711, RUNNING, 1).await;
    refused(&cluster, "unknown", 1.0).await;
    agent.report(id, 9_999, 7).await;
    refused(&cluster, "unreadable", 1.0).await;
    const FAILED: u32 = 704;
    agent.report(id, FAILED, 8).await;
    acknowledged(&mut agent, 8).await;
    agent.report(id, FAILED, 9).await;
    refused(&cluster, "ended", 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_too_large_is_refused_by_name() {
    let cluster = Cluster::start(1).await;
    let (mut agent, _, _) = with_tasks(&cluster, 1).await;
    let statuses = vec![pb::TaskStatus::default(); 10_001];
    say(&agent, session_request::Body::Status(pb::StatusBatch { statuses })).await;
    let refusal = loop {
        if let Body::Refusal(refusal) = agent.next().await {
            break refusal;
        }
    };
    assert_eq!(refusal.reason, "BATCH_TOO_LARGE");
    assert!(
        refusal.message.contains("10001") && refusal.message.contains("at most 10000"),
        "{}",
        refusal.message
    );
    assert!(agent.next_or_end().await.is_none());
}
