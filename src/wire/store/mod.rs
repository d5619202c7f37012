//! The encoding of log entries and images: `quorate.store.v1`.
//!
//! Unknown fields are skipped; an unknown kind or format of a command is a
//! [`Halt::NeedsVersion`], everything else that cannot be read is a
//! [`Halt::Undecodable`]. Equal values give equal bytes.

mod batch;
mod command;
mod container;
mod enums;
mod image;
mod job;
mod manager;
mod node;
mod pack;
mod payload;
mod policy;
mod receipt;
mod refusal;
mod request;
mod task;

use quorate_model::Name;
use quorate_state::Halt;

pub use batch::{FORMAT, MAX_ENTRY_BYTES, decode_batch, encode_batch, fingerprint};
pub use image::{
    MAX_RECORD_BYTES, ReadError, RecordReader, decode_record, digest, encode_record, write_record,
};

/// A value that breaks a rule of the encoding.
fn bad(what: &str, why: impl Into<String>) -> Halt {
    Halt::Undecodable { what: what.to_owned(), why: why.into() }
}

/// A part that must be there.
fn required<T>(what: &str, part: Option<T>) -> Result<T, Halt> {
    part.ok_or_else(|| bad(what, "is missing"))
}

/// A name that was checked before it was stored.
fn name(what: &str, text: &str) -> Result<Name, Halt> {
    Name::parse(what, text).map_err(|invalid| bad(what, invalid.reason))
}

/// A number in the width that the model has.
fn narrow<T: TryFrom<u32>>(what: &str, number: u32) -> Result<T, Halt> {
    T::try_from(number).map_err(|_| bad(what, format!("{number} is out of range")))
}

/// Says in which entry or record the damage is.
fn within(place: impl FnOnce() -> String, halt: Halt) -> Halt {
    match halt {
        Halt::Undecodable { what, why } => Halt::Undecodable { what: place(), why: format!("{what} {why}") },
        other => other,
    }
}
