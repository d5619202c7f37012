//! Power cuts and failing devices, on the memory disk, by seed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::poll;
use quorate_base::Rng;
use quorate_storage::{LogOptions, MemoryDisk, OpenError, Storage, StorageError};
use tokio::sync::oneshot;

use crate::place::{Place, ack, append, entries, entry};

/// What the log should hold after some number of operations.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    start: u64,
    end: u64,
    entries: BTreeMap<u64, Bytes>,
    vote: Option<Bytes>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), StorageError>>>>;

/// Runs random operations against a disk, and remembers each state and how many
/// operations were acknowledged.
struct Run {
    rng: Rng,
    disk: MemoryDisk,
    storage: Storage,
    /// State after each operation since the last cut; the first is the start.
    states: Vec<Model>,
    waiting: Vec<(usize, Waiting)>,
    acked: usize,
    version: u64,
}

impl Run {
    fn options(rng: &mut Rng) -> LogOptions {
        LogOptions { cache_bytes: rng.below(3000) as usize, purge_step: 2, ..LogOptions::default() }
    }

    fn new(seed: u64) -> Run {
        let (mut rng, disk) = (Rng::seeded(seed), MemoryDisk::new());
        let options = Run::options(&mut rng);
        let storage = Storage::open_memory(&disk, "m1", options, &mut rng).unwrap().storage;
        let states = vec![Model::default()];
        Run { rng, disk, storage, states, waiting: Vec::new(), acked: 0, version: 0 }
    }

    async fn step(&mut self) {
        let mut next = self.states.last().unwrap().clone();
        let log = self.storage.log.clone();
        self.version += 1;
        let future: Waiting = match self.rng.below(10) {
            0..=5 => {
                let count = self.rng.between(1, 8);
                let len = if self.rng.chance(0.1) { 60_000 } else { 100 };
                let new: Vec<_> = (0..count).map(|n| entry(next.end + n, self.version, len)).collect();
                next.entries.extend((next.end..).zip(new.iter().cloned()));
                let first = next.end;
                next.end += count;
                let (done, acked) = ack();
                log.append(first, new, done).await.unwrap();
                Box::pin(async move { acked.await.unwrap_or(Err(StorageError::Closed)) })
            }
            6 => {
                let from = self.rng.between(next.start, next.end);
                next.entries.split_off(&from);
                next.end = from;
                Box::pin(async move { log.truncate(from).await.map(drop) })
            }
            7 => {
                let start = self.rng.between(next.start, next.end + 2);
                next.entries = next.entries.split_off(&start);
                (next.start, next.end) = (start.max(next.start), next.end.max(start));
                Box::pin(async move { log.purge(start, Bytes::from(start.to_string())).await.map(drop) })
            }
            _ => {
                let vote = Bytes::from(self.version.to_string());
                next.vote = Some(vote.clone());
                Box::pin(async move { log.save_vote(vote).await.map(drop) })
            }
        };
        self.waiting.push((self.states.len(), future));
        self.states.push(next);
        self.poll_all().await;
    }

    /// Starts what is not started, and counts what is acknowledged.
    async fn poll_all(&mut self) {
        let mut still = Vec::new();
        for (n, mut future) in std::mem::take(&mut self.waiting) {
            match poll!(future.as_mut()) {
                std::task::Poll::Ready(result) => {
                    result.unwrap();
                    self.acked = self.acked.max(n);
                }
                std::task::Poll::Pending => still.push((n, future)),
            }
        }
        self.waiting = still;
    }

    async fn finish_all(&mut self) {
        for (n, future) in std::mem::take(&mut self.waiting) {
            future.await.unwrap();
            self.acked = n;
        }
    }

    /// An image that covers everything, so that purges are allowed.
    async fn cover(&self) {
        let id = quorate_storage::ImageId { index: u64::MAX / 2, term: 1 };
        self.storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap();
    }

    async fn cut_and_check(&mut self, seed: u64) {
        self.poll_all().await;
        self.disk.power_cut(self.rng.next_u64());
        let options = Run::options(&mut self.rng);
        let opened = Storage::open_memory(&self.disk, "m1", options, &mut self.rng).unwrap();
        let (start, found) = opened.storage.log.read(0..u64::MAX, usize::MAX).await.unwrap();
        let (start, end) = (start.max(opened.recovered.start), opened.recovered.end);
        assert_eq!(end - start, found.len() as u64, "seed {seed}");
        let possible = &self.states[self.acked..];
        let vote = &opened.recovered.vote;
        assert!(possible.iter().any(|s| s.vote == *vote), "seed {seed}: vote {vote:?}");
        assert!(possible.iter().any(|s| s.start == start), "seed {seed}: starts at {start}");
        let mut least = u64::MAX;
        let fits = possible.iter().enumerate().any(|(n, s)| {
            // A cut that was interrupted has removed some of its records, from the end.
            let next = possible.get(n + 1).map_or(s.end, |next| next.end);
            least = least.min(s.end).min(next);
            let same = (start..).zip(&found).all(|(i, e)| s.entries.get(&i).is_some_and(|x| x == e));
            same && end >= least.max(start).min(s.end.max(start))
        });
        let states: Vec<_> = possible.iter().map(|s| s.start..s.end).collect();
        assert!(fits, "seed {seed}: recovered {start}..{end} is none of {states:?}");
        let entries = (start..).zip(found).collect();
        self.states = vec![Model { start, end, entries, vote: vote.clone() }];
        (self.waiting, self.acked, self.storage) = (Vec::new(), 0, opened.storage);
    }
}

#[tokio::test]
async fn acknowledged_changes_survive_power_cuts_at_any_point() {
    for seed in 0..300 {
        let mut run = Run::new(seed);
        run.cover().await;
        for _ in 0..4 {
            for _ in 0..run.rng.between(1, 30) {
                match run.rng.below(12) {
                    0 => run.disk.hold_flushes(),
                    1 => run.disk.release_flushes(),
                    2 => {
                        run.disk.release_flushes();
                        run.finish_all().await;
                    }
                    _ => run.step().await,
                }
            }
            run.cut_and_check(seed).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_after_a_failed_flush() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(LogOptions::default()).storage.log;
    append(&log, 0, entries(0..5, 1)).await;
    disk.fail_next_flush(io::ErrorKind::Other);
    let (done, acked) = ack();
    log.append(5, entries(5..9, 1), done).await.unwrap();
    let failure = acked.await.unwrap().unwrap_err();
    assert!(failure.to_string().starts_with("the log is closed because"), "{failure}");
    assert!(log.save_vote(Bytes::new()).await.is_err());
    assert!(log.truncate(2).await.is_err());
    let (done, _acked) = ack();
    assert!(log.append(9, entries(9..10, 1), done).await.is_err());
    assert!(log.failed().await.to_string().starts_with("flushing the log failed"));

    disk.power_cut(1);
    let opened = Place::Memory(disk).open(LogOptions::default());
    assert_eq!(opened.recovered.end, 5, "the acknowledged part, and nothing of the failed flush");
}

#[tokio::test]
async fn a_full_disk_is_told_apart_and_deletes_still_work() {
    let disk = MemoryDisk::new();
    let storage = Place::Memory(disk.clone()).open(LogOptions::default()).storage;
    disk.set_full(true);
    let (done, acked) = ack();
    storage.log.append(0, entries(0..1, 1), done).await.unwrap();
    assert!(acked.await.unwrap().unwrap_err().is_disk_full());
    assert!(storage.log.failed().await.is_disk_full());
    let id = quorate_storage::ImageId { index: 1, term: 1 };
    let refused = storage.images.write(id, Bytes::new(), |_| Ok(())).await.unwrap_err();
    assert!(refused.is_disk_full(), "{refused}");
    assert!(!disk.file_names().iter().any(|n| n.ends_with(".tmp")), "no leftovers on a full disk");
}

#[tokio::test]
async fn a_failed_write_closes_the_log() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(LogOptions::default()).storage.log;
    disk.fail_next_write(io::ErrorKind::PermissionDenied);
    assert!(log.save_vote(Bytes::from_static(b"v")).await.is_err());
    assert!(log.failed().await.to_string().starts_with("writing the log failed"));
}

#[tokio::test]
async fn a_hanging_flush_shows_in_the_counters() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(LogOptions::default()).storage.log;
    disk.hold_flushes();
    let (done, mut acked) = ack();
    log.append(0, entries(0..1, 1), done).await.unwrap();
    disk.wait_unflushed(1);
    let before = log.stats();
    while log.stats().flushing_for <= before.flushing_for {
        assert!(acked.try_recv().is_err());
        tokio::task::yield_now().await;
    }
    disk.release_flushes();
    acked.await.unwrap().unwrap();
    assert_eq!(log.stats().entries, before.entries + 1);
}

#[tokio::test]
async fn one_flush_serves_all_that_wait() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(LogOptions::default()).storage.log;
    disk.hold_flushes();
    let mut acks: Vec<oneshot::Receiver<_>> = Vec::new();
    for i in 0..200 {
        let (done, acked) = ack();
        log.append(i, entries(i..i + 1, 1), done).await.unwrap();
        acks.push(acked);
        if i == 0 {
            disk.wait_unflushed(1);
        }
    }
    disk.release_flushes();
    for acked in acks {
        acked.await.unwrap().unwrap();
    }
    assert_eq!((log.stats().groups, log.stats().entries), (2, 200));
}

#[tokio::test]
async fn rot_is_an_error_or_at_worst_cuts_the_last_group() {
    let mut refused = 0;
    for seed in 0..100 {
        let disk = MemoryDisk::new();
        let place = Place::Memory(disk.clone());
        let opened = place.open(LogOptions::default());
        for batch in 0..10 {
            append(&opened.storage.log, batch * 10, entries(batch * 10..(batch + 1) * 10, 1)).await;
        }
        opened.storage.close().await;
        assert!(disk.rot(seed));
        match Storage::open_memory(&disk, "m1", LogOptions::default(), &mut Rng::seeded(1)) {
            Ok(opened) => {
                let torn = opened.recovered.torn.expect("damage was not noticed");
                assert_eq!((torn.from, torn.records, opened.recovered.end), (90, 1, 90));
            }
            Err(OpenError::Storage(e)) => {
                assert!(e.is_damage(), "{e}");
                assert!(e.to_string().contains("were acknowledged"), "{e}");
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!((80..100).contains(&refused), "{refused} of 100 were refused");
}

/// Options with which a purge takes several steps, the first with the next flush, and one request fills the queue.
fn stepwise() -> LogOptions {
    LogOptions { purge_step: 1, queue: 1, ..LogOptions::default() }
}

#[tokio::test]
async fn nothing_is_acknowledged_after_a_purge_that_failed_in_the_background() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(stepwise()).storage.log;
    for i in 0..5 {
        append(&log, i, entries(i..i + 1, 1)).await;
    }
    disk.hold_flushes();
    let mut purge = std::pin::pin!(log.purge(5, Bytes::from_static(b"5")));
    assert!(poll!(purge.as_mut()).is_pending());
    disk.wait_unflushed(1);
    // One request fills the queue, and needs no write of its own; the next has been let in, and waits for room.
    log.note_committed(Bytes::from_static(b"4")).await.unwrap();
    let mut vote = std::pin::pin!(log.save_vote(Bytes::from_static(b"v")));
    assert!(poll!(vote.as_mut()).is_pending());
    disk.fail_next_write(io::ErrorKind::Other);
    disk.release_flushes();
    purge.await.unwrap();
    assert!(log.failed().await.to_string().starts_with("purging the log failed"));
    let refused = vote.await.unwrap_err();
    assert!(refused.to_string().starts_with("the log is closed because"), "{refused}");
    assert_eq!(log.vote(), None);
}

#[tokio::test]
async fn whoever_waits_with_a_cut_that_fails_is_told_the_cause() {
    let disk = MemoryDisk::new();
    let log = Place::Memory(disk.clone()).open(LogOptions::default()).storage.log;
    append(&log, 0, entries(0..5, 1)).await;
    disk.hold_flushes();
    let mut vote = std::pin::pin!(log.save_vote(Bytes::from_static(b"v")));
    assert!(poll!(vote.as_mut()).is_pending());
    disk.wait_unflushed(1);
    let (done, acked) = ack();
    log.append(5, entries(5..6, 1), done).await.unwrap();
    let mut cut = std::pin::pin!(log.truncate(2));
    assert!(poll!(cut.as_mut()).is_pending());
    disk.fail_next_write(io::ErrorKind::Other);
    disk.release_flushes();
    vote.await.unwrap();
    for refused in [acked.await.expect("its callback was dropped").unwrap_err(), cut.await.unwrap_err()] {
        assert!(refused.to_string().starts_with("the log is closed because"), "{refused}");
    }
}
