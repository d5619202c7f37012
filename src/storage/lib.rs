//! Durable bytes: log, vote and image files; sled backend, faulty memory backend.
//!
//! This crate knows nothing of what the bytes mean. Its one promise: a future or
//! callback that completes with success comes after the device has the bytes,
//! and code that needs this promise can ask for the proof ([`Durable`]).
//!
//! - [`Storage`] opens a data directory: lock, header, log, images, quarantine.
//! - [`LogStore`] is the log with vote and bookkeeping: one writer thread, group
//!   commit, the newest entries in memory.
//! - [`ImageStore`] keeps the two newest whole-state images.
//! - [`MemoryDisk`] stands in for the device in tests and loses what was not
//!   flushed.
//!
//! A failed write or flush is final: nothing is acknowledged after it, and the
//! process has to stop ([`LogStore::failed`]).

mod error;
mod files;
mod fsync;
mod header;
mod image;
mod image_file;
mod log;
mod mark;
mod medium;
mod memory;
mod open;
mod record;
mod recover;
mod sled_store;
mod tail;
mod writer;

pub use error::StorageError;
pub use header::{DATA_VERSION, Header, HeaderStore};
pub use image::{DamagedImage, Image, ImageId, ImageReceiver, ImageStore, blocking};
pub use log::{Bounds, Durable, LogOptions, LogStats, LogStore, OnDurable};
pub use memory::MemoryDisk;
pub use open::{OpenError, Opened, Quarantined, Storage};
pub use record::MAX_ENTRY_BYTES;
pub use recover::{Recovered, TornTail};
