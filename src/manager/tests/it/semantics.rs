//! Conflicts, retries, pages, freshness, plans: what calls mean.

use std::time::Duration;

use quorate_wire::{
    api as pb,
    common::{Consistency, ReadOptions, duration},
    status::{ApiError, Reason},
};
use tonic::Code;

use crate::{
    cluster::{Cluster, until},
    writes::{apply, reason, service},
};

fn bounded(options: ReadOptions) -> Option<ReadOptions> {
    Some(ReadOptions { consistency: Consistency::Bounded.into(), ..options })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_is_refused_again_whoever_leads() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let scale = pb::ScaleJobRequest {
        name: "web".to_owned(),
        replicas: 3,
        request_id: "once".to_owned(),
        ..pb::ScaleJobRequest::default()
    };
    let refused = cluster.jobs(leader).scale_job(scale.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), Reason::JobNotFound);
    // By now it would be done; the first answer holds, also at the next leader.
    cluster.jobs(leader).apply_job(apply(service("web", 1))).await.unwrap();
    cluster.stop(leader).await;
    let next = (leader + 1) % 3;
    let again = cluster.jobs(next).scale_job(scale.clone()).await.unwrap_err();
    assert_eq!(reason(&again), Reason::JobNotFound);
    let fresh = pb::ScaleJobRequest { request_id: "twice".to_owned(), ..scale };
    let done = cluster.jobs(next).scale_job(fresh.clone()).await.unwrap().into_inner();
    let replay = cluster.jobs(next).scale_job(fresh).await.unwrap().into_inner();
    assert_eq!(replay.revision, done.revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_write_through_all_managers_at_once_has_one_effect() {
    let cluster = Cluster::start(3).await;
    let mut request = apply(service("web", 2));
    request.request_id = "at-once".to_owned();
    let calls = (0..9).map(|i| {
        let (mut jobs, request) = (cluster.jobs(i % 3), request.clone());
        async move { jobs.apply_job(request).await.unwrap().into_inner() }
    });
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|a| a.created && a.revision == answers[0].revision));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_says_who_edited_the_job_when() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    let first = jobs.apply_job(apply(service("web", 1))).await.unwrap().into_inner().job.unwrap();
    jobs.apply_job(apply(service("web", 2))).await.unwrap();
    let (name, etag) = ("web".to_owned(), first.etag);
    let scale =
        pb::ScaleJobRequest { name: name.clone(), etag: etag.clone(), ..pb::ScaleJobRequest::default() };
    let delete = pb::DeleteJobRequest { name, etag, ..pb::DeleteJobRequest::default() };
    for status in [jobs.scale_job(scale).await.unwrap_err(), jobs.delete_job(delete).await.unwrap_err()] {
        let error = ApiError::from_status(&status);
        assert_eq!((status.code(), error.reason), (Code::Aborted, Reason::EtagMismatch));
        assert_eq!(error.metadata["changed_by"], "anonymous");
        for key in ["job", "stored", "sent", "changed_at"] {
            assert!(!error.metadata[key].is_empty(), "{key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_write_nothing_and_use_up_no_request_id() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    jobs.apply_job(apply(service("web", 1))).await.unwrap();
    let mut scale = pb::ScaleJobRequest {
        name: "web".to_owned(),
        replicas: 5,
        request_id: "r1".to_owned(),
        validate_only: true,
        ..pb::ScaleJobRequest::default()
    };
    let checked = jobs.scale_job(scale.clone()).await.unwrap().into_inner();
    assert_eq!((checked.revision, checked.job.unwrap().version), (0, 2));
    let name = "web".to_owned();
    let delete = pb::DeleteJobRequest { name, validate_only: true, ..pb::DeleteJobRequest::default() };
    let checked = jobs.delete_job(delete).await.unwrap().into_inner().job.unwrap();
    assert_eq!(checked.status(), pb::JobStatus::Stopped);
    let get = pb::GetJobRequest { name: "web".to_owned(), ..pb::GetJobRequest::default() };
    let stored = jobs.get_job(get).await.unwrap().into_inner().job.unwrap();
    assert_eq!((stored.version, stored.status()), (1, pb::JobStatus::Active));
    scale.validate_only = false;
    assert!(jobs.scale_job(scale).await.unwrap().into_inner().revision > 0);
}

fn masked(paths: &[&str], spec: pb::JobSpec) -> pb::ApplyJobRequest {
    let mut request = apply(spec);
    request.update_mask.get_or_insert_default().paths = paths.iter().map(|p| (*p).to_owned()).collect();
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mask_replaces_its_fields_alone() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    let mut spec = service("web", 3);
    spec.labels = [("team".to_owned(), "a".to_owned())].into();
    jobs.apply_job(apply(spec)).await.unwrap();
    let mut sent = service("web", 9);
    sent.priority = 80;
    let job = jobs.apply_job(masked(&["priority"], sent.clone())).await.unwrap().into_inner().job.unwrap();
    let stored = job.spec.unwrap();
    assert_eq!((stored.priority, stored.labels.len()), (80, 1));
    assert_eq!(stored.kind, service("web", 3).kind);
    sent.containers.get_mut("app").unwrap().args = vec!["--fast".to_owned()];
    let job = jobs.apply_job(masked(&["containers.app.args"], sent.clone())).await.unwrap().into_inner().job;
    assert_eq!(job.unwrap().spec.unwrap().containers["app"].args, ["--fast"]);

    let unknown = jobs.apply_job(masked(&["priority", "colour"], sent.clone())).await.unwrap_err();
    let error = ApiError::from_status(&unknown);
    let path = error.violations.0[0].path.as_str();
    assert_eq!((error.reason, path), (Reason::ArgumentInvalid, "update_mask.paths[1]"));
    sent.name = "gone".to_owned();
    let missing = jobs.apply_job(masked(&["priority"], sent)).await.unwrap_err();
    assert_eq!(reason(&missing), Reason::JobNotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_one_state_through_any_manager_until_their_keeper_is_gone() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for i in 0..5 {
        cluster.jobs(leader).apply_job(apply(service(&format!("job-{i}"), 0))).await.unwrap();
    }
    let keeper = cluster.follower().await;
    let mut request = pb::ListJobsRequest { page_size: 2, ..pb::ListJobsRequest::default() };
    let first = cluster.jobs(keeper).list_jobs(request.clone()).await.unwrap().into_inner();
    request.page_token = first.next_page_token;
    cluster.jobs(leader).apply_job(apply(service("job-2b", 0))).await.unwrap();
    let mut names: Vec<String> = first.jobs.into_iter().map(|j| j.name).collect();
    let second = cluster.jobs(leader).list_jobs(request.clone()).await.unwrap().into_inner();
    let meta = second.meta.unwrap();
    assert_eq!(meta.manager, cluster.members[keeper].name.as_str(), "passed on to the keeper");
    assert_eq!(meta.applied_revision, first.meta.unwrap().applied_revision);
    names.extend(second.jobs.into_iter().map(|j| j.name));
    let third = pb::ListJobsRequest { page_token: second.next_page_token, ..request.clone() };
    let third = cluster.jobs(keeper).list_jobs(third).await.unwrap().into_inner();
    names.extend(third.jobs.into_iter().map(|j| j.name));
    assert_eq!(names, ["job-0", "job-1", "job-2", "job-3", "job-4"], "as it was at the first page");
    assert_eq!(third.next_page_token, "");

    let gone = 3 - leader - keeper;
    request.page_token = String::new();
    let first = cluster.jobs(gone).list_jobs(request.clone()).await.unwrap().into_inner();
    request.page_token = first.next_page_token;
    cluster.stop(gone).await;
    let expired = cluster.jobs(leader).list_jobs(request).await.unwrap_err();
    assert_eq!((expired.code(), reason(&expired)), (Code::Aborted, Reason::PageTokenExpired));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_cut_down_by_labels_and_states() {
    let cluster = Cluster::start(1).await;
    let (mut jobs, mut tasks) = (cluster.jobs(0), cluster.tasks(0));
    for (name, tier) in [("web", "front"), ("db", "back")] {
        let mut spec = service(name, 1);
        spec.labels = [("tier".to_owned(), tier.to_owned())].into();
        jobs.apply_job(apply(spec)).await.unwrap();
    }
    let select = |selector: &str, status: pb::JobStatus| pb::ListJobsRequest {
        selector: selector.to_owned(),
        statuses: vec![status.into()],
        ..pb::ListJobsRequest::default()
    };
    let found = jobs.list_jobs(select("tier!=back", pb::JobStatus::Active)).await.unwrap().into_inner().jobs;
    assert_eq!(found.iter().map(|j| j.name.as_str()).collect::<Vec<_>>(), ["web"]);
    let found = jobs.list_jobs(select("", pb::JobStatus::Complete)).await.unwrap().into_inner().jobs;
    assert!(found.is_empty());
    let waiting = pb::ListTasksRequest {
        selector: "tier=back".to_owned(),
        states: vec![pb::TaskState::Pending.into(), pb::TaskState::New.into()],
        ..pb::ListTasksRequest::default()
    };
    let found = until("the task of db", async || {
        let found = tasks.list_tasks(waiting.clone()).await.unwrap().into_inner().tasks;
        (!found.is_empty()).then_some(found)
    })
    .await;
    assert!(found.iter().all(|t| t.job == "db"));
    let by_slot = pb::GetTaskRequest { id: "default/db[0]".to_owned(), read: None };
    assert_eq!(tasks.get_task(by_slot).await.unwrap().into_inner().task.unwrap().id, found[0].id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stopped_once_and_replaced() {
    let cluster = Cluster::start(1).await;
    cluster.jobs(0).apply_job(apply(service("web", 1))).await.unwrap();
    let mut tasks = cluster.tasks(0);
    let get = || pb::GetTaskRequest { id: "web[0]".to_owned(), read: None };
    let old = until("a task", async || tasks.get_task(get()).await.ok()).await.into_inner().task.unwrap();
    let mut restart = pb::RestartTaskRequest { id: "web[0]".to_owned(), ..pb::RestartTaskRequest::default() };
    let refused = tasks.restart_task(restart.clone()).await.unwrap_err();
    assert_eq!(reason(&refused), Reason::TaskNotRunning, "it has no node");
    restart.id = "t999".to_owned();
    assert_eq!(reason(&tasks.restart_task(restart).await.unwrap_err()), Reason::TaskNotFound);

    let (id, request_id) = ("web[0]".to_owned(), "stop".to_owned());
    let mut stop = pb::StopTaskRequest { id, request_id, validate_only: true };
    assert_eq!(tasks.stop_task(stop.clone()).await.unwrap().into_inner().revision, 0);
    stop.validate_only = false;
    let done = tasks.stop_task(stop.clone()).await.unwrap().into_inner();
    assert_eq!(done.task.unwrap().id, old.id);
    let new = until("its successor", async || {
        let now = tasks.get_task(get()).await.ok()?.into_inner().task?;
        (now.id != old.id).then_some(now)
    })
    .await;
    // The slot has another task: the retry must not stop that one.
    assert_eq!(tasks.stop_task(stop).await.unwrap().into_inner().revision, done.revision);
    let now = tasks.get_task(get()).await.unwrap().into_inner().task.unwrap();
    assert_eq!((now.desired_state(), now.id), (new.desired_state(), new.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_reads_reflect_what_their_bounds_ask_or_say_so() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let written = cluster.jobs(leader).apply_job(apply(service("web", 1))).await.unwrap().into_inner();
    let token = written.meta.unwrap().session_token;
    let get = |read| pb::GetJobRequest { name: "web".to_owned(), read, ..pb::GetJobRequest::default() };
    let own = bounded(ReadOptions { session_token: token, ..ReadOptions::default() });
    let read = cluster.jobs(follower).get_job(get(own)).await.unwrap().into_inner();
    assert!(read.meta.unwrap().applied_revision >= written.revision);
    let age = Some(duration(Duration::from_secs(60)));
    let young = bounded(ReadOptions { max_staleness: age, ..ReadOptions::default() });
    cluster.jobs(follower).get_job(get(young)).await.unwrap();

    let ask = async |read| {
        let status = cluster.jobs(follower).get_job(get(read)).await.unwrap_err();
        ApiError::from_status(&status)
    };
    let future = ReadOptions { min_revision: 1_000_000, ..ReadOptions::default() };
    let late = ask(bounded(future.clone())).await;
    assert_eq!((late.reason, late.metadata["wanted"].as_str()), (Reason::StaleRead, "1000000"));
    assert!(late.retry_after.is_some());
    assert_eq!(ask(Some(future)).await.reason, Reason::RevisionInFuture);
    assert_eq!(ask(bounded(ReadOptions::default())).await.reason, Reason::ArgumentInvalid);
    let foreign = ReadOptions { session_token: "rubbish".to_owned(), ..ReadOptions::default() };
    assert_eq!(ask(bounded(foreign)).await.reason, Reason::ArgumentInvalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_out_of_touch_does_not_call_its_reads_fresh() {
    let mut cluster = Cluster::start(3).await;
    let last = cluster.follower().await;
    for at in (0..3).filter(|at| *at != last) {
        cluster.stop(at).await;
    }
    // It may have been handed the leadership, which nobody confirms now: then it must not call itself fresh either.
    let read =
        bounded(ReadOptions { max_staleness: Some(duration(Duration::ZERO)), ..ReadOptions::default() });
    let list = pb::ListJobsRequest { read, ..pb::ListJobsRequest::default() };
    let refused = cluster.jobs(last).list_jobs(list).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::Unavailable, Reason::StaleRead));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_tells_what_its_etag_then_applies() {
    let cluster = Cluster::start(3).await;
    let mut jobs = cluster.jobs(cluster.follower().await);
    let plan = |n| pb::PlanJobRequest { spec: Some(service("web", n)), ..pb::PlanJobRequest::default() };
    let new = jobs.plan_job(plan(2)).await.unwrap().into_inner();
    assert_eq!((new.etag.as_str(), new.creates, new.unplaced, new.version), ("0", 2, 2, 0));
    assert_eq!(new.failures[0].summary, "no node has joined the cluster");
    assert!(new.warnings.iter().any(|w| w.starts_with("no node has the runtime")), "{:?}", new.warnings);
    let list = jobs.list_jobs(pb::ListJobsRequest::default()).await.unwrap().into_inner();
    assert!(list.jobs.is_empty(), "nothing is written");

    jobs.apply_job(pb::ApplyJobRequest { etag: new.etag, ..apply(service("web", 2)) }).await.unwrap();
    let more = jobs.plan_job(plan(3)).await.unwrap().into_inner();
    assert_eq!((more.version, more.new_version), (1, 2));
    let diff: Vec<_> = more.diff.iter().map(|d| (d.path.as_str(), d.old.as_str(), d.new.as_str())).collect();
    assert_eq!(diff, [("service.replicas", "2", "3")]);
    assert!(!more.diff[0].replaces_tasks);
    let same = jobs.plan_job(plan(2)).await.unwrap().into_inner();
    assert!(same.diff.is_empty() && same.warnings[0].starts_with("nothing changes"));

    jobs.apply_job(apply(service("web", 5))).await.unwrap();
    let stale = pb::ApplyJobRequest { etag: more.etag, ..apply(service("web", 3)) };
    assert_eq!(reason(&jobs.apply_job(stale).await.unwrap_err()), Reason::EtagMismatch);
}
