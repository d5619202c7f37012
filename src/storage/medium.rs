//! The seam between the log's rules and the store that keeps its bytes.

use std::io;

use crate::StorageError;

/// A change to one key: a new value, or none to remove it.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

/// Changes that are applied together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) meta: Vec<Change>,
    pub(crate) log: Vec<Change>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.meta.is_empty() && self.log.is_empty()
    }
}

/// A lower bound of what is durable, kept beside the store: sled takes a file
/// that lost its end for one that was never written so far, and opens it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// One past the last acknowledged index of the log.
    pub(crate) end: u64,
    /// Number of votes saved.
    pub(crate) votes: u64,
}

/// A store of ordered keys with two trees. All calls block; one thread owns it.
///
/// Batches become durable in the order in which they were applied: after a
/// power cut a prefix of them is left. Within a batch the changes to the meta
/// tree come first (a vote or a purge marker may survive without the records
/// that were written beside it, never the other way round).
pub(crate) trait Medium: Send + 'static {
    /// Applies a batch: visible to readers at once, durable after [`Medium::sync`].
    fn apply(&mut self, batch: Batch) -> io::Result<()>;

    /// Returns once everything applied before is on the device.
    fn sync(&mut self) -> io::Result<()>;

    /// A handle for reads from another thread.
    fn reader(&self) -> Box<dyn Reader>;

    /// The last mark that is left of those set.
    fn marked(&self) -> io::Result<Mark>;

    /// Sets the mark after a sync. With `durable` it returns once the mark is on
    /// the device; that is needed before a change that makes the old one wrong.
    fn mark(&mut self, mark: Mark, durable: bool) -> io::Result<()>;

    /// Bytes that the store takes on disk.
    fn size(&self) -> u64;
}

/// Reads of a [`Medium`].
pub(crate) trait Reader: Send + 'static {
    /// The value of one key of the meta tree.
    fn meta(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// The greatest key of the log tree that is `<= key`.
    fn floor(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// Keys and values of the log tree in key order from `from` on; stops after
    /// the value that reaches `limit` bytes in all.
    fn scan(&self, from: &[u8], limit: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>>;
}

/// Names the failed step of a medium.
pub(crate) fn named(what: &'static str) -> impl Fn(io::Error) -> StorageError {
    move |e| match e.kind() {
        io::ErrorKind::InvalidData => StorageError::damaged("the log store", e.to_string()),
        _ => StorageError::io(what, e),
    }
}
