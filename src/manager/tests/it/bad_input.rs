//! Bad input to each call: a named error, and nothing changed.

use std::time::Duration;

use quorate_wire::{
    api as pb,
    common::{ReadOptions, duration},
    status::{ApiError, Reason},
};
use tonic::Status;

use crate::{
    cluster::Cluster,
    writes::{apply, service},
};

/// What an error names: its reason and the first field that is wrong.
fn named<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Reason, String) {
    let error = ApiError::from_status(&answer.unwrap_err());
    let path = error.violations.0.first().map(|one| one.path.clone());
    (error.reason, path.unwrap_or_default())
}

fn wrong(path: &str) -> (Reason, String) {
    (Reason::ArgumentInvalid, path.to_owned())
}

fn strange_read() -> Option<ReadOptions> {
    Some(ReadOptions { consistency: 99, ..ReadOptions::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_jobs_name_what_is_wrong_and_change_nothing() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    let mut first = apply(service("web", 1));
    first.request_id = "used".to_owned();
    jobs.apply_job(first).await.unwrap();
    let get = pb::GetJobRequest { name: "web".to_owned(), ..pb::GetJobRequest::default() };
    let spec = |job: Option<pb::Job>| job.map(|job| (job.version, job.spec, job.etag));
    let before = spec(jobs.get_job(get.clone()).await.unwrap().into_inner().job);

    let id = |id: &str| pb::ApplyJobRequest { request_id: id.to_owned(), ..apply(service("web", 2)) };
    assert_eq!(named(jobs.apply_job(id("two words")).await), wrong("request_id"));
    assert_eq!(named(jobs.apply_job(id(&"x".repeat(1000))).await), wrong("request_id"));
    assert_eq!(named(jobs.apply_job(id("used")).await).0, Reason::RequestIdReused);
    let etag = |etag: &str| pb::ApplyJobRequest { etag: etag.to_owned(), ..apply(service("web", 2)) };
    assert_eq!(named(jobs.apply_job(etag("8")).await), wrong("etag"));
    assert_eq!(named(jobs.apply_job(etag("0")).await).0, Reason::JobExists);
    assert_eq!(named(jobs.apply_job(pb::ApplyJobRequest::default()).await).0, Reason::JobInvalid);

    let scale = |name: &str| pb::ScaleJobRequest { name: name.to_owned(), ..pb::ScaleJobRequest::default() };
    assert_eq!(named(jobs.scale_job(scale("")).await), wrong("name"));
    assert_eq!(named(jobs.scale_job(scale("A B")).await), wrong("name"));
    assert_eq!(named(jobs.scale_job(scale("gone")).await).0, Reason::JobNotFound);
    let huge = pb::ScaleJobRequest { replicas: u32::MAX, ..scale("web") };
    assert_eq!(named(jobs.scale_job(huge).await).0, Reason::JobInvalid);
    let foreign = pb::ScaleJobRequest { namespace: "N!".to_owned(), ..scale("web") };
    assert_eq!(named(jobs.scale_job(foreign).await), wrong("namespace"));
    let reused = pb::ScaleJobRequest { request_id: "used".to_owned(), ..scale("web") };
    assert_eq!(named(jobs.scale_job(reused).await).0, Reason::RequestIdReused);

    let delete =
        |name: &str| pb::DeleteJobRequest { name: name.to_owned(), ..pb::DeleteJobRequest::default() };
    assert_eq!(named(jobs.delete_job(delete("")).await), wrong("name"));
    assert_eq!(named(jobs.delete_job(delete("gone")).await).0, Reason::JobNotFound);
    let stale = pb::DeleteJobRequest { etag: "rubbish".to_owned(), ..delete("web") };
    assert_eq!(named(jobs.delete_job(stale).await), wrong("etag"));
    assert_eq!(named(jobs.plan_job(pb::PlanJobRequest::default()).await).0, Reason::JobInvalid);
    let (spec_sent, read) = (Some(service("web", 1)), strange_read());
    let plan = pb::PlanJobRequest { spec: spec_sent, read, ..pb::PlanJobRequest::default() };
    assert_eq!(named(jobs.plan_job(plan).await), wrong("read.consistency"));

    assert_eq!(spec(jobs.get_job(get).await.unwrap().into_inner().job), before, "nothing changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_name_what_is_wrong() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    for i in 0..3 {
        jobs.apply_job(apply(service(&format!("job-{i}"), 0))).await.unwrap();
    }
    let list = pb::ListJobsRequest::default;
    let bad = |selector: &str| pb::ListJobsRequest { selector: selector.to_owned(), ..list() };
    assert_eq!(named(jobs.list_jobs(bad("=x")).await), wrong("selector"));
    assert_eq!(named(jobs.list_jobs(bad(&"a".repeat(5000))).await), wrong("selector"));
    let status = |number| pb::ListJobsRequest { statuses: vec![number], ..list() };
    assert_eq!(named(jobs.list_jobs(status(0)).await), wrong("statuses[0]"));
    assert_eq!(named(jobs.list_jobs(status(77)).await), wrong("statuses[0]"));
    let read = |read| pb::ListJobsRequest { read, ..list() };
    assert_eq!(named(jobs.list_jobs(read(strange_read())).await), wrong("read.consistency"));
    let mut age = duration(Duration::ZERO);
    age.seconds = -1;
    let negative = Some(ReadOptions { max_staleness: Some(age), ..ReadOptions::default() });
    assert_eq!(named(jobs.list_jobs(read(negative)).await), wrong("read.max_staleness"));

    let first = jobs.list_jobs(pb::ListJobsRequest { page_size: 1, ..list() }).await.unwrap().into_inner();
    let token = first.next_page_token;
    let other = pb::ListJobsRequest { selector: "a=b".to_owned(), page_token: token.clone(), ..list() };
    assert_eq!(named(jobs.list_jobs(other).await).0, Reason::PageTokenInvalid);
    let damaged = pb::ListJobsRequest { page_token: token[1..].to_owned(), ..list() };
    assert_eq!(named(jobs.list_jobs(damaged).await).0, Reason::PageTokenInvalid);
    let get = |name: &str| pb::GetJobRequest { name: name.to_owned(), ..pb::GetJobRequest::default() };
    assert_eq!(named(jobs.get_job(get("")).await), wrong("name"));
    assert_eq!(named(jobs.get_job(get("gone")).await).0, Reason::JobNotFound);

    let mut nodes = cluster.nodes(0);
    let get = |name: &str| pb::GetNodeRequest { name: name.to_owned(), read: None };
    assert_eq!(named(nodes.get_node(get("")).await), wrong("name"));
    assert_eq!(named(nodes.get_node(get("gone")).await).0, Reason::NodeNotFound);
    let list = |token: &str, selector: &str| pb::ListNodesRequest {
        page_token: token.to_owned(),
        selector: selector.to_owned(),
        ..pb::ListNodesRequest::default()
    };
    assert_eq!(named(nodes.list_nodes(list(&token, "")).await).0, Reason::PageTokenInvalid, "another list's");
    assert_eq!(named(nodes.list_nodes(list("", "a in")).await), wrong("selector"));
    let usage = pb::ListUsageRequest { node: "gone".to_owned() };
    assert_eq!(named(nodes.list_usage(usage).await).0, Reason::NodeNotFound);
    let request = pb::ListManagersRequest { read: strange_read() };
    assert_eq!(named(cluster.cluster(0).list_managers(request).await), wrong("read.consistency"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_tasks_name_what_is_wrong() {
    let cluster = Cluster::start(1).await;
    let mut tasks = cluster.tasks(0);
    for (id, expected) in [
        ("", wrong("task")),
        ("web", wrong("task")),
        ("web[x]", wrong("task")),
        ("web[0", wrong("task")),
        ("a/b/c[0]", wrong("task")),
        ("gone[0]", (Reason::JobNotFound, String::new())),
        ("t7", (Reason::TaskNotFound, String::new())),
    ] {
        let (id, name) = (|| id.to_owned(), id);
        assert_eq!(
            named(tasks.get_task(pb::GetTaskRequest { id: id(), read: None }).await),
            expected,
            "{name}"
        );
        let stop = pb::StopTaskRequest { id: id(), ..pb::StopTaskRequest::default() };
        assert_eq!(named(tasks.stop_task(stop).await), expected, "{name}");
        let restart = pb::RestartTaskRequest { id: id(), ..pb::RestartTaskRequest::default() };
        assert_eq!(named(tasks.restart_task(restart).await), expected, "{name}");
        let signal = pb::SignalTaskRequest { id: id(), signal: "HUP".to_owned(), request_id: "s".to_owned() };
        assert_eq!(named(tasks.signal_task(signal).await), expected, "{name}");
    }
    let stop =
        pb::StopTaskRequest { id: "t1".to_owned(), request_id: "a b".to_owned(), validate_only: false };
    assert_eq!(named(tasks.stop_task(stop).await), wrong("request_id"));
    let list = pb::ListTasksRequest::default;
    let job = pb::ListTasksRequest { job: "gone".to_owned(), ..list() };
    assert_eq!(named(tasks.list_tasks(job).await).0, Reason::JobNotFound);
    let node = pb::ListTasksRequest { node: "gone".to_owned(), ..list() };
    assert_eq!(named(tasks.list_tasks(node).await).0, Reason::NodeNotFound);
    let ended = pb::ListTasksRequest { states: vec![pb::TaskState::Failed.into()], ..list() };
    assert_eq!(named(tasks.list_tasks(ended).await), wrong("states[0]"));
    let strange = pb::ListTasksRequest { states: vec![512, 3], include_ended: true, ..list() };
    assert_eq!(named(tasks.list_tasks(strange).await), wrong("states[1]"));
    let token = pb::ListTasksRequest { page_token: "00".to_owned(), ..list() };
    assert_eq!(named(tasks.list_tasks(token).await).0, Reason::PageTokenInvalid);
}
