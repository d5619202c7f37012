//! The records of the log: many entries packed into one value, each value with
//! its own checksum.
//!
//! sled's cost is per operation, not per byte, and its leaves split at 16
//! items, so a group commit is packed into records of at most [`RECORD_BYTES`]
//! (16 of them stay below the size from which sled moves values into blob
//! files, which it never syncs). An entry that is larger is cut into parts.

use bytes::Bytes;

/// Most bytes of entries in one record.
pub(crate) const RECORD_BYTES: usize = 24 * 1024;

/// Largest entry the log takes, in bytes.
pub const MAX_ENTRY_BYTES: usize = 16 * 1024 * 1024;

const FORMAT: u8 = 1;
const PACKED: u8 = 1;
const PART: u8 = 2;
/// format, kind, count or number of parts, part, first index, durable end.
const HEAD: usize = 1 + 1 + 4 + 4 + 8 + 8;
const CRC: usize = 4;
/// Bytes of a key: first index and part, both big-endian so that keys sort.
pub(crate) const KEY_BYTES: usize = 12;

/// What one stored value holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// Whole entries with consecutive indexes.
    Packed(Vec<Bytes>),
    /// Part `part` of `parts` of one large entry.
    Part { part: u32, parts: u32, bytes: Bytes },
}

/// One value of the log tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Index of the first (or only) entry.
    pub(crate) first: u64,
    /// One past the last index that was known to be durable when this record
    /// was written. Recovery uses it to tell a torn tail from a hole.
    pub(crate) durable_end: u64,
    pub(crate) body: Body,
}

impl Record {
    /// One past the last index this record touches.
    pub(crate) fn end(&self) -> u64 {
        match &self.body {
            Body::Packed(entries) => self.first + entries.len() as u64,
            Body::Part { .. } => self.first + 1,
        }
    }

    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        match &self.body {
            Body::Packed(_) => key(self.first, 0),
            Body::Part { part, .. } => key(self.first, *part),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, count, part, body) = match &self.body {
            Body::Packed(e) => (PACKED, e.len() as u32, 0, e.iter().map(|e| 4 + e.len()).sum()),
            Body::Part { part, parts, bytes } => (PART, *parts, *part, bytes.len()),
        };
        let mut out = Vec::with_capacity(HEAD + body + CRC);
        out.push(FORMAT);
        out.push(kind);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&part.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.durable_end.to_le_bytes());
        match &self.body {
            Body::Packed(entries) => {
                for e in entries {
                    out.extend_from_slice(&(e.len() as u32).to_le_bytes());
                    out.extend_from_slice(e);
                }
            }
            Body::Part { bytes, .. } => out.extend_from_slice(bytes),
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a value back; the error says what does not fit.
    pub(crate) fn decode(key: &[u8], value: Bytes) -> Result<Record, String> {
        if value.len() < HEAD + CRC {
            return Err(format!("record of {} bytes is too short", value.len()));
        }
        let (body_end, stored) = (value.len() - CRC, u32_at(&value, value.len() - CRC));
        let computed = crc32fast::hash(&value[..body_end]);
        if stored != computed {
            return Err(format!("checksum is {computed:08x}, stored is {stored:08x}"));
        }
        if value[0] != FORMAT {
            return Err(format!("record format {} is unknown (this version reads {FORMAT})", value[0]));
        }
        let (count, part) = (u32_at(&value, 2), u32_at(&value, 6));
        let (first, durable_end) = (u64_at(&value, 10), u64_at(&value, 18));
        let body = match value[1] {
            PACKED => Body::Packed(unpack(&value.slice(HEAD..body_end), count)?),
            PART if part < count => Body::Part { part, parts: count, bytes: value.slice(HEAD..body_end) },
            kind => return Err(format!("record kind {kind} with part {part} of {count} is unknown")),
        };
        let record = Record { first, durable_end, body };
        if record.key() != key {
            return Err(format!("record of index {first} lies under another key"));
        }
        Ok(record)
    }
}

fn unpack(body: &Bytes, count: u32) -> Result<Vec<Bytes>, String> {
    let (mut entries, mut at) = (Vec::with_capacity((count as usize).min(RECORD_BYTES)), 0);
    for n in 0..count {
        let len = body.get(at..at + 4).map(|b| u32_at(b, 0) as usize);
        let entry = len.filter(|len| at + 4 + len <= body.len()).map(|len| body.slice(at + 4..at + 4 + len));
        let Some(entry) = entry else { return Err(format!("entry {n} of {count} runs past the record")) };
        at += 4 + entry.len();
        entries.push(entry);
    }
    if at != body.len() || count == 0 {
        return Err(format!("{count} entries take {at} of {} bytes", body.len()));
    }
    Ok(entries)
}

/// The key of the record that starts at `first`.
pub(crate) fn key(first: u64, part: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Packs consecutive entries, the first at index `first`, into records.
pub(crate) fn pack(mut first: u64, durable_end: u64, entries: &[Bytes]) -> Vec<Record> {
    let (mut out, mut open, mut bytes) = (Vec::new(), Vec::new(), 0);
    let seal = |open: &mut Vec<Bytes>, first: &mut u64, out: &mut Vec<Record>| {
        if !open.is_empty() {
            let body = Body::Packed(std::mem::take(open));
            let record = Record { first: *first, durable_end, body };
            *first = record.end();
            out.push(record);
        }
    };
    for e in entries {
        if !open.is_empty() && bytes + 4 + e.len() > RECORD_BYTES {
            seal(&mut open, &mut first, &mut out);
            bytes = 0;
        }
        if e.len() + 4 <= RECORD_BYTES {
            open.push(e.clone());
            bytes += 4 + e.len();
            continue;
        }
        let parts = e.len().div_ceil(RECORD_BYTES) as u32;
        for part in 0..parts {
            let from = part as usize * RECORD_BYTES;
            let bytes = e.slice(from..(from + RECORD_BYTES).min(e.len()));
            out.push(Record { first, durable_end, body: Body::Part { part, parts, bytes } });
        }
        first += 1;
    }
    seal(&mut open, &mut first, &mut out);
    out
}

/// Joins records, read in key order, back into entries; complains about the
/// first thing that does not follow.
#[derive(Default)]
pub(crate) struct Joiner {
    parts: Vec<Bytes>,
}

impl Joiner {
    /// Takes the next record, which has to start at index `next`. Returns the
    /// entries that are complete now (none while parts are outstanding).
    pub(crate) fn push(&mut self, next: u64, record: Record) -> Result<Vec<Bytes>, String> {
        if record.first != next {
            return Err(format!("index {} follows where {next} is due", record.first));
        }
        match record.body {
            Body::Packed(entries) if self.parts.is_empty() => Ok(entries),
            Body::Packed(_) => Err(format!("entry {next} lacks parts after the first {}", self.parts.len())),
            Body::Part { part, parts, bytes } => {
                if part as usize != self.parts.len() {
                    return Err(format!("entry {next} lacks part {} of {parts}", self.parts.len()));
                }
                self.parts.push(bytes);
                if self.parts.len() < parts as usize {
                    return Ok(Vec::new());
                }
                Ok(vec![Bytes::from(std::mem::take(&mut self.parts).concat())])
            }
        }
    }

    /// Whether an entry is still waiting for parts.
    pub(crate) fn is_open(&self) -> bool {
        !self.parts.is_empty()
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join(first: u64, records: Vec<Record>) -> Vec<Bytes> {
        let (mut joiner, mut next, mut out) = (Joiner::default(), first, Vec::new());
        for r in records {
            let decoded = Record::decode(&r.key(), Bytes::from(r.encode())).unwrap();
            assert_eq!(decoded, r);
            let entries = joiner.push(next, decoded).unwrap();
            next += entries.len() as u64;
            out.extend(entries);
        }
        assert!(!joiner.is_open());
        out
    }

    proptest! {
        #[test]
        fn packing_and_joining_gives_the_same_entries(
            first in 0u64..1_000_000,
            sizes in prop::collection::vec(prop_oneof![0usize..300, 20_000usize..80_000], 0..12),
        ) {
            let entries: Vec<Bytes> = sizes.iter().enumerate().map(|(i, n)| Bytes::from(vec![i as u8; *n])).collect();
            let records = pack(first, first, &entries);
            for r in &records {
                prop_assert!(r.encode().len() <= RECORD_BYTES + HEAD + CRC);
            }
            prop_assert_eq!(join(first, records), entries);
        }

        #[test]
        fn a_flipped_bit_is_noticed(at in 0usize..200, bit in 0u8..8) {
            let record = pack(7, 7, &[Bytes::from_static(&[9; 100]), Bytes::from_static(&[1; 50])]).remove(0);
            let mut value = record.encode();
            let at = at % value.len();
            value[at] ^= 1 << bit;
            prop_assert!(Record::decode(&record.key(), Bytes::from(value)).is_err());
        }
    }

    #[test]
    fn a_missing_part_is_named() {
        let big = Bytes::from(vec![5; RECORD_BYTES * 2 + 10]);
        let mut records = pack(3, 3, &[big]);
        assert_eq!(records.len(), 3);
        records.remove(1);
        let mut joiner = Joiner::default();
        assert_eq!(joiner.push(3, records.remove(0)).unwrap(), Vec::<Bytes>::new());
        assert_eq!(joiner.push(3, records.remove(0)).unwrap_err(), "entry 3 lacks part 1 of 3");
    }
}
