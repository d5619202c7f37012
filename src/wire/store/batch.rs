//! Log entries: a batch of commands each.

use prost::{Message, bytes::Bytes};
use quorate_model::{ClusterVersion, Revision, Term};
use quorate_state::{Command, CommandKind, Envelope, Halt};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    bad, command,
    pack::{moment, trace_in, trace_out},
    required, within,
};
use crate::generated::store as pb;

/// The format of payloads that this binary writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// Most bytes of one log entry: bounds the memory that reading it can take.
pub const MAX_ENTRY_BYTES: usize = 64 << 20;

/// The content of a log entry.
#[must_use]
pub fn encode_batch(envelopes: &[Envelope]) -> Bytes {
    pb::Commands { envelopes: envelopes.iter().map(Into::into).collect() }.encode_to_vec().into()
}

/// Reads the content of the log entry at `at`.
///
/// # Errors
/// [`Halt::NeedsVersion`] on a kind or format that this binary does not know, [`Halt::Undecodable`] on bytes
/// that are no entry.
pub fn decode_batch(bytes: &[u8], at: Revision) -> Result<Vec<Envelope>, Halt> {
    let place = || format!("log entry {at}");
    if bytes.len() > MAX_ENTRY_BYTES {
        let why = format!("{} bytes are more than the {MAX_ENTRY_BYTES} of any entry", bytes.len());
        return Err(Halt::Undecodable { what: place(), why });
    }
    let commands = pb::Commands::decode(bytes)
        .map_err(|error| Halt::Undecodable { what: place(), why: error.to_string() })?;
    commands.envelopes.into_iter().map(|e| open(e, at).map_err(|halt| within(place, halt))).collect()
}

/// What tells two requests with one id apart: a hash over the command's kind and payload.
#[must_use]
pub fn fingerprint(command: &Command) -> u64 {
    xxh3_64_with_seed(&command::encode(command), command.kind().number().into())
}

impl From<&Envelope> for pb::Envelope {
    fn from(value: &Envelope) -> Self {
        Self {
            kind: value.command.kind().number().into(),
            format: FORMAT,
            proposed_at_ms: value.proposed_at.as_millis(),
            fence: value.fence.map(|term| term.0),
            actor: Some((&value.actor).into()),
            request: value.request.as_ref().map(Into::into),
            payload: command::encode(&value.command).into(),
            trace: trace_out(value.trace),
        }
    }
}

fn open(value: pb::Envelope, at: Revision) -> Result<Envelope, Halt> {
    let (kind, format) = (value.kind, value.format);
    if kind == 0 || format == 0 {
        return Err(bad("command", "has no kind or no format"));
    }
    let known = u16::try_from(kind).ok().and_then(CommandKind::from_number).filter(|_| format <= FORMAT);
    let Some(known) = known else {
        return Err(Halt::NeedsVersion { index: at, kind, format, known: ClusterVersion::NEWEST });
    };
    Ok(Envelope {
        proposed_at: moment(value.proposed_at_ms),
        fence: value.fence.map(Term),
        actor: required("actor", value.actor)?.try_into()?,
        request: value.request.map(TryInto::try_into).transpose()?,
        trace: trace_in(&value.trace),
        command: command::decode(known, &value.payload)
            .map_err(|halt| within(|| format!("{known:?}:"), halt))?,
    })
}
