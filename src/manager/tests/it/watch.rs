//! Watches: snapshot and changes, resumed on any manager, refused by name.

use std::collections::BTreeMap;

use quorate_wire::{
    api::{self, change::Object, watch_service_client::WatchServiceClient},
    status::{ApiError, Reason},
};
use tonic::{Status, Streaming};

use crate::{
    cluster::{Cluster, PATIENCE, channel},
    writes::{apply, service},
};

/// One watch, put together by hand.
struct Watch {
    stream: Streaming<api::WatchResponse>,
}

/// What happened at one revision: kind of the change, and which object.
type Told = (u64, Vec<(i32, String)>);

impl Watch {
    async fn open(cluster: &Cluster, at: usize, request: api::WatchRequest) -> Result<Self, Status> {
        let address = cluster.members[at].addresses.api.to_string();
        let mut client = WatchServiceClient::new(channel(&address));
        Ok(Self { stream: client.watch(request).await?.into_inner() })
    }

    async fn next(&mut self) -> Result<Option<api::WatchResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.stream.message()).await.expect("nothing was said")
    }

    /// The snapshot's revision and objects.
    async fn snapshot(&mut self) -> (u64, BTreeMap<String, Object>) {
        let mut objects = BTreeMap::new();
        loop {
            let message = self.next().await.unwrap().unwrap();
            if message.bookmark {
                assert!(message.meta.unwrap().applied_revision >= message.revision);
                return (message.revision, objects);
            }
            assert!(message.snapshot && message.partial, "only the bookmark ends a snapshot");
            for change in message.changes {
                assert_eq!(change.kind(), api::ChangeKind::Present);
                let object = change.object.unwrap();
                objects.insert(key(&object), object);
            }
        }
    }

    /// The next revision with changes.
    async fn told(&mut self) -> Told {
        let mut changes = Vec::new();
        loop {
            let message = self.next().await.unwrap().unwrap();
            if message.bookmark {
                continue;
            }
            changes.extend(message.changes.iter().map(|c| (c.kind, key(c.object.as_ref().unwrap()))));
            if !message.partial {
                return (message.revision, changes);
            }
        }
    }

    /// Everything up to the revision at which `wanted` was told.
    async fn until(&mut self, wanted: &(i32, String)) -> Vec<Told> {
        let mut all = Vec::new();
        loop {
            let told = self.told().await;
            assert!(all.last().is_none_or(|last: &Told| last.0 < told.0), "revisions grow");
            let found = told.1.contains(wanted);
            all.push(told);
            if found {
                return all;
            }
        }
    }
}

fn key(object: &Object) -> String {
    match object {
        Object::Job(job) => format!("job {}/{}", job.namespace, job.name),
        Object::Task(task) => format!("task {}", task.id),
        Object::Node(node) => format!("node {}", node.name),
        Object::Manager(manager) => format!("manager {}", manager.name),
    }
}

fn reason<T>(answer: Result<T, Status>) -> Reason {
    ApiError::from_status(&answer.err().expect("it must be refused")).reason
}

/// A stream that is refused says so at once or with its first message.
async fn refused(cluster: &Cluster, at: usize, request: api::WatchRequest) -> Reason {
    match Watch::open(cluster, at, request).await {
        Err(status) => ApiError::from_status(&status).reason,
        Ok(mut watch) => reason(watch.next().await),
    }
}

const CREATED: i32 = api::ChangeKind::Created as i32;
const DELETED: i32 = api::ChangeKind::Deleted as i32;

fn job(name: &str) -> String {
    format!("job default/{name}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_what_is_there_and_then_every_change_on_every_manager_alike() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut jobs = cluster.jobs(leader);
    jobs.apply_job(apply(service("first", 2))).await.unwrap();
    let mut watches = Vec::new();
    for at in 0..3 {
        let mut watch = Watch::open(&cluster, at, api::WatchRequest::default()).await.unwrap();
        let (revision, objects) = watch.snapshot().await;
        assert!(objects.contains_key(&job("first")) && objects.contains_key("manager m1"), "{at}");
        watches.push((watch, revision));
    }
    let from = watches.iter().map(|(_, revision)| *revision).max().unwrap();
    jobs.apply_job(apply(service("second", 2))).await.unwrap();
    crate::cluster::until("two tasks", async || {
        let request = api::ListTasksRequest { job: "second".into(), ..Default::default() };
        let tasks = cluster.tasks(leader).list_tasks(request).await.unwrap().into_inner().tasks;
        (tasks.len() == 2).then_some(())
    })
    .await;
    let purge = api::DeleteJobRequest { name: "second".into(), purge: true, ..Default::default() };
    jobs.delete_job(purge).await.unwrap();
    let mut all = Vec::new();
    for (watch, _) in &mut watches {
        let mut told = watch.until(&(DELETED, job("second"))).await;
        told.retain(|(revision, _)| *revision > from);
        all.push(told);
    }
    assert!(all[0].iter().any(|(_, changes)| changes.contains(&(CREATED, job("second")))));
    assert!(all[0].iter().any(|(_, changes)| changes.iter().any(|(_, key)| key.starts_with("task "))));
    assert_eq!(all[0], all[1], "the same changes at the same revisions");
    assert_eq!(all[0], all[2]);

    // From the middle on, on each manager, nothing is missing and nothing comes twice.
    let middle = all[0][all[0].len() / 2].0;
    let rest: Vec<Told> = all[0].iter().filter(|(revision, _)| *revision > middle).cloned().collect();
    for at in 0..3 {
        let request = api::WatchRequest { start_revision: middle, ..Default::default() };
        let mut resumed = Watch::open(&cluster, at, request).await.unwrap();
        assert_eq!(resumed.until(&(DELETED, job("second"))).await, rest, "manager {at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_choose_and_what_is_wrong_is_named() {
    let cluster = Cluster::start(1).await;
    let mut jobs = cluster.jobs(0);
    for name in ["web", "db"] {
        let mut spec = service(name, 1);
        spec.labels = [("app".to_owned(), name.to_owned())].into();
        jobs.apply_job(apply(spec)).await.unwrap();
    }
    let seen = async |request: api::WatchRequest| {
        let mut watch = Watch::open(&cluster, 0, request).await.unwrap();
        watch.snapshot().await.1.into_keys().filter(|key| key.starts_with("job")).collect::<Vec<_>>()
    };
    let all = api::WatchRequest::default;
    assert_eq!(seen(all()).await, [job("db"), job("web")]);
    assert_eq!(seen(api::WatchRequest { job: "web".into(), ..all() }).await, [job("web")]);
    assert_eq!(seen(api::WatchRequest { selector: "app!=web".into(), ..all() }).await, [job("db")]);
    let tasks = vec![api::ObjectKind::Task as i32];
    assert!(seen(api::WatchRequest { kinds: tasks, ..all() }).await.is_empty());
    for wrong in [
        api::WatchRequest { kinds: vec![99], ..all() },
        api::WatchRequest { job: "No Name".into(), ..all() },
        api::WatchRequest { namespace: "No Name".into(), ..all() },
        api::WatchRequest { selector: "=".into(), ..all() },
        api::WatchRequest { task: "web".into(), ..all() },
    ] {
        assert_eq!(refused(&cluster, 0, wrong.clone()).await, Reason::ArgumentInvalid, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forgotten_past_and_the_future_are_errors_of_their_own() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut jobs = cluster.jobs(leader);
    let first = jobs.apply_job(apply(service("first", 1))).await.unwrap().into_inner().revision;
    let request = |start_revision| api::WatchRequest { start_revision, ..Default::default() };
    assert_eq!(refused(&cluster, leader, request(1 << 40)).await, Reason::RevisionInFuture);
    // A manager that starts from an image does not know what came before it.
    let follower = cluster.follower().await;
    cluster.manager(follower).node().build_image().await.unwrap();
    crate::cluster::until("an image", async || {
        let status = cluster.manager(follower).node().status();
        status.snapshot.is_some_and(|index| index.0 >= first).then_some(())
    })
    .await;
    cluster.stop(follower).await;
    cluster.run(follower).await;
    cluster.leader().await;
    assert_eq!(refused(&cluster, follower, request(1)).await, Reason::RevisionCompacted);
    // Elsewhere it goes on.
    let mut watch = Watch::open(&cluster, leader, request(first - 1)).await.unwrap();
    assert!(watch.told().await.0 >= first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_stops_says_so_to_its_watchers() {
    let mut cluster = Cluster::start(1).await;
    let mut watch = Watch::open(&cluster, 0, api::WatchRequest::default()).await.unwrap();
    watch.snapshot().await;
    cluster.stop(0).await;
    let end = loop {
        match watch.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a watch has no good end"),
            Err(status) => break status,
        }
    };
    assert_eq!(ApiError::from_status(&end).reason, Reason::ShuttingDown, "{end:?}");
}

/// Tasks are told with their job's name also when the job is forgotten at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_and_goes_at_once_is_told_by_name() {
    let cluster = Cluster::start(1).await;
    let mut watch = Watch::open(&cluster, 0, api::WatchRequest::default()).await.unwrap();
    watch.snapshot().await;
    let mut jobs = cluster.jobs(0);
    for i in 0..20 {
        let name = format!("brief-{i}");
        jobs.apply_job(apply(service(&name, 3))).await.unwrap();
        let purge = api::DeleteJobRequest { name, purge: true, ..Default::default() };
        jobs.delete_job(purge).await.unwrap();
    }
    let last = (DELETED, job("brief-19"));
    loop {
        let message = watch.next().await.unwrap().unwrap();
        for change in &message.changes {
            if let Some(Object::Task(task)) = &change.object {
                assert!(task.job.starts_with("brief-") && task.namespace == "default", "{task:?}");
            }
        }
        if message.changes.iter().any(|c| (c.kind, key(c.object.as_ref().unwrap())) == last) {
            return;
        }
    }
}
