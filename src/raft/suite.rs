//! openraft's own storage suite, on both backends.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use quorate_base::Rng;
use quorate_storage::{LogOptions, MemoryDisk, Opened, Storage};
use tempfile::TempDir;

use crate::log::Log;
use crate::machine::StateMachine;
use crate::types::TypeConfig;

/// Keeps a store and its place alive for one test.
struct Guard {
    _storage: Storage,
    _dir: Option<TempDir>,
}

struct Sled;
struct Memory;

/// Keeps next to nothing of the log in memory, so that reads come from the store.
fn options() -> LogOptions {
    LogOptions { cache_bytes: 64, ..LogOptions::default() }
}

fn parts(opened: Opened, dir: Option<TempDir>) -> (Guard, Log, StateMachine) {
    let log = Log::new(opened.storage.log.clone(), &opened.recovered, 1 << 20).unwrap();
    let machine = StateMachine::open(opened.storage.images.clone(), 16).unwrap();
    (Guard { _storage: opened.storage, _dir: dir }, log, machine)
}

type Error = StorageError<TypeConfig>;

impl StoreBuilder<TypeConfig, Log, StateMachine, Guard> for Sled {
    async fn build(&self) -> Result<(Guard, Log, StateMachine), Error> {
        let dir = tempfile::tempdir().unwrap();
        let opened = Storage::open(dir.path(), "m1", options(), &mut Rng::seeded(1)).unwrap();
        Ok(parts(opened, Some(dir)))
    }
}

impl StoreBuilder<TypeConfig, Log, StateMachine, Guard> for Memory {
    async fn build(&self) -> Result<(Guard, Log, StateMachine), Error> {
        let opened = Storage::open_memory(&MemoryDisk::new(), "m1", options(), &mut Rng::seeded(1)).unwrap();
        Ok(parts(opened, None))
    }
}

#[tokio::test]
async fn the_sled_store_passes_openrafts_suite() {
    Suite::test_all(Sled).await.unwrap();
}

#[tokio::test]
async fn the_memory_store_passes_openrafts_suite() {
    Suite::test_all(Memory).await.unwrap();
}
