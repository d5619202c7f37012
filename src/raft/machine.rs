//! The replicated state under openraft: applies entries, publishes what
//! changed, builds and installs images off the async workers.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::entry::{EntryPayload, RaftEntry};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use quorate_base::sync::lock;
use quorate_base::tasks::spawn_thread;
use quorate_model::{Revision, Term};
use quorate_state::{Builder, Event, Halt, Position, State, apply};
use quorate_storage::{Image, ImageId, ImageStore, StorageError};
use quorate_wire::store::{RecordReader, decode_batch, write_record};
use tokio::sync::{broadcast, watch};

use crate::codec::{get_meta, put_meta};
use crate::types::{
    Commands, Entry, LogId, Replies, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, term_of,
};

/// What watchers of the state are told, in order.
#[derive(Debug, Clone)]
pub enum Update {
    /// One log entry changed these objects.
    Changed {
        /// The entry's index.
        revision: Revision,
        /// Its changes, in order.
        events: Arc<[Event]>,
    },
    /// The whole state was replaced by an image: changes in between are not
    /// known one by one.
    Replaced {
        /// The revision of the new state.
        revision: Revision,
    },
}

impl Update {
    /// The revision that the state has after it.
    pub fn revision(&self) -> Revision {
        match self {
            Update::Changed { revision, .. } | Update::Replaced { revision } => *revision,
        }
    }
}

/// Where the state stands.
#[derive(Debug, Clone, Default)]
struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
}

/// What the rest of the crate sees of the state machine.
#[derive(Debug)]
pub(crate) struct Published {
    inner: Mutex<Inner>,
    applied: watch::Sender<Revision>,
    updates: broadcast::Sender<Update>,
    halt: watch::Sender<Option<Halt>>,
}

impl Published {
    fn new(inner: Inner, update_queue: usize) -> Published {
        let revision = Revision(inner.applied.map_or(0, |id| id.index));
        Published {
            inner: Mutex::new(inner),
            applied: watch::Sender::new(revision),
            updates: broadcast::Sender::new(update_queue.max(1)),
            halt: watch::Sender::new(None),
        }
    }

    /// A snapshot of the state; O(1).
    pub(crate) fn view(&self) -> State {
        lock(&self.inner).state.clone()
    }

    pub(crate) fn applied(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    pub(crate) fn updates(&self) -> broadcast::Receiver<Update> {
        self.updates.subscribe()
    }

    /// Resolves when an entry could not be applied.
    pub(crate) async fn halted(&self) -> Halt {
        let mut halt = self.halt.subscribe();
        loop {
            if let Some(halt) = halt.borrow_and_update().clone() {
                return halt;
            }
            // The sender lives in `self`: this can't end early.
            let _ = halt.changed().await;
        }
    }

    fn fail(&self, halt: Halt) -> io::Error {
        let error = io::Error::new(io::ErrorKind::InvalidData, halt.clone());
        self.halt.send_if_modified(|h| h.replace(halt).is_none());
        error
    }
}

/// The state machine. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct StateMachine {
    published: Arc<Published>,
    images: ImageStore,
}

impl StateMachine {
    /// Starts from the newest image. Blocks while it is read.
    pub(crate) fn open(images: ImageStore, update_queue: usize) -> Result<StateMachine, StorageError> {
        let inner = match images.newest() {
            None => Inner::default(),
            Some(image) => load(&image)?,
        };
        Ok(StateMachine { published: Arc::new(Published::new(inner, update_queue)), images })
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    fn apply_entry(&self, entry: &Entry) -> io::Result<Replies> {
        let id = entry.log_id();
        let at = Position { term: Term(term_of(&id)), index: Revision(id.index) };
        let envelopes = match &entry.payload {
            EntryPayload::Normal(Commands(bytes)) => {
                decode_batch(bytes, at.index).map_err(|halt| self.published.fail(halt))?
            }
            EntryPayload::Blank | EntryPayload::Membership(_) => Vec::new(),
        };
        let (mut replies, mut events) = (Vec::with_capacity(envelopes.len()), Vec::new());
        {
            let inner = &mut *lock(&self.published.inner);
            inner.state.advance(at);
            for envelope in &envelopes {
                let applied = apply(&mut inner.state, at, envelope);
                replies.push((applied.revision, applied.outcome));
                events.extend(applied.events);
            }
            inner.applied = Some(id);
            if let EntryPayload::Membership(m) = &entry.payload {
                inner.membership = StoredMembership::new(Some(id), m.clone());
            }
        }
        if !events.is_empty() {
            // Nobody may be watching.
            let _ =
                self.published.updates.send(Update::Changed { revision: at.index, events: events.into() });
        }
        self.published.applied.send_replace(at.index);
        Ok(Replies(replies))
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Image;
    type SnapshotBuilder = ImageBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let inner = lock(&self.published.inner);
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let replies = self.apply_entry(&entry)?;
            if let Some(responder) = responder {
                responder.send(replies);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> ImageBuilder {
        ImageBuilder { inner: lock(&self.published.inner).clone(), images: self.images.clone() }
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, image: Image) -> io::Result<()> {
        let images = self.images.clone();
        let install = move |image: &Image| images.adopt(image).and_then(|()| load(image));
        let new = self.images.load_with(image, install).await?;
        let revision = Revision(new.applied.map_or(0, |id| id.index));
        let old = std::mem::replace(&mut *lock(&self.published.inner), new);
        // A million records take a while to drop: not here.
        spawn_thread("quorate-drop", move || drop(old))?;
        let _ = self.published.updates.send(Update::Replaced { revision });
        self.published.applied.send_replace(revision);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let Some(image) = self.images.newest() else { return Ok(None) };
        Ok(Some(Snapshot { meta: get_meta(image.meta())?, snapshot: image }))
    }
}

/// Writes a frozen state as an image.
pub(crate) struct ImageBuilder {
    inner: Inner,
    images: ImageStore,
}

impl RaftSnapshotBuilder<TypeConfig> for ImageBuilder {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let meta =
            SnapshotMeta { last_log_id: self.inner.applied, last_membership: self.inner.membership.clone() };
        // Before the first entry there is an image of nothing.
        let (index, term) = self.inner.applied.map_or((0, 0), |last| (last.index, term_of(&last)));
        let id = ImageId { index, term };
        let state = std::mem::take(&mut self.inner.state);
        let write = move |out: &mut dyn Write| {
            let mut out = out;
            state.records().try_for_each(|record| write_record(&record, &mut out))
        };
        let image = self.images.write(id, put_meta(&meta), write).await?;
        Ok(Snapshot { meta, snapshot: image })
    }
}

/// Rebuilds the state from an image, and checks that its head and content agree.
fn load(image: &Image) -> Result<Inner, StorageError> {
    let damaged = |reason: String| StorageError::damaged(format!("image {:?}", image.id()), reason);
    let meta = get_meta(image.meta()).map_err(|e| damaged(e.to_string()))?;
    let state = image.read(|body| rebuild(body).map_err(io::Error::other))?;
    let (head, content) = (meta.last_log_id, state.applied());
    if head.map_or((0, 0), |id| (term_of(&id), id.index)) != (content.term.0, content.index.0) {
        return Err(damaged(format!("its head says {head:?}, its content {content:?}")));
    }
    Ok(Inner { state, applied: head, membership: meta.last_membership })
}

fn rebuild(body: &mut dyn Read) -> Result<State, Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Builder::default();
    for record in RecordReader::new(io::BufReader::new(body)) {
        builder.push(record?)?;
    }
    Ok(builder.finish()?)
}
