//! Messages that API and agents' protocol share, and their conversions.

mod spec;

use std::{collections::BTreeMap, time::Duration};

use quorate_base::time::Timestamp;
use quorate_model::{InvalidList, Name};

pub use crate::generated::common::*;
pub(crate) use spec::{containers, ports, reschedule, restart, volumes};

impl ReadOptions {
    /// Whether a stale answer will do.
    #[must_use]
    pub fn stale(read: Option<&Self>) -> bool {
        read.is_some_and(|read| read.consistency() == Consistency::Stale)
    }
}

/// A moment, out.
#[must_use]
pub fn timestamp(at: Timestamp) -> pbjson_types::Timestamp {
    let (seconds, millis) = (at.as_millis() / 1000, at.as_millis() % 1000);
    // Both fit: u64::MAX / 1000 is below i64::MAX, and a thousand millions is below i32::MAX.
    pbjson_types::Timestamp {
        seconds: seconds.cast_signed(),
        nanos: (millis as u32 * 1_000_000).cast_signed(),
    }
}

/// A moment, in: cut to milliseconds; before 1970 counts as 1970.
#[must_use]
pub fn moment(at: &pbjson_types::Timestamp) -> Timestamp {
    let seconds = u64::try_from(at.seconds).unwrap_or(0);
    let millis = u64::from(at.nanos.max(0).unsigned_abs() / 1_000_000);
    Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(millis))
}

/// A span, out.
#[must_use]
pub fn duration(span: Duration) -> pbjson_types::Duration {
    pbjson_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: span.subsec_nanos().cast_signed(),
    }
}

/// A span, in: whole milliseconds, not negative; `default` when unset.
pub(crate) fn span(
    path: &str,
    sent: Option<pbjson_types::Duration>,
    default: Duration,
    out: &mut InvalidList,
) -> Duration {
    let Some(sent) = sent else { return default };
    match (u64::try_from(sent.seconds), u32::try_from(sent.nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => {
            if nanos % 1_000_000 != 0 {
                out.push(path, "must be whole milliseconds");
            }
            Duration::new(seconds, nanos)
        }
        (Ok(_), Ok(_)) => {
            out.push(path, "must have less than a second in nanos");
            default
        }
        _ => {
            out.push(path, "must not be negative");
            default
        }
    }
}

/// A map by name, in: entries that break a rule are reported and left out.
pub(crate) fn by_name<P, T>(
    path: &str,
    map: BTreeMap<String, P>,
    out: &mut InvalidList,
    mut convert: impl FnMut(&str, P, &mut InvalidList) -> Option<T>,
) -> BTreeMap<Name, T> {
    let mut good = BTreeMap::new();
    for (key, value) in map {
        let path = format!("{path}.{key}");
        let name = Name::parse(&path, &key).map_err(|invalid| out.0.push(invalid)).ok();
        if let (Some(name), Some(value)) = (name, convert(&path, value, out)) {
            good.insert(name, value);
        }
    }
    good
}

/// A map by name, out.
pub(crate) fn by_text<'a, T: 'a, P: From<&'a T>>(map: &'a BTreeMap<Name, T>) -> BTreeMap<String, P> {
    map.iter().map(|(key, value)| (key.as_str().to_owned(), P::from(value))).collect()
}

/// An enumeration, in: unknown numbers are reported; the caller gives "unspecified" its meaning.
pub(crate) fn choice<P: TryFrom<i32> + Default>(path: &str, number: i32, out: &mut InvalidList) -> P {
    P::try_from(number).unwrap_or_else(|_| {
        out.push(path, format!("{number} is unknown to this manager"));
        P::default()
    })
}
