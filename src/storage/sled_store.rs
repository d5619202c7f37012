//! sled 0.34 as a [`Medium`], with what it lacks for durability on Linux.
//!
//! Its `flush` writes with sync_file_range, which flushes neither the device's
//! cache nor the file's metadata: an fdatasync of `db` follows each one. Its
//! other files are never synced: that happens once, at creation.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::mark::MarkFile;
use crate::medium::{Batch, Change, Mark, Medium, Reader};
use crate::{StorageError, fsync};

/// 16 records of 24 KiB, which may share a page, stay below a quarter of this;
/// larger pages would go to blob files, which sled never syncs.
const SEGMENT_BYTES: usize = 2 << 20;

pub(crate) struct SledStore {
    db: sled::Db,
    log: sled::Tree,
    meta: sled::Tree,
    file: File,
    mark: MarkFile,
}

/// Opens the store in `dir`. Damage comes back as [`StorageError::Damaged`].
pub(crate) fn open(dir: &Path, cache_bytes: u64) -> Result<SledStore, StorageError> {
    remove_leftovers(dir).map_err(|e| StorageError::io_at("cleaning up the log store", dir, e))?;
    // sled's recovery may panic on bytes that it does not expect.
    let opened = catch_unwind(AssertUnwindSafe(|| open_trees(dir, cache_bytes)));
    let opened = opened.unwrap_or_else(|_| Err(invalid("recovery panicked".to_owned())));
    let (db, log, meta) = opened.map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            StorageError::damaged(format!("the log store at {}", dir.display()), e.to_string())
        }
        _ => StorageError::io_at("opening the log store", dir, e),
    })?;
    let path = dir.join("db");
    let file = File::open(&path).map_err(|e| StorageError::io_at("opening the log store", &path, e))?;
    let mark = MarkFile::open(&dir.join("mark"));
    let mark = mark.map_err(|e| StorageError::io_at("opening the log's mark", dir.join("mark"), e))?;
    let mut store = SledStore { db, log, meta, file, mark };
    store.sync().map_err(|e| StorageError::io_at("flushing the log store", &path, e))?;
    fsync::tree(dir).map_err(|e| StorageError::io_at("flushing the log store", dir, e))?;
    Ok(store)
}

fn open_trees(dir: &Path, cache_bytes: u64) -> io::Result<(sled::Db, sled::Tree, sled::Tree)> {
    let config = sled::Config::new()
        .path(dir)
        .mode(sled::Mode::HighThroughput)
        .cache_capacity(cache_bytes)
        .segment_size(SEGMENT_BYTES)
        .flush_every_ms(None);
    let db = config.open().map_err(plain)?;
    let log = db.open_tree("log").map_err(plain)?;
    let meta = db.open_tree("meta").map_err(plain)?;
    Ok((db, log, meta))
}

/// A start that was interrupted leaves `snap.*.generating`, which sled then
/// takes for a snapshot and refuses to open, for ever.
fn remove_leftovers(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "generating") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn plain(e: sled::Error) -> io::Error {
    match e {
        sled::Error::Io(e) => e,
        sled::Error::Corruption { .. }
        | sled::Error::ReportableBug(_)
        | sled::Error::CollectionNotFound(_) => invalid(e.to_string()),
        sled::Error::Unsupported(reason) => io::Error::new(io::ErrorKind::Unsupported, reason),
    }
}

fn batch(changes: Vec<Change>) -> sled::Batch {
    let mut batch = sled::Batch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.insert(key, value),
            None => batch.remove(key),
        }
    }
    batch
}

impl Medium for SledStore {
    fn apply(&mut self, changes: Batch) -> io::Result<()> {
        for (tree, changes) in [(&self.meta, changes.meta), (&self.log, changes.log)] {
            if !changes.is_empty() {
                tree.apply_batch(batch(changes)).map_err(plain)?;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        // One flush covers all trees.
        self.log.flush().map_err(plain)?;
        self.file.sync_data()
    }

    fn marked(&self) -> io::Result<Mark> {
        Ok(self.mark.get())
    }

    fn mark(&mut self, mark: Mark, durable: bool) -> io::Result<()> {
        self.mark.set(mark, durable)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(SledReader { log: self.log.clone(), meta: self.meta.clone() })
    }

    fn size(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }
}

struct SledReader {
    log: sled::Tree,
    meta: sled::Tree,
}

impl Reader for SledReader {
    fn meta(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.meta.get(key).map_err(plain)?.map(|v| v.to_vec()))
    }

    fn floor(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let last = self.log.range(..=key).next_back().transpose().map_err(plain)?;
        Ok(last.map(|(k, _)| k.to_vec()))
    }

    fn scan(&self, from: &[u8], limit: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut out, mut bytes) = (Vec::new(), 0);
        for item in self.log.range(from..) {
            let (k, v) = item.map_err(plain)?;
            bytes += v.len();
            out.push((k.to_vec(), v.to_vec()));
            if bytes >= limit {
                break;
            }
        }
        Ok(out)
    }
}
