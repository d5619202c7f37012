//! Puts whole revisions together out of messages.

use prost::Message as _;
use quorate_wire::api::{Change, WatchResponse};
use quorate_wire::common::moment;

use super::WatchEvent;
use crate::error::Failure;

/// Most bytes of one revision or snapshot; far above what a cluster holds.
const MOST_BYTES: usize = 1 << 30;

/// The messages of the revision that is not finished yet, and how far the watch is.
pub(super) struct Assembly {
    revision: u64,
    /// Whether the snapshot is still due.
    snapshot: bool,
    /// The revision that `changes` belong to.
    of: Option<u64>,
    changes: Vec<Change>,
    bytes: usize,
}

impl Assembly {
    /// After `revision`; 0 = a snapshot comes first.
    pub(super) fn resuming(revision: u64) -> Self {
        Self { revision, snapshot: revision == 0, of: None, changes: Vec::new(), bytes: 0 }
    }

    /// The last finished revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Forgets the messages of an unfinished revision: the next stream brings all of it.
    pub(super) fn drop_unfinished(&mut self) {
        (self.of, self.bytes) = (None, 0);
        self.changes = Vec::new();
    }

    /// Takes one message and returns what is complete now. One that came before is passed over.
    pub(super) fn take(&mut self, message: WatchResponse) -> Result<Vec<WatchEvent>, Failure> {
        let WatchResponse { revision, partial, snapshot, bookmark, .. } = message;
        let finished = !self.snapshot && revision <= self.revision;
        if bookmark {
            let mut events = Vec::new();
            if self.snapshot {
                events.push(self.finish_snapshot(revision));
            } else if self.of.is_some() {
                return Err(Failure::Lost("a revision was not finished".to_owned()));
            }
            self.revision = self.revision.max(revision);
            if let Some(meta) = message.meta {
                events.push(WatchEvent::Bookmark { revision: self.revision, meta });
            }
            return Ok(events);
        }
        if finished && !snapshot {
            return Ok(Vec::new());
        }
        if snapshot != self.snapshot || self.of.is_some_and(|of| of != revision) {
            return Err(Failure::Lost(format!("a message of revision {revision} is out of place")));
        }
        self.of = Some(revision);
        self.bytes += message.changes.iter().map(Change::encoded_len).sum::<usize>();
        if self.bytes > MOST_BYTES {
            let text = format!("revision {revision} is larger than {MOST_BYTES} bytes");
            return Err(Failure::Foreign(tonic::Status::resource_exhausted(text)));
        }
        self.changes.extend(message.changes);
        if partial {
            return Ok(Vec::new());
        }
        if snapshot {
            return Ok(vec![self.finish_snapshot(revision)]);
        }
        self.revision = revision;
        let changes = std::mem::take(&mut self.changes);
        self.drop_unfinished();
        Ok(vec![WatchEvent::Changes { revision, time: message.time.as_ref().map(moment), changes }])
    }

    fn finish_snapshot(&mut self, revision: u64) -> WatchEvent {
        let changes = std::mem::take(&mut self.changes);
        self.drop_unfinished();
        (self.snapshot, self.revision) = (false, revision);
        WatchEvent::Snapshot { revision, changes }
    }
}
