//! The log with vote and bookkeeping, as its one user sees it.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use quorate_base::Clock;
use quorate_base::sync::lock;
use quorate_base::tasks::spawn_thread;
use quorate_base::time::Mono;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::StorageError;
use crate::medium::{Medium, Reader};
use crate::record::MAX_ENTRY_BYTES;
use crate::recover::{self, Recovered};
use crate::tail::{Lookup, Tail};
use crate::writer::{Request, Writer};

/// Proof that bytes are on the device. Only the writer makes one, after its
/// flush, so code that needs one can't run before.
#[derive(Debug)]
pub struct Durable(());

impl Durable {
    pub(crate) fn proven() -> Durable {
        Durable(())
    }
}

/// Called once, on the writer's thread: it must not block.
pub type OnDurable = Box<dyn FnOnce(Result<Durable, StorageError>) + Send>;

/// Limits of the log. All of them bound memory or the length of one flush.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Durable entries kept in memory, in bytes. Default 64 MiB.
    pub cache_bytes: usize,
    /// Requests that may wait for the writer. Default 1024.
    pub queue: usize,
    /// Bytes of entries that may wait for the writer. Default 64 MiB.
    pub queue_bytes: usize,
    /// A group commit closes at this many entries. Default 8192.
    pub group_entries: usize,
    /// A group commit closes at this many bytes. Default 8 MiB.
    pub group_bytes: usize,
    /// Records removed per step of a purge. Default 32.
    pub purge_step: usize,
    /// Told how long each flush took, on the writer's thread: for metrics. Default: nobody.
    pub on_flush: fn(Duration),
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            cache_bytes: 64 << 20,
            queue: 1024,
            queue_bytes: 64 << 20,
            group_entries: 8192,
            group_bytes: 8 << 20,
            purge_step: 32,
            on_flush: |_| {},
        }
    }
}

/// The bounds of the log: indexes in `start..end` are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First index.
    pub start: u64,
    /// One past the last index.
    pub end: u64,
}

/// Counters of the log since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStats {
    /// Group commits.
    pub groups: u64,
    /// Entries made durable.
    pub entries: u64,
    /// Bytes of entries made durable.
    pub bytes: u64,
    /// How long the last flush took.
    pub last_flush: Duration,
    /// How long the flush that runs now has been running; zero if none does. A
    /// watchdog outside the writer's thread reads it: a hung disk shows here.
    pub flushing_for: Duration,
    /// Bytes of the store on disk after the last flush.
    pub disk_bytes: u64,
    /// Bytes of entries held in memory.
    pub memory_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) groups: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) last_flush_micros: AtomicU64,
    pub(crate) disk_bytes: AtomicU64,
    pub(crate) flushing_since: Mutex<Option<Mono>>,
}

/// What the handles, the writer and the read thread share.
pub(crate) struct Shared {
    pub(crate) tail: Mutex<Tail>,
    pub(crate) vote: Mutex<Option<Bytes>>,
    pub(crate) stats: Stats,
    failure: watch::Sender<Option<StorageError>>,
}

impl Shared {
    /// Records the first failure and returns it as later callers see it.
    pub(crate) fn fail(&self, e: StorageError) -> StorageError {
        self.failure.send_if_modified(|f| {
            let first = f.is_none();
            f.get_or_insert_with(|| e.clone());
            first
        });
        self.failed().unwrap_or(e)
    }

    fn failed(&self) -> Option<StorageError> {
        self.failure.borrow().clone().map(|cause| StorageError::Failed { cause: Arc::new(cause) })
    }
}

struct ReadRequest {
    range: Range<u64>,
    limit: usize,
    reply: oneshot::Sender<Result<Option<Vec<Bytes>>, StorageError>>,
}

/// The durable log, vote and bookkeeping. A cheap handle; all clones are one log.
///
/// Changes are ordered as their calls were. Futures and callbacks complete only
/// when the bytes are durable; a failure is final (see [`StorageError`]).
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    reads: mpsc::Sender<ReadRequest>,
    budget: Arc<Semaphore>,
    queue_bytes: usize,
}

impl fmt::Debug for LogStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("bounds", &self.bounds()).finish_non_exhaustive()
    }
}

impl LogStore {
    /// Starts the threads that serve `medium`, in which `recovered` was found.
    pub(crate) fn start(
        medium: Box<dyn Medium>,
        recovered: &Recovered,
        options: LogOptions,
    ) -> Result<LogStore, StorageError> {
        let tail = Tail::new(recovered.start, recovered.end, options.cache_bytes);
        let shared = Arc::new(Shared {
            tail: Mutex::new(tail),
            vote: Mutex::new(recovered.vote.clone()),
            stats: Stats::default(),
            failure: watch::Sender::new(None),
        });
        shared.stats.disk_bytes.store(medium.size(), Ordering::Relaxed);
        let (reads, read_queue) = mpsc::channel(64);
        let (requests, queue) = mpsc::channel(options.queue.max(1));
        let queue_bytes = options.queue_bytes.max(MAX_ENTRY_BYTES).min(u32::MAX as usize);
        let refused = |e| StorageError::io("starting a storage thread", e);
        let reader = medium.reader();
        spawn_thread("quorate-log-read", move || serve_reads(reader, read_queue)).map_err(refused)?;
        let writer = Writer::new(medium, queue, shared.clone(), recovered, options);
        let judge = shared.clone();
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                judge.fail(StorageError::io("writing the log", std::io::Error::other("the writer panicked")));
            }
        };
        spawn_thread("quorate-log", work).map_err(refused)?;
        let budget = Arc::new(Semaphore::new(queue_bytes));
        Ok(LogStore { shared, requests, reads, budget, queue_bytes })
    }

    /// The log's bounds, counting entries that are not durable yet.
    pub fn bounds(&self) -> Bounds {
        let tail = lock(&self.shared.tail);
        Bounds { start: tail.start, end: tail.end }
    }

    /// The last durable vote.
    pub fn vote(&self) -> Option<Bytes> {
        lock(&self.shared.vote).clone()
    }

    /// Appends entries, the first at index `first`, which has to be the log's
    /// end. When this returns they can be read; when `done` is called they are
    /// durable. Waits while too much is queued.
    ///
    /// # Errors
    /// Returned if nothing was accepted, in which case `done` is never called.
    pub async fn append(&self, first: u64, entries: Vec<Bytes>, done: OnDurable) -> Result<(), StorageError> {
        let bytes: usize = entries.iter().map(|e| e.len() + 64).sum();
        let too_large = entries.iter().zip(first..).find(|(e, _)| e.len() > MAX_ENTRY_BYTES);
        if let Some((e, index)) = too_large {
            return Err(StorageError::TooLarge { index, size: e.len(), limit: MAX_ENTRY_BYTES });
        }
        let permits = bytes.min(self.queue_bytes) as u32;
        let budget = self.budget.clone().acquire_many_owned(permits).await;
        let budget = budget.map_err(|_| StorageError::Closed)?;
        let slot = self.slot().await?;
        let mut tail = lock(&self.shared.tail);
        tail.append(first, &entries)?;
        let epoch = tail.epoch();
        slot.send(Request::Append { first, entries, epoch, done, budget });
        Ok(())
    }

    /// Removes all entries from index `from` on.
    pub async fn truncate(&self, from: u64) -> Result<Durable, StorageError> {
        let slot = self.slot().await?;
        let (done, durable) = waiter();
        {
            let mut tail = lock(&self.shared.tail);
            tail.truncate(from)?;
            slot.send(Request::Truncate { from, done });
        }
        finish(durable).await
    }

    /// Removes all entries below `start`, and keeps `marker` as a note of where
    /// the log begins. `start` may lie past the end (after an image was
    /// installed). The caller has an image that covers them, durably.
    pub async fn purge(&self, start: u64, marker: Bytes) -> Result<Durable, StorageError> {
        let slot = self.slot().await?;
        let (done, durable) = waiter();
        {
            let mut tail = lock(&self.shared.tail);
            // An older purge keeps the newer marker; it only waits for its turn.
            let marker = (start > tail.start).then_some(marker);
            let trash = tail.purge(start);
            slot.send(Request::Purge { start: tail.start, marker, trash, done });
        }
        finish(durable).await
    }

    /// Stores the vote.
    pub async fn save_vote(&self, vote: Bytes) -> Result<Durable, StorageError> {
        let (done, durable) = waiter();
        self.slot().await?.send(Request::Vote { vote, done });
        finish(durable).await
    }

    /// Notes how far the log is known to be committed. It becomes durable with
    /// some later append, at most about once a second: a hint that shortens
    /// recovery, not a promise.
    pub async fn note_committed(&self, committed: Bytes) -> Result<(), StorageError> {
        self.slot().await?.send(Request::Committed { committed });
        Ok(())
    }

    /// Reads the entries of `range` that the log holds, at most `limit` bytes but
    /// at least one entry. Returns the index of the first one with them: it lies
    /// above `range.start` if that is purged.
    pub async fn read(&self, range: Range<u64>, limit: usize) -> Result<(u64, Vec<Bytes>), StorageError> {
        let (mut first, mut out, mut bytes) = (range.start, Vec::new(), 0);
        loop {
            let next = first + out.len() as u64;
            let left = limit.saturating_sub(bytes);
            if next >= range.end || (left == 0 && !out.is_empty()) {
                return Ok((first, out));
            }
            let found = lock(&self.shared.tail).lookup(&(next..range.end), left);
            let (at, entries) = match found {
                Lookup::Here(at, entries) => (at, entries),
                Lookup::Stored(stored) => {
                    let at = stored.start;
                    match self.read_stored(stored, left).await? {
                        Some(entries) => (at, entries),
                        // Purged while we read: the next round starts above.
                        None if self.bounds().start > at => continue,
                        None => return Err(self.not_stored(at)),
                    }
                }
            };
            if at != next {
                (first, out, bytes) = (at, Vec::new(), 0);
            }
            if entries.is_empty() || (bytes > 0 && entries[0].len() > left) {
                return Ok((first, out));
            }
            bytes += entries.iter().map(Bytes::len).sum::<usize>();
            out.extend(entries);
        }
    }

    async fn read_stored(&self, range: Range<u64>, limit: usize) -> Result<Option<Vec<Bytes>>, StorageError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.reads.send(ReadRequest { range, limit, reply }).await;
        sent.map_err(|_| self.closed())?;
        answer.await.map_err(|_| self.closed())?
    }

    fn not_stored(&self, index: u64) -> StorageError {
        let Bounds { start, end } = self.bounds();
        StorageError::NotStored { index, start, end }
    }

    async fn slot(&self) -> Result<mpsc::Permit<'_, Request>, StorageError> {
        if let Some(e) = self.shared.failed() {
            return Err(e);
        }
        self.requests.reserve().await.map_err(|_| self.closed())
    }

    fn closed(&self) -> StorageError {
        self.shared.failed().unwrap_or(StorageError::Closed)
    }

    /// Resolves when the log has failed, with the first cause; never otherwise.
    pub async fn failed(&self) -> StorageError {
        let mut failure = self.shared.failure.subscribe();
        loop {
            if let Some(e) = failure.borrow_and_update().clone() {
                return e;
            }
            // The sender lives in `shared`, which we hold: this can't end early.
            let _ = failure.changed().await;
        }
    }

    /// Counters for metrics and the watchdog.
    pub fn stats(&self) -> LogStats {
        let s = &self.shared.stats;
        let since = *lock(&s.flushing_since);
        LogStats {
            groups: s.groups.load(Ordering::Relaxed),
            entries: s.entries.load(Ordering::Relaxed),
            bytes: s.bytes.load(Ordering::Relaxed),
            last_flush: Duration::from_micros(s.last_flush_micros.load(Ordering::Relaxed)),
            flushing_for: since.map(|t| Clock::system().monotonic().since(t)).unwrap_or_default(),
            disk_bytes: s.disk_bytes.load(Ordering::Relaxed),
            memory_bytes: lock(&self.shared.tail).bytes(),
        }
    }

    /// Finishes what is queued and shuts the store, so that it can be opened
    /// again. Other handles get [`StorageError::Closed`] from then on.
    pub async fn close(self) {
        let (reply, closed) = oneshot::channel();
        if self.reads.send(ReadRequest { range: 0..0, limit: 0, reply }).await.is_ok() {
            let _ = closed.await;
        }
        let (done, closed) = oneshot::channel();
        if self.requests.send(Request::Close { done }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

fn waiter() -> (OnDurable, oneshot::Receiver<Result<Durable, StorageError>>) {
    let (tx, rx) = oneshot::channel();
    let done = move |result| {
        // A caller that stopped waiting does not need the answer.
        let _ = tx.send(result);
    };
    (Box::new(done), rx)
}

async fn finish(durable: oneshot::Receiver<Result<Durable, StorageError>>) -> Result<Durable, StorageError> {
    durable.await.unwrap_or(Err(StorageError::Closed))
}

/// Reads of entries that are no longer in memory, off the async workers and off
/// the writer. An empty range asks it to end.
fn serve_reads(reader: Box<dyn Reader>, mut queue: mpsc::Receiver<ReadRequest>) {
    while let Some(ReadRequest { range, limit, reply }) = queue.blocking_recv() {
        if range.is_empty() {
            drop(reader);
            let _ = reply.send(Ok(None));
            return;
        }
        // The reader may have given up waiting.
        let _ = reply.send(recover::read(&*reader, range, limit));
    }
}
