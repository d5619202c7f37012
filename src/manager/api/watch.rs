//! `WatchService`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use prost::Message as _;
use quorate_base::tasks::{TaskGroup, TaskKind};
use quorate_model::Revision;
use quorate_raft::ReadError;
use quorate_state::{Object, State};
use quorate_telemetry::metrics;
use quorate_wire::{
    api::{self as pb, watch_service_server::WatchService},
    common::timestamp,
    status::{ApiError, Reason},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Request, Response, Status};

use crate::{
    api::output::{Answers, Gone, Output},
    core::{Core, RETRY_AFTER},
    hub::{
        Hub, Present,
        filter::Filter,
        ring::{Entry, Missing},
    },
};

/// Watches that may be open at once on one manager.
const MOST_WATCHES: usize = 10_000;
/// How long a watcher may read nothing while something waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a snapshot may take to be read: it holds on to a state of the past.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(120);
/// How long a manager that lags may take to reach the revision to resume from.
const LAG_DEADLINE: Duration = Duration::from_secs(2);
/// At least as often says a watch how far it is.
const BOOKMARK: Duration = Duration::from_secs(5);
/// Changes and bytes in one message.
const MOST_CHANGES: usize = 500;
const MOST_BYTES: usize = 1 << 20;
/// Objects of a snapshot that are looked at without a pause.
const AT_A_TIME: usize = 2000;
/// Revisions that are read at once.
const AT_ONCE: usize = 64;

/// Serves watches.
#[derive(Clone)]
pub(crate) struct WatchApi {
    core: Core,
    hub: Hub,
    group: TaskGroup,
    open: Arc<Semaphore>,
}

impl WatchApi {
    /// The service; `group` ends with the manager.
    pub(crate) fn new(core: Core, hub: Hub, group: TaskGroup) -> Self {
        Self { core, hub, group, open: Arc::new(Semaphore::new(MOST_WATCHES)) }
    }

    /// Makes sure that this manager has the changes after `place`.
    async fn check(&self, place: Revision) -> Result<(), ApiError> {
        let oldest = self.hub.oldest();
        if place < oldest {
            return Err(compacted(place, oldest));
        }
        let mut head = self.hub.head();
        let reached = head.wait_for(|head| *head >= place);
        if tokio::time::timeout(LAG_DEADLINE, reached).await.is_ok() {
            return Ok(());
        }
        // Does it lag, or is there no such revision?
        let asked = tokio::time::timeout(LAG_DEADLINE, self.core.node.read_index()).await;
        let applied = *self.core.node.applied().borrow();
        match asked {
            Ok(Ok(confirmed)) if confirmed < place => {
                let text = format!("revision {place} lies in the future: the cluster is at {confirmed}");
                let error = ApiError::new(Reason::RevisionInFuture, text).with("revision", place);
                Err(error.with("applied", confirmed))
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(ReadError::NoLeader)) => Err(self.core.no_leader()),
            Ok(Err(_)) | Err(_) => {
                let text =
                    format!("this manager is at revision {applied} and cannot reach {place} at the moment");
                let error = ApiError::new(Reason::StaleRead, text).with("manager", &self.core.name);
                Err(error.with("applied", applied).with("wanted", place).after(RETRY_AFTER))
            }
        }
    }
}

/// Room for one more watch, until it is dropped.
fn room(open: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    open.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{MOST_WATCHES} watches are open on this manager");
        ApiError::new(Reason::TooManyWatches, text).after(Duration::from_secs(1))
    })
}

fn compacted(place: Revision, oldest: Revision) -> ApiError {
    let text = format!(
        "the changes after revision {place} are not kept any more; the oldest are those after {oldest}"
    );
    ApiError::new(Reason::RevisionCompacted, text).with("revision", place).with("oldest", oldest)
}

#[tonic::async_trait]
impl WatchService for WatchApi {
    type WatchStream = Answers<pb::WatchResponse>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let filter = Filter::read(&request)?;
        let room = room(&self.open)?;
        // The snapshot is as fresh as any linearizable read.
        let snapshot = if request.start_revision == 0 {
            Some(self.core.view(None).await?)
        } else {
            self.check(Revision(request.start_revision)).await?;
            None
        };
        let (output, answers) = Output::new(PATIENCE);
        let watcher = Watcher {
            core: self.core.clone(),
            news: self.hub.news(),
            head: self.hub.head(),
            hub: self.hub.clone(),
            place: Revision(request.start_revision),
            filter,
            output,
        };
        let (group, open) = (self.group.clone(), self.open.clone());
        metrics::api_watch_streams(MOST_WATCHES - open.available_permits());
        self.group.spawn(TaskKind::best_effort("watch").drains(), async move {
            watcher.run(snapshot, group).await;
            drop(room);
            metrics::api_watch_streams(MOST_WATCHES - open.available_permits());
            Ok::<(), std::convert::Infallible>(())
        });
        Ok(Response::new(answers))
    }
}

/// One watch.
struct Watcher {
    core: Core,
    hub: Hub,
    head: watch::Receiver<Revision>,
    news: watch::Receiver<Revision>,
    place: Revision,
    filter: Filter,
    output: Output<pb::WatchResponse>,
}

/// Why a watch ends.
enum End {
    Left,
    TooSlow,
    Compacted(Revision),
}

impl From<Gone> for End {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Left => Self::Left,
            Gone::TooSlow => Self::TooSlow,
        }
    }
}

impl Watcher {
    async fn run(mut self, snapshot: Option<State>, group: TaskGroup) {
        let ended = tokio::select! {
            ended = self.serve(snapshot) => Some(ended),
            () = group.cancelled() => None,
        };
        let (word, error) = match ended {
            Some(End::Left) => return,
            Some(End::TooSlow) => {
                let text = format!("the watch was read too slowly; resume after revision {}", self.place);
                ("slow", ApiError::new(Reason::WatchTooSlow, text).with("revision", self.place))
            }
            Some(End::Compacted(oldest)) => ("compacted", compacted(self.place, oldest)),
            None => {
                let error = ApiError::new(Reason::ShuttingDown, "this manager is stopping");
                ("stopping", error.with("revision", self.place).after(RETRY_AFTER))
            }
        };
        metrics::api_watches_cut(word, 1);
        self.output.end(Some(error.with("manager", &self.core.name)));
    }

    async fn serve(&mut self, snapshot: Option<State>) -> End {
        let ended = match snapshot {
            Some(state) => {
                let sent = tokio::time::timeout(SNAPSHOT_DEADLINE, self.snapshot(state)).await;
                sent.unwrap_or(Err(Gone::TooSlow))
            }
            None => self.bookmark().await,
        };
        match ended {
            Ok(()) => self.follow().await,
            Err(gone) => gone.into(),
        }
    }

    /// The objects as they are, and the bookmark that ends them.
    async fn snapshot(&mut self, state: State) -> Result<(), Gone> {
        let revision = state.applied().index;
        let none = BTreeMap::new();
        let present = Present::of(&state, &none);
        let mut message = pb::WatchResponse { meta: Some(self.core.meta(&state)), ..part(revision) };
        let (mut bytes, mut looked_at) = (0, 0_usize);
        // Each kind by its own order; the state does not change under us.
        let managers = state.managers().cloned().map(Object::Manager);
        let nodes = state.nodes().cloned().map(Object::Node);
        let jobs = state.jobs().cloned().map(Object::Job);
        let tasks = state.tasks().cloned().map(Object::Task);
        for object in managers.chain(nodes).chain(jobs).chain(tasks) {
            let Some(tags) = present.tags(&object) else { continue };
            looked_at += 1;
            if looked_at % AT_A_TIME == 0 {
                // A filter that takes little must not hold a worker for the whole state.
                tokio::task::yield_now().await;
            }
            if !self.filter.takes(&tags) {
                continue;
            }
            let kind = pb::ChangeKind::Present.into();
            let change = pb::Change { kind, object: present.object(&object) };
            bytes += change.encoded_len();
            message.changes.push(change);
            if message.changes.len() >= MOST_CHANGES || bytes >= MOST_BYTES {
                self.output.offer(std::mem::replace(&mut message, part(revision))).await?;
                bytes = 0;
            }
        }
        if !message.changes.is_empty() {
            self.output.offer(message).await?;
        }
        self.place = revision;
        self.bookmark().await
    }

    async fn bookmark(&mut self) -> Result<(), Gone> {
        let view = self.core.node.view();
        let message = pb::WatchResponse {
            revision: self.place.0,
            bookmark: true,
            time: Some(timestamp(view.now())),
            meta: Some(self.core.meta(&view)),
            ..pb::WatchResponse::default()
        };
        self.output.offer(message).await
    }

    async fn follow(&mut self) -> End {
        let mut due = self.core.clock.monotonic().saturating_add(BOOKMARK);
        loop {
            if self.core.clock.monotonic() >= due {
                if let Err(gone) = self.bookmark().await {
                    return gone.into();
                }
                due = self.core.clock.monotonic().saturating_add(BOOKMARK);
            }
            // In this order: what comes in between is read, and wakes once more.
            self.news.mark_unchanged();
            let head = *self.head.borrow();
            let entries = match self.hub.after(self.place, AT_ONCE) {
                Ok(entries) => entries,
                Err(Missing::Replaced { oldest }) => return End::Compacted(oldest),
                Err(Missing::Dropped { .. }) => return End::TooSlow,
            };
            let full = entries.len() == AT_ONCE;
            for entry in entries {
                if let Err(gone) = self.entry(&entry).await {
                    return gone.into();
                }
                self.place = entry.revision;
            }
            if full {
                continue;
            }
            // Nothing of interest up to the head.
            self.place = self.place.max(head);
            tokio::select! {
                changed = self.news.changed() => if changed.is_err() { return End::Left },
                () = self.core.clock.sleep_until(due) => {}
                () = self.output.closed() => return End::Left,
            }
        }
    }

    /// Sends what the watcher wants of a revision.
    async fn entry(&mut self, entry: &Entry) -> Result<(), Gone> {
        let wanted = || entry.changes.iter().filter(|change| self.filter.takes(&change.tags));
        let mut messages = Vec::new();
        let (mut message, mut bytes) = (of(entry), 0);
        for tagged in wanted() {
            if message.changes.len() >= MOST_CHANGES || bytes >= MOST_BYTES {
                messages
                    .push(pb::WatchResponse { partial: true, ..std::mem::replace(&mut message, of(entry)) });
                bytes = 0;
            }
            bytes += tagged.bytes;
            message.changes.push(tagged.change.clone());
        }
        if message.changes.is_empty() {
            return Ok(());
        }
        messages.push(message);
        for message in messages {
            self.output.offer(message).await?;
        }
        Ok(())
    }
}

fn of(entry: &Entry) -> pb::WatchResponse {
    pb::WatchResponse {
        revision: entry.revision.0,
        time: Some(timestamp(entry.time)),
        ..pb::WatchResponse::default()
    }
}

fn part(revision: Revision) -> pb::WatchResponse {
    pb::WatchResponse { revision: revision.0, partial: true, snapshot: true, ..pb::WatchResponse::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_bounded_in_number() {
        let open = Arc::new(Semaphore::new(1));
        let first = room(&open).unwrap();
        let refused = room(&open).unwrap_err();
        assert_eq!(refused.reason, Reason::TooManyWatches);
        assert!(refused.retry_after.is_some());
        drop(first);
        assert!(room(&open).is_ok());
    }
}
