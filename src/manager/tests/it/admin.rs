//! The admin port: what is logged, and what calls took.

use quorate_telemetry::logging::{self, Format, Identity, LogConfig};
use quorate_wire::api as pb;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Code;

use crate::{
    agents::{Agent, hello},
    cluster::{Cluster, until},
    writes::{apply, service},
};

const RUNNING: u32 = 512;

/// The status and the body of an answer of the first member's admin port.
async fn ask(cluster: &Cluster, verb: &str, path: &str, body: &str) -> (u16, String) {
    ask_at(cluster, 0, verb, path, body).await
}

async fn ask_at(cluster: &Cluster, at: usize, verb: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(cluster.members[at].addresses.admin).await.unwrap();
    let length = body.len();
    let head =
        format!("{verb} {path} HTTP/1.1\r\nHost: m\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_filter_is_shown_changed_lent_and_refused_and_lines_are_served() {
    let config = LogConfig {
        filter: "info".to_owned(),
        format: Format::Json,
        identity: Identity::Manager("m1".to_owned()),
    };
    // No other test of this process sets up logging.
    let log = logging::init(config).unwrap();
    let cluster = Cluster::start_with(1, |config| config.log = Some(log.clone())).await;
    let get = async |path| ask(&cluster, "GET", path, "").await;
    let put = async |path, filter| ask(&cluster, "PUT", path, filter).await;

    assert_eq!(get("/log-level").await, (200, "info\n".to_owned()));
    assert_eq!(put("/log-level", "warn\n").await, (200, "warn\n".to_owned()));
    assert_eq!(get("/log-level").await, (200, "warn\n".to_owned()));
    assert_eq!(put("/log-level", "info").await.0, 200);

    let (status, words) = put("/log-level", "inof").await;
    assert_eq!((status, &*words), (400, &*format!("{}\n", log.set_filter("inof").unwrap_err())));
    for bad in ["/log-level?for=soon", "/log-level?for=0s", "/log-level?for=48h", "/log-level?four=1m"] {
        let (status, words) = put(bad, "debug").await;
        assert!(status == 400 && words.contains("for"), "{bad}: {status} {words}");
    }
    assert_eq!(get("/log-level").await.1, "info\n", "what is refused changes nothing");

    assert_eq!(put("/log-level?for=1h", "debug").await, (200, "debug for 1h\n".to_owned()));
    assert_eq!(get("/log-level").await.1, "debug\n");
    assert_eq!(put("/log-level?for=1ms", "trace").await, (200, "trace for 1ms\n".to_owned()));
    until("the filter that lasts", async || (get("/log-level").await.1 == "info\n").then_some(())).await;

    let (status, lines) = get("/logs?since=10m").await;
    assert!(status == 200 && lines.contains("\"msg\":\"manager started\""), "{lines}");
    assert_eq!(get("/logs?since=yesterday").await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_measured_by_method_and_code() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    jobs.list_jobs(pb::ListJobsRequest::default()).await.unwrap();
    let missing =
        pb::GetJobRequest { namespace: "default".into(), name: "none".into(), ..Default::default() };
    assert_eq!(jobs.get_job(missing).await.unwrap_err().code(), Code::NotFound);
    let series = |method: &str, code: &str| {
        format!(
            "quorate_rpc_server_call_duration_seconds_count{{rpc_method=\"{method}\",rpc_response_status_code=\"{code}\"}} 1"
        )
    };
    // A call is over on the server a moment after its client knows.
    for wanted in [series("JobService/ListJobs", "OK"), series("JobService/GetJob", "NOT_FOUND")] {
        let shown = async || ask(&cluster, "GET", "/metrics", "").await.1.contains(&wanted).then_some(());
        until(&wanted, shown).await;
    }
    let (_, text) = ask(&cluster, "GET", "/metrics", "").await;
    for name in
        ["jobs", "tasks", "nodes", "scheduler_pending_tasks", "build_info", "raft_leader_changes_total"]
    {
        assert!(text.contains(&format!("\nquorate_{name}")), "{name} is missing:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tasks_are_counted_by_reason_and_those_that_run_are_measured() {
    let cluster = Cluster::start(1).await;
    let shows = async |line: &str| {
        let line = format!("\n{line}\n");
        until(&line, async || ask(&cluster, "GET", "/metrics", "").await.1.contains(&line).then_some(()))
            .await;
    };
    cluster.jobs(0).apply_job(apply(service("web", 2))).await.unwrap();
    shows("quorate_scheduler_pending_tasks{reason=\"no_node\"} 2").await;

    let mut agent = Agent::dial(&cluster, 0, hello("n1", "a")).await;
    let (_, set) = agent.opened().await;
    let (_, tasks) = agent.assigned(set.results_in, 2 - set.assignments.len()).await;
    let task = set.assignments.iter().chain(&tasks).next().unwrap().task_id;
    agent.report(task, RUNNING, 1).await;
    shows("quorate_scheduler_submit_to_running_seconds_count 1").await;
    agent.report(task, RUNNING, 2).await;
    shows("quorate_agent_status_batches_total 2").await;
    for line in [
        "quorate_scheduler_submit_to_running_seconds_count 1",
        "quorate_scheduler_pending_tasks{reason=\"no_node\"} 0",
        "quorate_scheduler_decisions_total{result=\"placed\"} 2",
        "quorate_scheduler_decisions_total{result=\"unplaceable\"} 2",
    ] {
        shows(line).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_shows_what_all_have_alike() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for (at, leads) in [(leader, true), (follower, false), (leader, true)] {
        let (_, text) = ask_at(&cluster, at, "GET", "/metrics", "").await;
        for name in ["jobs", "tasks", "nodes", "scheduler_pending_tasks", "raft_replication_lag_entries"] {
            assert_eq!(text.contains(&format!("\nquorate_{name}{{")), leads, "{name} of {at}:\n{text}");
        }
        assert!(text.contains("\nquorate_raft_term "), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_write_counts_as_a_replay() {
    let cluster = Cluster::start(1).await;
    let write =
        pb::ApplyJobRequest { request_id: "01JDZ0000000000000000000AB".into(), ..apply(service("web", 1)) };
    let first = cluster.jobs(0).apply_job(write.clone()).await.unwrap().into_inner();
    let again = cluster.jobs(0).apply_job(write).await.unwrap().into_inner();
    assert_eq!(first.revision, again.revision);
    let (_, text) = ask(&cluster, "GET", "/metrics", "").await;
    assert!(text.contains("\nquorate_api_idempotent_replays_total 1\n"), "{text}");
}
