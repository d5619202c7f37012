//! A place to open a store in, and what tests write to it.

use bytes::Bytes;
use quorate_base::Rng;
use quorate_storage::{LogOptions, LogStore, MemoryDisk, OnDurable, Opened, Storage};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A place to open a store in, again and again.
pub(crate) enum Place {
    Sled(TempDir),
    Memory(MemoryDisk),
}

impl Place {
    pub(crate) fn both() -> [Place; 2] {
        [Place::Sled(tempfile::tempdir().unwrap()), Place::Memory(MemoryDisk::new())]
    }

    pub(crate) fn open(&self, options: LogOptions) -> Opened {
        let mut rng = Rng::seeded(1);
        match self {
            Place::Sled(dir) => Storage::open(dir.path(), "m1", options, &mut rng).unwrap(),
            Place::Memory(disk) => Storage::open_memory(disk, "m1", options, &mut rng).unwrap(),
        }
    }
}

/// An entry whose content tells its index and version.
pub(crate) fn entry(index: u64, version: u64, len: usize) -> Bytes {
    let mut bytes = format!("{index}/{version}/").into_bytes();
    bytes.resize(bytes.len().max(len), b'.');
    Bytes::from(bytes)
}

pub(crate) fn entries(range: std::ops::Range<u64>, version: u64) -> Vec<Bytes> {
    range.map(|i| entry(i, version, 40)).collect()
}

/// A callback and the future of its call.
pub(crate) fn ack() -> (OnDurable, oneshot::Receiver<Result<(), quorate_storage::StorageError>>) {
    let (tx, rx) = oneshot::channel();
    (Box::new(move |r| drop(tx.send(r.map(drop)))), rx)
}

pub(crate) async fn append(log: &LogStore, first: u64, entries: Vec<Bytes>) {
    let (done, acked) = ack();
    log.append(first, entries, done).await.unwrap();
    acked.await.unwrap().unwrap();
}
