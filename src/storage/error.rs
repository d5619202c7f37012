//! Why storage refused or failed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A failure of the storage layer. Cheap to clone, because one failed flush
/// fails every waiter of its group.
///
/// After any error but [`StorageError::OutOfOrder`], [`StorageError::TooLarge`]
/// and [`StorageError::NotStored`] the log is closed for good: what the device
/// holds is unknown, so the process has to stop and recover by opening again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// A system call failed.
    #[error("{what} failed{}: {source}", at(.path))]
    Io {
        /// The operation, as in "writing the log".
        what: &'static str,
        /// The file or folder, where there is one.
        path: Option<PathBuf>,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// An earlier operation failed; nothing is accepted any more.
    #[error("the log is closed because an earlier operation failed: {cause}")]
    Failed {
        /// The first failure.
        cause: Arc<StorageError>,
    },
    /// The store was closed, or its writer thread ended.
    #[error("the log is closed")]
    Closed,
    /// Stored bytes do not check out.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// Which record or file.
        what: String,
        /// What does not fit.
        reason: String,
    },
    /// An append does not follow the last entry, or a cut lies outside the log.
    #[error("log index {got} is out of order: the log holds {start}..{end}")]
    OutOfOrder {
        /// The index asked for.
        got: u64,
        /// First index of the log.
        start: u64,
        /// One past the last index of the log.
        end: u64,
    },
    /// An entry is larger than the log takes.
    #[error("log entry {index} has {size} bytes; at most {limit} are stored")]
    TooLarge {
        /// The entry's index.
        index: u64,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// An entry that was asked for is not in the log (purged or never written).
    #[error("log entry {index} is not stored: the log holds {start}..{end}")]
    NotStored {
        /// The index asked for.
        index: u64,
        /// First index of the log.
        start: u64,
        /// One past the last index of the log.
        end: u64,
    },
}

fn at(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|p| format!(" at {}", p.display())).unwrap_or_default()
}

impl StorageError {
    /// Wraps a failed system call on no file in particular.
    pub fn io(what: &'static str, source: io::Error) -> Self {
        StorageError::Io { what, path: None, source: Arc::new(source) }
    }

    /// Wraps a failed system call on `path`.
    pub fn io_at(what: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        StorageError::Io { what, path: Some(path.into()), source: Arc::new(source) }
    }

    /// Stored bytes that do not check out.
    pub fn damaged(what: impl Into<String>, reason: impl Into<String>) -> Self {
        StorageError::Damaged { what: what.into(), reason: reason.into() }
    }

    /// Whether the bytes on disk are at fault, so that opening again can't help
    /// and the store has to be quarantined.
    pub fn is_damage(&self) -> bool {
        match self {
            StorageError::Damaged { .. } => true,
            StorageError::Failed { cause } => cause.is_damage(),
            StorageError::Io { .. }
            | StorageError::Closed
            | StorageError::OutOfOrder { .. }
            | StorageError::TooLarge { .. }
            | StorageError::NotStored { .. } => false,
        }
    }

    /// Whether the device ran out of space.
    pub fn is_disk_full(&self) -> bool {
        match self {
            StorageError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            StorageError::Failed { cause } => cause.is_disk_full(),
            StorageError::Closed
            | StorageError::Damaged { .. }
            | StorageError::OutOfOrder { .. }
            | StorageError::TooLarge { .. }
            | StorageError::NotStored { .. } => false,
        }
    }
}

impl From<StorageError> for io::Error {
    fn from(e: StorageError) -> io::Error {
        let kind = match &e {
            StorageError::Io { source, .. } => source.kind(),
            StorageError::Damaged { .. } => io::ErrorKind::InvalidData,
            StorageError::NotStored { .. } => io::ErrorKind::NotFound,
            StorageError::OutOfOrder { .. } | StorageError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            StorageError::Failed { .. } | StorageError::Closed => io::ErrorKind::BrokenPipe,
        };
        io::Error::new(kind, e)
    }
}
