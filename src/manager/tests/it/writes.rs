//! Writes through any manager.

use quorate_wire::{
    api::{self as pb, job_spec::Kind},
    common,
    status::{ApiError, Reason},
};
use tonic::{Code, Status};

use crate::cluster::Cluster;

/// A legal service of the process runtime.
pub(crate) fn service(name: &str, replicas: u32) -> pb::JobSpec {
    let container = common::ContainerSpec {
        runtime: common::Runtime::Fake.into(),
        reserve: Some(common::Resources { cpu_millis: 10, memory_bytes: 1 << 20 }),
        ..common::ContainerSpec::default()
    };
    pb::JobSpec {
        name: name.to_owned(),
        kind: Some(Kind::Service(pb::ServiceSpec { replicas })),
        containers: [("app".to_owned(), container)].into(),
        ..pb::JobSpec::default()
    }
}

pub(crate) fn apply(spec: pb::JobSpec) -> pb::ApplyJobRequest {
    pb::ApplyJobRequest { spec: Some(spec), ..pb::ApplyJobRequest::default() }
}

pub(crate) fn reason(status: &Status) -> Reason {
    ApiError::from_status(status).reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_through_a_follower_is_read_on_every_manager() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let answer = cluster.jobs(follower).apply_job(apply(service("web", 2))).await.unwrap().into_inner();
    assert!(answer.created && !answer.unchanged);
    let job = answer.job.unwrap();
    assert_eq!((job.name.as_str(), job.version), ("web", 1));
    let meta = answer.meta.unwrap();
    assert_eq!(meta.manager, meta.leader, "the leader answered");
    for at in 0..3 {
        let request = pb::GetJobRequest { name: "web".to_owned(), ..pb::GetJobRequest::default() };
        let read = cluster.jobs(at).get_job(request).await.unwrap().into_inner();
        assert_eq!(read.job.unwrap().etag, job.etag);
        assert!(read.meta.unwrap().applied_revision >= answer.revision);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_through_another_manager_has_one_effect_and_the_first_answer() {
    let cluster = Cluster::start(3).await;
    let mut request = apply(service("web", 2));
    request.request_id = "01JDZK0000000000000000RETRY".to_owned();
    let mut answers = Vec::new();
    for at in 0..3 {
        answers.push(cluster.jobs(at).apply_job(request.clone()).await.unwrap().into_inner());
    }
    assert!(answers.iter().all(|a| a.created && a.revision == answers[0].revision));
    request.spec.as_mut().unwrap().priority = 7;
    let refused = cluster.jobs(0).apply_job(request).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, Reason::RequestIdReused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_write_has_its_own_error() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    let stored = jobs.apply_job(apply(service("web", 1))).await.unwrap().into_inner().job.unwrap();

    let missing = jobs.apply_job(pb::ApplyJobRequest::default()).await.unwrap_err();
    assert_eq!(reason(&missing), Reason::JobInvalid);

    let mut bad = service("web", 2_000_000);
    bad.priority = 101;
    let bad = jobs.apply_job(apply(bad)).await.unwrap_err();
    assert_eq!(reason(&bad), Reason::JobInvalid);
    let paths: Vec<_> = ApiError::from_status(&bad).violations.0.into_iter().map(|v| v.path).collect();
    assert_eq!(paths, ["replicas", "priority"]);

    let mut large = service("large", 1);
    let text = "x".repeat(1 << 20);
    large.containers.get_mut("app").unwrap().env = [("A".to_owned(), text)].into();
    assert_eq!(reason(&jobs.apply_job(apply(large)).await.unwrap_err()), Reason::SpecTooLarge);

    let mut batch = service("web", 1);
    batch.kind = Some(Kind::Batch(pb::BatchSpec { completions: 1, parallelism: 1 }));
    assert_eq!(reason(&jobs.apply_job(apply(batch)).await.unwrap_err()), Reason::JobTypeChanged);

    let mut stale = apply(service("web", 3));
    stale.etag = "0".to_owned();
    let conflict = jobs.apply_job(stale.clone()).await.unwrap_err();
    assert_eq!((conflict.code(), reason(&conflict)), (Code::AlreadyExists, Reason::JobExists));
    stale.etag = "nonsense".to_owned();
    assert_eq!(jobs.apply_job(stale.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    stale.etag = stored.etag;
    assert_eq!(jobs.apply_job(stale).await.unwrap().into_inner().job.unwrap().version, 2);

    let gone = pb::ScaleJobRequest { name: "gone".to_owned(), replicas: 1, ..pb::ScaleJobRequest::default() };
    assert_eq!(reason(&jobs.scale_job(gone).await.unwrap_err()), Reason::JobNotFound);
    let gone = pb::DeleteJobRequest { name: "gone".to_owned(), ..pb::DeleteJobRequest::default() };
    assert_eq!(reason(&jobs.delete_job(gone).await.unwrap_err()), Reason::JobNotFound);
    let mut id = apply(service("id", 1));
    id.request_id = "two words".to_owned();
    assert_eq!(reason(&jobs.apply_job(id).await.unwrap_err()), Reason::ArgumentInvalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checking_alone_writes_nothing() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    let mut request = apply(service("web", 1));
    request.validate_only = true;
    let answer = jobs.apply_job(request).await.unwrap().into_inner();
    assert!(answer.created && answer.revision == 0);
    let list = jobs.list_jobs(pb::ListJobsRequest::default()).await.unwrap().into_inner();
    assert!(list.jobs.is_empty());

    jobs.apply_job(apply(service("web", 1))).await.unwrap();
    let mut batch = service("web", 1);
    batch.kind = Some(Kind::Batch(pb::BatchSpec { completions: 1, parallelism: 1 }));
    let refused =
        jobs.apply_job(pb::ApplyJobRequest { validate_only: true, ..apply(batch) }).await.unwrap_err();
    assert_eq!(reason(&refused), Reason::JobTypeChanged, "what would be refused is not called valid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_a_write_says_that_nothing_was_done() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let others: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
    for at in &others {
        cluster.stop(*at).await;
    }
    cluster.stop(leader).await;
    cluster.run(others[0]).await;
    let refused = cluster.jobs(others[0]).apply_job(apply(service("web", 1))).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::Unavailable, Reason::NoLeader));
    assert!(ApiError::from_status(&refused).retry_after.is_some());
    let status = cluster.cluster(others[0]).get_cluster_status(pb::GetClusterStatusRequest {}).await;
    assert_eq!(status.unwrap().into_inner().meta.unwrap().leader, "", "works without a leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_large_jobs_loses_none() {
    let cluster = Cluster::start(1).await;
    let writes = (0..64).map(|i| {
        let mut spec = service(&format!("large-{i}"), 0);
        let text = "x".repeat(600 << 10);
        spec.containers.get_mut("app").unwrap().env = [("A".to_owned(), text)].into();
        let mut jobs = cluster.jobs(0);
        async move { jobs.apply_job(apply(spec)).await }
    });
    for written in futures::future::join_all(writes).await {
        assert!(written.unwrap().into_inner().created);
    }
}
