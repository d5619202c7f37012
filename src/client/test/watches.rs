//! Watches over lost, silent, lagging and forgetful managers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use quorate_base::sync::lock;
use quorate_base::{TaskGroup, TaskKind};
use quorate_pki::{Profile, Security};
use quorate_wire::api::watch_service_server::{WatchService, WatchServiceServer};
use quorate_wire::api::*;
use quorate_wire::common::ResponseMeta;
use quorate_wire::status::{ApiError, Reason};
use tonic::{Request, Response, Status};

use super::fake::{dead_address, options};
use super::{client, group};
use crate::{ClientError, Watch, WatchEvent};

/// One stream: its messages, and its end; `None` = it stays open.
type Script = (Vec<WatchResponse>, Option<Status>);

/// A manager that plays its scripts, a stream each, and is silent after those.
#[derive(Clone)]
struct Fake {
    address: String,
    scripts: Arc<Mutex<VecDeque<Script>>>,
    asked: Arc<Mutex<Vec<u64>>>,
}

impl Fake {
    async fn start(group: &TaskGroup, scripts: impl IntoIterator<Item = Script>) -> Self {
        let security = Security::PlaintextLoopback;
        let listener = security.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let fake = Self {
            address: listener.local_addr().to_string(),
            scripts: Arc::new(Mutex::new(scripts.into_iter().collect())),
            asked: Arc::default(),
        };
        let router = security.server(Profile::Api).add_service(WatchServiceServer::new(fake.clone()));
        group.spawn(TaskKind::critical("fake"), router.serve_with_incoming(listener.incoming()));
        fake
    }

    /// The revisions after which it was asked to go on.
    fn asked(&self) -> Vec<u64> {
        lock(&self.asked).clone()
    }
}

#[tonic::async_trait]
impl WatchService for Fake {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        lock(&self.asked).push(request.get_ref().start_revision);
        let (messages, end) = lock(&self.scripts).pop_front().unwrap_or_default();
        let messages = stream::iter(messages.into_iter().map(Ok));
        Ok(Response::new(match end {
            Some(end) => messages.chain(stream::once(async { Err(end) })).boxed(),
            None => messages.chain(stream::pending()).boxed(),
        }))
    }
}

fn node(name: &str) -> Change {
    let node = Node { name: name.to_owned(), ..Default::default() };
    Change { kind: ChangeKind::Updated.into(), object: Some(change::Object::Node(node)) }
}

fn change(revision: u64, name: &str, partial: bool) -> WatchResponse {
    WatchResponse { revision, changes: vec![node(name)], partial, ..Default::default() }
}

fn snapshot(revision: u64, name: &str) -> WatchResponse {
    WatchResponse { snapshot: true, ..change(revision, name, true) }
}

/// A bookmark of a manager that heard from the leader so many seconds ago.
fn bookmark(revision: u64, manager: &str, seconds: u64) -> WatchResponse {
    let last_contact = Some(quorate_wire::common::duration(Duration::from_secs(seconds)));
    let meta = Some(ResponseMeta { manager: manager.to_owned(), last_contact, ..Default::default() });
    WatchResponse { revision, bookmark: true, meta, ..Default::default() }
}

fn end(reason: Reason) -> Option<Status> {
    Some(ApiError::new(reason, "the fake says so").into())
}

fn told(event: WatchEvent) -> String {
    let names = |changes: Vec<Change>| {
        let name = |change| match change {
            Change { object: Some(change::Object::Node(node)), .. } => node.name,
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(name).collect::<Vec<_>>().join("+")
    };
    match event {
        WatchEvent::Snapshot { revision, changes } => format!("snapshot {revision} {}", names(changes)),
        WatchEvent::Changes { revision, changes, .. } => format!("{revision} {}", names(changes)),
        WatchEvent::Bookmark { revision, .. } => format!("reached {revision}"),
        WatchEvent::Moved { from, to, .. } => format!("{from} to {to}"),
        WatchEvent::Restarted { .. } => "restarted".to_owned(),
    }
}

async fn events(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
        all.push(told(next.expect("an event comes").unwrap()));
    }
    all
}

#[tokio::test]
async fn a_break_within_a_revision_goes_on_elsewhere_without_a_gap_or_a_repetition() {
    let group = group();
    for reason in [Reason::ShuttingDown, Reason::NoLeader, Reason::StaleRead, Reason::WatchTooSlow] {
        let first = vec![
            snapshot(5, "a"),
            snapshot(5, "b"),
            bookmark(5, "m1", 0),
            change(7, "c", false),
            change(9, "half", true),
        ];
        // It repeats what was finished: that is passed over.
        let second = vec![
            bookmark(7, "m2", 0),
            change(7, "c", false),
            change(9, "d", true),
            change(9, "e", false),
            change(10, "f", false),
        ];
        let (a, b) =
            (Fake::start(&group, [(first, end(reason))]).await, Fake::start(&group, [(second, None)]).await);
        let mut watch = client(&[&a.address, &b.address], options()).watch(WatchRequest::default());
        let seen = events(&mut watch, 7).await;
        let wanted = ["snapshot 5 a+b", "reached 5", "7 c", "m1 to m2", "reached 7", "9 d+e", "10 f"]
            .map(String::from);
        assert_eq!(seen, wanted, "{reason}");
        assert_eq!((a.asked(), b.asked(), watch.revision()), (vec![0], vec![7], 10));
    }
}

#[tokio::test]
async fn a_snapshot_that_broke_begins_anew() {
    let group = group();
    let a = Fake::start(&group, [(vec![snapshot(5, "a")], end(Reason::ShuttingDown))]).await;
    let b = Fake::start(&group, [(vec![bookmark(6, "m2", 0)], None)]).await;
    let mut watch = client(&[&a.address, &b.address], options()).watch(WatchRequest::default());
    assert_eq!(events(&mut watch, 2).await, ["snapshot 6 ", "reached 6"]);
    assert_eq!((a.asked(), b.asked()), (vec![0], vec![0]));
}

#[tokio::test]
async fn another_manager_may_have_what_one_compacted_and_where_none_has_a_snapshot_follows() {
    let group = group();
    let resume = WatchRequest { start_revision: 4, ..Default::default() };
    let gone = || (vec![], end(Reason::RevisionCompacted));
    let a = Fake::start(&group, [gone()]).await;
    let b = Fake::start(&group, [(vec![bookmark(4, "m2", 0), change(5, "a", false)], None)]).await;
    let mut watch = client(&[&a.address, &b.address], options()).watch(resume.clone());
    assert_eq!(events(&mut watch, 2).await, ["reached 4", "5 a"]);

    let fresh = (vec![snapshot(9, "x"), bookmark(9, "m1", 0)], None);
    let (a, b) = (Fake::start(&group, [gone(), fresh]).await, Fake::start(&group, [gone()]).await);
    let mut watch = client(&[&a.address, &b.address], options()).watch(resume);
    assert_eq!(events(&mut watch, 1).await, ["restarted"]);
    assert_eq!((a.asked(), b.asked()), (vec![4], vec![4]));
    assert_eq!(watch.revision(), 0);
}

#[tokio::test]
async fn a_manager_that_says_nothing_is_left() {
    let group = group();
    let a = Fake::start(&group, [(vec![bookmark(3, "m1", 0)], None)]).await;
    let b = Fake::start(&group, [(vec![bookmark(3, "m2", 0), change(4, "a", false)], None)]).await;
    let resume = WatchRequest { start_revision: 3, ..Default::default() };
    let mut watch = client(&[&a.address, &b.address], options()).watch(resume);
    assert_eq!(events(&mut watch, 1).await, ["reached 3"]);
    let silence = async {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(13)).await;
        tokio::time::resume();
    };
    let (seen, ()) = tokio::join!(events(&mut watch, 3), silence);
    assert_eq!(seen, ["m1 to m2", "reached 3", "4 a"]);
}

#[tokio::test]
async fn a_manager_cut_off_from_the_leader_is_left_for_one_that_is_not() {
    let group = group();
    let a = Fake::start(&group, [(vec![bookmark(3, "m1", 9)], None)]).await;
    let b = Fake::start(&group, [(vec![bookmark(3, "m2", 1), change(4, "a", false)], None)]).await;
    let resume = WatchRequest { start_revision: 3, ..Default::default() };
    let mut watch = client(&[&a.address, &b.address], options()).watch(resume);
    assert_eq!(events(&mut watch, 4).await, ["reached 3", "m1 to m2", "reached 3", "4 a"]);
}

#[tokio::test]
async fn next_may_be_cancelled_at_any_moment() {
    let group = group();
    let first = vec![snapshot(5, "a"), bookmark(5, "m1", 0), change(6, "b", true), change(6, "c", false)];
    let second = vec![bookmark(6, "m2", 0), change(7, "d", false)];
    let a = Fake::start(&group, [(first, end(Reason::ShuttingDown))]).await;
    let b = Fake::start(&group, [(second, None)]).await;
    let mut watch = client(&[&a.address, &b.address], options()).watch(WatchRequest::default());
    let mut seen = Vec::new();
    while seen.len() < 6 {
        // Polled once and dropped.
        match watch.next().now_or_never() {
            Some(event) => seen.push(told(event.unwrap())),
            None => tokio::task::yield_now().await,
        }
    }
    assert_eq!(seen, ["snapshot 5 a", "reached 5", "6 b+c", "m1 to m2", "reached 6", "7 d"]);
    assert_eq!((a.asked(), b.asked()), (vec![0], vec![6]));
}

#[tokio::test]
async fn refusals_for_good_and_managers_that_nobody_reaches_are_told() {
    let group = group();
    for reason in [Reason::ArgumentInvalid, Reason::RevisionInFuture] {
        let a = Fake::start(&group, [(vec![], end(reason))]).await;
        let mut watch = client(&[&a.address], options()).watch(WatchRequest::default());
        match watch.next().await.unwrap_err() {
            ClientError::Api { error, endpoint, .. } => {
                assert_eq!((error.reason, endpoint), (reason, a.address.clone()));
            }
            other => panic!("{other:?}"),
        }
    }
    let options = crate::Options { unreachable_after: Duration::from_millis(1), ..options() };
    let mut watch = client(&[&dead_address().await], options).watch(WatchRequest::default());
    assert!(matches!(watch.next().await, Err(ClientError::Unreachable { .. })));
}
