//! Images: a stream of records, each with its length before it.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use prost::Message;
use quorate_model::{Epoch, Revision, Term};
use quorate_state::{Halt, Meta, Position, Record, State};
use xxhash_rust::xxh3::Xxh3;

use super::{
    pack::{cluster, moment},
    required, within,
};
use crate::generated::store::{self as pb, record::Kind};

/// Most bytes of one record: the largest is a job with many versions, each of at most a mebibyte.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// Longest varint of 64 bits.
const MAX_VARINT: usize = 10;

/// Why an image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed.
    #[error("cannot read the image: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no image, or one of a newer version.
    #[error(transparent)]
    Halt(#[from] Halt),
}

/// Appends the encoded record, without its length.
pub fn encode_record(record: &Record, out: &mut Vec<u8>) {
    out.extend(pb::Record::from(record).encode_to_vec());
}

/// Reads one record that [`encode_record`] wrote.
///
/// # Errors
/// [`Halt::Undecodable`] on anything else.
pub fn decode_record(bytes: &[u8]) -> Result<Record, Halt> {
    let place = || "a record of the image".to_owned();
    pb::Record::decode(bytes)
        .map_err(|error| Halt::Undecodable { what: place(), why: error.to_string() })?
        .try_into()
        .map_err(|halt| within(place, halt))
}

/// Writes the record with its length before it.
///
/// # Errors
/// Those of `out`.
pub fn write_record(record: &Record, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&pb::Record::from(record).encode_length_delimited_to_vec())
}

/// Reads what [`write_record`] wrote, record by record, until the end of the source or the first error.
#[derive(Debug)]
pub struct RecordReader<R> {
    source: R,
    buffer: Vec<u8>,
    failed: bool,
}

impl<R: Read> RecordReader<R> {
    /// A reader of the source; give it a buffered one.
    pub fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), failed: false }
    }

    fn read(&mut self) -> Result<Option<Record>, ReadError> {
        let Some(length) = self.length()? else { return Ok(None) };
        if length > MAX_RECORD_BYTES as u64 {
            let why = format!("{length} bytes are more than the {MAX_RECORD_BYTES} of any record");
            return Err(damaged(why).into());
        }
        self.buffer.clear();
        // Grows with what arrives, so that a damaged length reserves nothing.
        let got = self.source.by_ref().take(length).read_to_end(&mut self.buffer)?;
        if (got as u64) < length {
            return Err(damaged(format!("it ends after {got} of {length} bytes")).into());
        }
        Ok(Some(decode_record(&self.buffer)?))
    }

    /// The next length; `None` at the end of the source.
    fn length(&mut self) -> Result<Option<u64>, ReadError> {
        let mut length = 0_u64;
        for place in 0..MAX_VARINT {
            let mut byte = [0_u8; 1];
            if let Err(error) = self.source.read_exact(&mut byte) {
                return match error.kind() {
                    io::ErrorKind::UnexpectedEof if place == 0 => Ok(None),
                    io::ErrorKind::UnexpectedEof => Err(damaged("it ends inside a length").into()),
                    _ => Err(error.into()),
                };
            }
            length |= u64::from(byte[0] & 0x7f) << (7 * place);
            if byte[0] & 0x80 == 0 {
                return Ok(Some(length));
            }
        }
        Err(damaged("a length does not end").into())
    }
}

impl<R: Read> Iterator for RecordReader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.read().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

fn damaged(why: impl Into<String>) -> Halt {
    Halt::Undecodable { what: "the image".to_owned(), why: why.into() }
}

/// Hash over the state's records in their order: equal states have equal digests on every manager.
#[must_use]
pub fn digest(state: &State) -> u64 {
    let mut hash = Xxh3::new();
    for record in state.records() {
        hash.update(&pb::Record::from(&record).encode_length_delimited_to_vec());
    }
    hash.digest()
}

impl From<&Record> for pb::Record {
    fn from(value: &Record) -> Self {
        let kind = match value {
            Record::Meta(meta) => Kind::Meta(meta.into()),
            Record::Manager(manager) => Kind::Manager((&**manager).into()),
            Record::Node(node) => Kind::Node((&**node).into()),
            Record::Job(job) => Kind::Job((&**job).into()),
            Record::Task(task) => Kind::Task((&**task).into()),
            Record::Request(request) => Kind::Request((&**request).into()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<pb::Record> for Record {
    type Error = Halt;

    fn try_from(value: pb::Record) -> Result<Self, Halt> {
        Ok(match required("kind", value.kind)? {
            Kind::Meta(meta) => Self::Meta(meta.try_into()?),
            Kind::Manager(manager) => Self::Manager(Arc::new(manager.try_into()?)),
            Kind::Node(node) => Self::Node(Arc::new(node.try_into()?)),
            Kind::Job(job) => Self::Job(Arc::new(job.try_into()?)),
            Kind::Task(task) => Self::Task(Arc::new(task.try_into()?)),
            Kind::Request(request) => Self::Request(Arc::new(request.try_into()?)),
        })
    }
}

impl From<&Meta> for pb::Meta {
    fn from(value: &Meta) -> Self {
        Self {
            cluster: value.cluster.map(|id| id.as_u128().to_be_bytes().to_vec().into()),
            epoch: value.epoch.0,
            settings: Some((&*value.settings).into()),
            applied_term: value.applied.term.0,
            applied_index: value.applied.index.0,
            now_ms: value.now.as_millis(),
            next_job: value.next_job,
            next_node: value.next_node,
            next_task: value.next_task,
            next_request: value.next_request,
        }
    }
}

impl TryFrom<pb::Meta> for Meta {
    type Error = Halt;

    fn try_from(value: pb::Meta) -> Result<Self, Halt> {
        Ok(Self {
            cluster: value.cluster.map(|bytes| cluster(&bytes)).transpose()?,
            epoch: Epoch(value.epoch),
            settings: Arc::new(required("settings", value.settings)?.try_into()?),
            applied: Position { term: Term(value.applied_term), index: Revision(value.applied_index) },
            now: moment(value.now_ms),
            next_job: value.next_job,
            next_node: value.next_node,
            next_task: value.next_task,
            next_request: value.next_request,
        })
    }
}
