//! Compact forms: ids as differences, times as milliseconds, keyed maps.

use std::{collections::BTreeMap, time::Duration};

use prost::bytes::Bytes;
use quorate_base::{
    id::{ClusterId, RequestId},
    time::Timestamp,
};
use quorate_model::{Name, TaskId, TraceContext};
use quorate_state::Halt;

use super::{bad, name};

/// Ids as differences to the one before; any order, a run costs a byte each.
pub(super) fn deltas(ids: impl IntoIterator<Item = TaskId>) -> Vec<i64> {
    let mut before = 0_u64;
    ids.into_iter()
        .map(|id| {
            let delta = id.0.wrapping_sub(before).cast_signed();
            before = id.0;
            delta
        })
        .collect()
}

/// The inverse of [`deltas`].
pub(super) fn ids(deltas: Vec<i64>) -> impl Iterator<Item = TaskId> {
    deltas.into_iter().scan(0_u64, |before, delta| {
        *before = before.wrapping_add(delta.cast_unsigned());
        Some(TaskId(*before))
    })
}

/// Whole milliseconds of a duration; the model has no finer ones.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A moment of the log.
pub(super) fn moment(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The 16 bytes of a cluster's identity.
pub(super) fn cluster(bytes: &[u8]) -> Result<ClusterId, Halt> {
    let bits = bytes.try_into().map(u128::from_be_bytes);
    bits.map(ClusterId::from_u128)
        .map_err(|_| bad("cluster id", format!("has {} bytes instead of 16", bytes.len())))
}

/// A trace context, out; empty = none.
pub(super) fn trace_out(trace: Option<TraceContext>) -> Bytes {
    trace.map(|trace| trace.pack().into()).unwrap_or_default()
}

/// A trace context, in; what is none is left out: no decision hangs on it.
pub(super) fn trace_in(packed: &[u8]) -> Option<TraceContext> {
    TraceContext::unpack(packed)
}

/// A request id that was checked before it was stored.
pub(super) fn request_id(text: &str) -> Result<RequestId, Halt> {
    RequestId::new(text).map_err(|error| bad("request id", error.to_string()))
}

/// A map by name, out.
pub(super) fn by_text<'a, T: 'a, P: From<&'a T>>(map: &'a BTreeMap<Name, T>) -> BTreeMap<String, P> {
    map.iter().map(|(key, value)| (key.as_str().to_owned(), P::from(value))).collect()
}

/// A map by name, in.
pub(super) fn by_name<P, T: TryFrom<P, Error = Halt>>(
    what: &str,
    map: BTreeMap<String, P>,
) -> Result<BTreeMap<Name, T>, Halt> {
    map.into_iter().map(|(key, value)| Ok((name(what, &key)?, value.try_into()?))).collect()
}

/// A list, in.
pub(super) fn all<P, T: TryFrom<P, Error = Halt>>(list: Vec<P>) -> Result<Vec<T>, Halt> {
    list.into_iter().map(T::try_from).collect()
}
