//! openraft's log over the durable one.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::Stream;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use prost::Message;
use quorate_base::sync::lock;
use quorate_storage::{LogStore, Recovered};
use quorate_wire::raft as pb;

use crate::codec::{decode_entry, encode_entry, get_log_id, get_vote, put_log_id, put_vote};
use crate::types::{Entry, LogId, TypeConfig, Vote};

/// The log, its vote and its bookkeeping. Clones are one log; they also serve as readers.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    store: LogStore,
    purged: Arc<Mutex<Option<LogId>>>,
    committed: Option<LogId>,
    /// Most bytes of entries in one message to a follower, and in one step of apply.
    batch_bytes: usize,
}

impl Log {
    /// The log over a store that was just opened.
    pub(crate) fn new(store: LogStore, recovered: &Recovered, batch_bytes: usize) -> io::Result<Log> {
        let id = |bytes: &Bytes| pb::LogId::decode(bytes.clone()).map(get_log_id).map_err(io::Error::other);
        let marker = recovered.purged.as_ref().filter(|marker| !marker.is_empty());
        let purged = Arc::new(Mutex::new(marker.map(id).transpose()?));
        let committed = recovered.committed.as_ref().map(id).transpose()?;
        Ok(Log { store, purged, committed, batch_bytes })
    }

    async fn read(&self, start: u64, end: u64, limit: usize) -> io::Result<Vec<Entry>> {
        let (_, entries) = self.store.read(start..end, limit).await?;
        entries.into_iter().map(|e| decode_entry(e).map_err(io::Error::from)).collect()
    }

    /// Lets an empty log begin at `first`. Consensus has checked what comes before;
    /// whether an image covers it is checked when the store is opened.
    async fn begin_at(&self, first: u64) -> io::Result<()> {
        let bounds = self.store.bounds();
        if bounds.start == bounds.end && first > bounds.end {
            let _proof = self.store.purge(first, Bytes::new()).await?;
        }
        Ok(())
    }

    /// The last entry's id; that of the purge marker if there is no entry.
    async fn last(&self) -> io::Result<Option<LogId>> {
        let bounds = self.store.bounds();
        if bounds.start >= bounds.end {
            return Ok(*lock(&self.purged));
        }
        let entries = self.read(bounds.end - 1, bounds.end, usize::MAX).await?;
        Ok(entries.last().map(RaftEntry::log_id))
    }
}

/// A range of indexes as a half-open one.
fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(i) => *i,
        Bound::Excluded(i) => i.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(i) => i.saturating_add(1),
        Bound::Excluded(i) => *i,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for Log {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, self.batch_bytes).await
    }

    /// Committed entries on their way to apply, a bounded piece at a time.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        use futures::{StreamExt, stream};
        let (start, end) = half_open(&range);
        let log = self.clone();
        let pieces = stream::unfold(Some(start), move |next| {
            let log = log.clone();
            async move {
                let start = next.filter(|start| *start < end)?;
                match log.read(start, end, log.batch_bytes).await {
                    Ok(entries) if entries.is_empty() => None,
                    Ok(entries) => {
                        let next = entries.last().map(|e| e.log_id.index + 1);
                        Some((entries.into_iter().map(Ok).collect::<Vec<_>>(), next))
                    }
                    Err(e) => Some((vec![Err(e)], None)),
                }
            }
        });
        Box::pin(pieces.flat_map(stream::iter))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let Some(bytes) = self.store.vote() else { return Ok(None) };
        let vote = pb::Vote::decode(bytes).map_err(io::Error::other)?;
        Ok(Some(get_vote(Some(vote))?))
    }
}

impl RaftLogStorage<TypeConfig> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let last_log_id = self.last().await?;
        Ok(LogState { last_purged_log_id: *lock(&self.purged), last_log_id })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let _proof = self.store.save_vote(put_vote(vote).encode_to_vec().into()).await?;
        Ok(())
    }

    /// A hint that shortens recovery: it is not durable when this returns.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(id) = &committed {
            self.store.note_committed(put_log_id(id).encode_to_vec().into()).await?;
        }
        self.committed = committed;
        Ok(())
    }

    /// The note may be ahead of a log that lost its unflushed end; what is left
    /// of the log is committed then.
    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let last = self.last().await?;
        Ok(self.committed.min(last))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (mut first, mut encoded) = (None, Vec::new());
        for entry in entries {
            first.get_or_insert(entry.log_id.index);
            encoded.push(encode_entry(&entry));
        }
        let Some(first) = first else {
            flushed.io_completed(Ok(()));
            return Ok(());
        };
        self.begin_at(first).await?;
        let done = Box::new(move |result: Result<quorate_storage::Durable, _>| {
            flushed.io_completed(result.map(drop).map_err(io::Error::from));
        });
        Ok(self.store.append(first, encoded, done).await?)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |id| id.index + 1);
        let _proof = self.store.truncate(from.min(self.store.bounds().end)).await?;
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let _proof = self.store.purge(upto.index + 1, put_log_id(&upto).encode_to_vec().into()).await?;
        let mut purged = lock(&self.purged);
        *purged = (*purged).max(Some(upto));
        Ok(())
    }
}
