//! The thread that owns the store: whatever waits becomes one batch and one
//! flush, then every callback fires.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use quorate_base::Clock;
use quorate_base::sync::lock;
use quorate_base::time::Mono;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::StorageError;
use crate::log::{Durable, LogOptions, OnDurable, Shared};
use crate::medium::{Batch, Mark, Medium, Reader, named};
use crate::record::pack;
use crate::recover::{COMMITTED, PURGED, Recovered, Sweep, VOTE, counted, seal, truncation};

/// How old a commit note may grow before it rides along with the next group.
/// It only shortens recovery, so it is not worth an operation per group.
const COMMITTED_EVERY: Duration = Duration::from_secs(1);

/// What callers ask of the writer, in order.
pub(crate) enum Request {
    Append { first: u64, entries: Vec<Bytes>, epoch: u64, done: OnDurable, budget: OwnedSemaphorePermit },
    Truncate { from: u64, done: OnDurable },
    Purge { start: u64, marker: Option<Bytes>, trash: VecDeque<Bytes>, done: OnDurable },
    Vote { vote: Bytes, done: OnDurable },
    Committed { committed: Bytes },
    Close { done: oneshot::Sender<()> },
}

/// One group commit in the making.
#[derive(Default)]
struct Group {
    batch: Batch,
    entries: Vec<Bytes>,
    first: u64,
    count: usize,
    bytes: usize,
    /// One past the last index, in the tail's epoch.
    end: Option<(u64, u64)>,
    vote: Option<Bytes>,
    done: Vec<OnDurable>,
    budget: Vec<OwnedSemaphorePermit>,
    trash: Vec<VecDeque<Bytes>>,
}

pub(crate) struct Writer {
    medium: Box<dyn Medium>,
    reader: Box<dyn Reader>,
    requests: mpsc::Receiver<Request>,
    shared: Arc<Shared>,
    options: LogOptions,
    /// One past the last durable index, in queue order.
    durable_end: u64,
    /// Votes taken from the queue since the store was made.
    votes: u64,
    sweep: Sweep,
    committed: Option<Bytes>,
    committed_at: Mono,
    clock: Clock,
}

impl Writer {
    pub(crate) fn new(
        medium: Box<dyn Medium>,
        requests: mpsc::Receiver<Request>,
        shared: Arc<Shared>,
        recovered: &Recovered,
        options: LogOptions,
    ) -> Writer {
        let clock = Clock::system();
        Writer {
            reader: medium.reader(),
            medium,
            requests,
            shared,
            options,
            durable_end: recovered.end,
            votes: recovered.votes,
            sweep: Sweep::new(recovered.start),
            committed: None,
            committed_at: clock.monotonic(),
            clock,
        }
    }

    /// Serves requests until the channel closes, a close is asked for, or the
    /// store fails; after a failure every later request fails with its cause.
    pub(crate) fn run(mut self) {
        loop {
            let request = match self.next() {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(e) => return self.fail(Vec::new(), e),
            };
            let mut group = Group::default();
            let close = match self.collect(&mut group, request) {
                Ok(close) => close,
                Err(e) => return self.fail(group.done, e),
            };
            let done = match self.commit(group) {
                Ok(()) => close,
                Err((done, e)) => return self.fail(done, e),
            };
            if let Some(done) = done {
                drop((self.medium, self.reader));
                // Nobody waits if the closer has given up; the store is shut all the same.
                let _ = done.send(());
                return;
            }
        }
    }

    /// The next request; removes purged records while there is none.
    fn next(&mut self) -> Result<Option<Request>, StorageError> {
        while !self.sweep.is_done() {
            match self.requests.try_recv() {
                Ok(request) => return Ok(Some(request)),
                Err(mpsc::error::TryRecvError::Disconnected) => return Ok(None),
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            let swept = self.sweep.step(&*self.reader, self.options.purge_step);
            // After a failure nothing that is queued may be acknowledged.
            let log = swept?;
            self.medium.apply(Batch { meta: Vec::new(), log }).map_err(named("purging the log"))?;
        }
        Ok(self.requests.blocking_recv())
    }

    /// Takes what waits into one group; returns who asked for the end, if somebody did.
    fn collect(
        &mut self,
        group: &mut Group,
        first: Request,
    ) -> Result<Option<oneshot::Sender<()>>, StorageError> {
        let mut next = Some(first);
        while let Some(request) = next {
            if let Request::Close { done } = request {
                return Ok(Some(done));
            }
            self.take(group, request)?;
            let full = group.count >= self.options.group_entries || group.bytes >= self.options.group_bytes;
            next = if full { None } else { self.requests.try_recv().ok() };
        }
        Ok(None)
    }

    fn take(&mut self, group: &mut Group, request: Request) -> Result<(), StorageError> {
        match request {
            Request::Append { first, entries, epoch, done, budget } => {
                if group.first + group.entries.len() as u64 != first {
                    // A purge past the end came between.
                    self.seal(group);
                    group.first = first;
                }
                group.count += entries.len();
                group.bytes += entries.iter().map(Bytes::len).sum::<usize>();
                group.end = Some((first + entries.len() as u64, epoch));
                group.entries.extend(entries);
                group.done.push(done);
                group.budget.push(budget);
            }
            Request::Truncate { from, done } => {
                // Kept until the group commits, also if the cut itself fails.
                group.done.push(done);
                self.seal(group);
                self.medium.apply(std::mem::take(&mut group.batch)).map_err(named("writing the log"))?;
                self.lower_mark(from)?;
                let cut = truncation(&*self.reader, from)?;
                self.medium.apply(cut).map_err(named("cutting the log"))?;
                self.durable_end = self.durable_end.min(from);
                group.end = None;
            }
            Request::Purge { start, marker, trash, done } => {
                self.seal(group);
                if let Some(marker) = marker {
                    group.batch.meta.push((PURGED.to_vec(), Some(counted(start, &marker))));
                }
                self.durable_end = self.durable_end.max(start);
                self.sweep.raise(start);
                group.trash.push(trash);
                group.done.push(done);
            }
            Request::Vote { vote, done } => {
                self.votes += 1;
                group.batch.meta.push((VOTE.to_vec(), Some(counted(self.votes, &vote))));
                group.vote = Some(vote);
                group.done.push(done);
            }
            Request::Committed { committed } => self.committed = Some(committed),
            Request::Close { .. } => {}
        }
        Ok(())
    }

    /// Packs the entries collected so far into records.
    fn seal(&self, group: &mut Group) {
        let entries = std::mem::take(&mut group.entries);
        for record in pack(group.first, self.durable_end, &entries) {
            group.batch.log.push((record.key().to_vec(), Some(record.encode())));
        }
        group.first += entries.len() as u64;
    }

    fn commit(&mut self, mut group: Group) -> Result<(), (Vec<OnDurable>, StorageError)> {
        self.seal(&mut group);
        if group.done.is_empty() {
            return Ok(());
        }
        if let Err(e) = self.flush(&mut group).and_then(|()| self.set_mark(&group)) {
            return Err((group.done, e));
        }
        if let Some((end, epoch)) = group.end {
            lock(&self.shared.tail).durable(end, epoch);
        }
        if let Some(vote) = group.vote {
            *lock(&self.shared.vote) = Some(vote);
        }
        drop((group.budget, group.trash));
        for done in group.done {
            done(Ok(Durable::proven()));
        }
        Ok(())
    }

    fn flush(&mut self, group: &mut Group) -> Result<(), StorageError> {
        let now = self.clock.monotonic();
        if now.since(self.committed_at) >= COMMITTED_EVERY
            && let Some(committed) = self.committed.take()
        {
            group.batch.meta.push((COMMITTED.to_vec(), Some(seal(&committed))));
            self.committed_at = now;
        }
        if !self.sweep.is_done() {
            group.batch.log.extend(self.sweep.step(&*self.reader, self.options.purge_step)?);
        }
        let stats = &self.shared.stats;
        *lock(&stats.flushing_since) = Some(now);
        let batch = std::mem::take(&mut group.batch);
        self.medium.apply(batch).map_err(named("writing the log"))?;
        self.medium.sync().map_err(named("flushing the log"))?;
        *lock(&stats.flushing_since) = None;
        let took = self.clock.monotonic().since(now);
        (self.options.on_flush)(took);
        stats.groups.fetch_add(1, Ordering::Relaxed);
        stats.entries.fetch_add(group.count as u64, Ordering::Relaxed);
        stats.bytes.fetch_add(group.bytes as u64, Ordering::Relaxed);
        stats.last_flush_micros.store(took.as_micros() as u64, Ordering::Relaxed);
        stats.disk_bytes.store(self.medium.size(), Ordering::Relaxed);
        Ok(())
    }

    /// The log is about to end at `from`: a mark above that would be wrong.
    fn lower_mark(&mut self, from: u64) -> Result<(), StorageError> {
        let lowered = self.medium.marked().and_then(|mark| {
            let end = mark.end.min(from);
            self.medium.mark(Mark { end, ..mark }, true)
        });
        lowered.map_err(named("writing the log's mark"))
    }

    /// Notes what is durable now; the note itself may be lost in a power cut.
    fn set_mark(&mut self, group: &Group) -> Result<(), StorageError> {
        self.durable_end = self.durable_end.max(group.end.map_or(0, |(end, _)| end));
        let mark = Mark { end: self.durable_end, votes: self.votes };
        self.medium.mark(mark, false).map_err(named("writing the log's mark"))
    }

    /// The store is in an unknown state: nothing is ever acknowledged again.
    fn fail(mut self, done: Vec<OnDurable>, e: StorageError) {
        let cause = self.shared.fail(e);
        for done in done {
            done(Err(cause.clone()));
        }
        drop((self.medium, self.reader));
        while let Some(request) = self.requests.blocking_recv() {
            match request {
                Request::Append { done, .. }
                | Request::Truncate { done, .. }
                | Request::Purge { done, .. }
                | Request::Vote { done, .. } => done(Err(cause.clone())),
                Request::Committed { .. } => {}
                Request::Close { done } => {
                    let _ = done.send(());
                    return;
                }
            }
        }
    }
}
