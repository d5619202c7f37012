//! The watch hub: turns what the state machine tells into changes that watchers read.
//!
//! One task per manager converts every change once and keeps the newest in a [`ring`]. A watcher is a place in that
//! ring, so a slow one costs the others nothing: it falls out of the ring's end and is told so. Any manager has the
//! same changes at the same revisions, so a watch goes on at another one.

pub(crate) mod filter;
pub(crate) mod ring;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use prost::Message as _;
use quorate_base::{
    sync::lock,
    tasks::{TaskGroup, TaskKind},
};
use quorate_model::Revision;
use quorate_raft::{Node, Update};
use quorate_state::{Change, Event, Object, State};
use quorate_wire::api::{self as pb, change};
use tokio::sync::{broadcast, watch};

use filter::Tags;
use ring::{Bounds, Entry, Missing, Ring, Tagged};

/// How much of the past is kept.
const BOUNDS: Bounds = Bounds { entries: 100_000, bytes: 64 << 20 };

/// The changes of the near past, for many readers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    ring: Arc<Mutex<Ring>>,
    head: watch::Sender<Revision>,
}

impl Hub {
    /// Starts to collect. Call it as early as possible: what comes before is not known.
    pub(crate) fn start(node: &Node, group: &TaskGroup) -> Self {
        // In this order: what is applied in between comes twice, and is left out the second time.
        let updates = node.updates();
        let view = node.view();
        let base = view.applied().index;
        let hub =
            Self { ring: Arc::new(Mutex::new(Ring::new(base, BOUNDS))), head: watch::Sender::new(base) };
        let feed = Feed { hub: hub.clone(), node: node.clone(), updates, before: view };
        group.spawn(TaskKind::critical("watch hub"), feed.run());
        hub
    }

    /// At most `most` entries after `place`.
    ///
    /// # Errors
    /// [`Missing`]
    pub(crate) fn after(&self, place: Revision, most: usize) -> Result<Vec<Arc<Entry>>, Missing> {
        lock(&self.ring).after(place, most)
    }

    /// Every change up to here can be read; it grows.
    pub(crate) fn head(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// The oldest place that can be read from.
    pub(crate) fn oldest(&self) -> Revision {
        lock(&self.ring).oldest()
    }
}

/// Feeds a hub.
struct Feed {
    hub: Hub,
    node: Node,
    updates: broadcast::Receiver<Update>,
    /// The state as it was when the newest changes came: it still knows the names of what is gone by now.
    before: State,
}

impl Feed {
    async fn run(mut self) -> Result<(), Infallible> {
        let mut applied = self.node.applied();
        loop {
            // Entries without changes move the head, too. Changes are told before their entry counts as applied, so
            // that all of them are in the queue by now.
            let reached = *applied.borrow_and_update();
            let mut closed = false;
            loop {
                match self.updates.try_recv() {
                    Ok(update) => self.take(update),
                    Err(broadcast::error::TryRecvError::Empty) => break,
                    Err(broadcast::error::TryRecvError::Lagged(_)) => self.restart(),
                    Err(broadcast::error::TryRecvError::Closed) => {
                        closed = true;
                        break;
                    }
                }
            }
            let head = {
                let mut ring = lock(&self.hub.ring);
                ring.reach(reached);
                ring.head()
            };
            self.hub.head.send_if_modified(|known| std::mem::replace(known, head) != head);
            if closed || applied.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Changed { revision, events } => {
                let now = self.node.view();
                let time = now.now();
                let changes = events.iter().filter_map(|event| tagged(event, &now, &self.before)).collect();
                self.before = now;
                lock(&self.hub.ring).push(Entry { revision, time, changes });
            }
            Update::Replaced { .. } => self.restart(),
        }
    }

    /// What happened meanwhile is not known change by change.
    fn restart(&mut self) {
        self.before = self.node.view();
        lock(&self.hub.ring).restart(self.before.applied().index);
    }
}

/// A change as watchers get it.
fn tagged(event: &Event, now: &State, before: &State) -> Option<Tagged> {
    let tags = Tags::of(&event.object, now, before)?;
    let kind = match event.change {
        Change::Created => pb::ChangeKind::Created,
        Change::Updated => pb::ChangeKind::Updated,
        Change::Deleted => pb::ChangeKind::Deleted,
    };
    let change = pb::Change { kind: kind.into(), object: Some(object(&event.object, now, before)?) };
    Some(Tagged { tags, bytes: change.encoded_len(), change })
}

/// An object as clients see it.
pub(crate) fn object(object: &Object, now: &State, before: &State) -> Option<change::Object> {
    Some(match object {
        Object::Job(job) => change::Object::Job(pb::job(now, job)),
        Object::Task(task) => {
            let state = if now.job(task.job).is_some() { now } else { before };
            change::Object::Task(pb::task(state, task))
        }
        Object::Node(node) => change::Object::Node(pb::node(now, node)),
        // Its part in Raft is not part of the state.
        Object::Manager(manager) => {
            change::Object::Manager(pb::manager(manager, pb::ManagerRole::Unspecified, false, None))
        }
        Object::Settings(_) => return None,
    })
}
