//! Lists, pages, freshness and health.

use quorate_wire::{
    api as pb,
    common::{Consistency, ReadOptions},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    cluster::{Cluster, channel, until},
    writes::{apply, service},
};

fn stale() -> Option<ReadOptions> {
    Some(ReadOptions { consistency: Consistency::Stale.into(), ..ReadOptions::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_join_up_and_foreign_tokens_are_refused() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    for i in 0..5 {
        jobs.apply_job(apply(service(&format!("job-{i}"), 1))).await.unwrap();
    }
    let mut names = Vec::new();
    let mut request = pb::ListJobsRequest { page_size: 2, ..pb::ListJobsRequest::default() };
    loop {
        let page = jobs.list_jobs(request.clone()).await.unwrap().into_inner();
        names.extend(page.jobs.into_iter().map(|j| j.name));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    assert_eq!(names, ["job-0", "job-1", "job-2", "job-3", "job-4"]);

    request.namespace = "other".to_owned();
    assert_eq!(jobs.list_jobs(request.clone()).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    request.page_token = "rubbish".to_owned();
    assert_eq!(jobs.list_jobs(request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_page_by_number_and_start_with_the_first() {
    let cluster = Cluster::start(1).await;
    cluster.jobs(0).apply_job(apply(service("web", 5))).await.unwrap();
    let mut tasks = cluster.tasks(0);
    until("five tasks", async || {
        let list = tasks.list_tasks(pb::ListTasksRequest::default()).await.unwrap().into_inner();
        (list.tasks.len() == 5).then_some(())
    })
    .await;
    let mut request = pb::ListTasksRequest { page_size: 2, read: stale(), ..pb::ListTasksRequest::default() };
    let mut ids = Vec::new();
    loop {
        let page = tasks.list_tasks(request.clone()).await.unwrap().into_inner();
        ids.extend(page.tasks.into_iter().map(|t| t.id));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, ["t0", "t1", "t2", "t3", "t4"]);
    let task = pb::GetTaskRequest { id: "t4".to_owned(), read: None };
    let task = tasks.get_task(task).await.unwrap().into_inner().task.unwrap();
    until("an explanation", async || {
        let again = pb::GetTaskRequest { id: task.id.clone(), read: None };
        let task = tasks.get_task(again).await.unwrap().into_inner().task.unwrap();
        task.placement_failure.map(|f| assert_eq!(f.summary, "no node has joined the cluster"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_alone_is_not_ready_and_serves_stale_reads_alone() {
    let mut cluster = Cluster::prepare(3).await;
    cluster.run(0).await;
    let mut health = HealthClient::new(channel(&cluster.members[0].addresses.api.to_string()));
    let mut check = async |cluster_ready: ServingStatus| {
        until("the expected health", async || {
            let answer = health.check(HealthCheckRequest { service: String::new() }).await.ok()?;
            (answer.into_inner().status() == cluster_ready).then_some(())
        })
        .await;
    };
    check(ServingStatus::NotServing).await;
    let fresh = cluster.jobs(0).list_jobs(pb::ListJobsRequest::default()).await.unwrap_err();
    assert_eq!(fresh.code(), tonic::Code::Unavailable);
    let list = pb::ListJobsRequest { read: stale(), ..pb::ListJobsRequest::default() };
    assert!(cluster.jobs(0).list_jobs(list).await.unwrap().into_inner().jobs.is_empty());
    cluster.run(1).await;
    cluster.run(2).await;
    check(ServingStatus::Serving).await;
}
