//! What a store holds after a start: checks every record, cuts a torn tail,
//! refuses a hole.

use bytes::Bytes;

use crate::StorageError;
use crate::medium::{Batch, Change, Medium, Reader, named};
use crate::record::{Body, Joiner, RECORD_BYTES, Record, key};

/// Bytes read from the store per step of the scan.
const SCAN_BYTES: usize = 1 << 20;

/// Keys of the meta tree.
pub(crate) const VOTE: &[u8] = b"vote";
pub(crate) const COMMITTED: &[u8] = b"committed";
pub(crate) const PURGED: &[u8] = b"purged";
const OWNER: &[u8] = b"owner";

/// Records that were written but never acknowledged, and were torn by a power
/// cut: they have been removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// First index that was removed; the log now ends here.
    pub from: u64,
    /// Number of records removed.
    pub records: usize,
    /// What was wrong with the first of them.
    pub reason: String,
}

/// What the store held at start. Values are what the caller stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// First index of the log.
    pub start: u64,
    /// One past the last index of the log.
    pub end: u64,
    /// What the last purge left as its marker.
    pub purged: Option<Bytes>,
    /// The last durable vote.
    pub vote: Option<Bytes>,
    /// How many votes have been saved.
    pub(crate) votes: u64,
    /// The last durable commit note; it may lie behind the real one.
    pub committed: Option<Bytes>,
    /// Set if an unacknowledged torn tail was cut.
    pub torn: Option<TornTail>,
}

/// Reads and checks the whole store; cuts a torn tail durably.
pub(crate) fn recover(medium: &mut dyn Medium) -> Result<Recovered, StorageError> {
    let reader = medium.reader();
    let purged = meta(&*reader, PURGED)?;
    let (start, marker) = match purged {
        None => (0, None),
        Some(value) => {
            let (start, marker) = split_counted("the purge marker", value)?;
            (start, Some(marker))
        }
    };
    let (votes, vote) = match meta(&*reader, VOTE)? {
        None => (0, None),
        Some(value) => {
            let (votes, vote) = split_counted("the vote", value)?;
            (votes, Some(vote))
        }
    };
    let mark = medium.marked().map_err(named("reading the log's mark"))?;
    let mut found = Recovered {
        start,
        end: start,
        purged: marker,
        vote,
        votes,
        committed: meta(&*reader, COMMITTED)?,
        torn: None,
    };
    let scan = scan(&*reader, start)?;
    found.end = scan.end;
    if mark.end > scan.end || mark.votes > votes {
        let (reason, _) = scan.bad.unwrap_or(("the end of the store is gone".to_owned(), Vec::new()));
        let (end, all) = (scan.end, mark.end);
        return Err(StorageError::damaged(
            "the log store",
            format!(
                "{reason}: it ends at index {end} of {all} and with vote {votes} of {} that were acknowledged",
                mark.votes
            ),
        ));
    }
    let Some((reason, keys)) = scan.bad else { return Ok(found) };
    if scan.acknowledged > scan.end {
        return Err(StorageError::damaged(
            format!("the log at index {}", scan.end),
            format!("{reason}, but entries up to index {} were acknowledged", scan.acknowledged - 1),
        ));
    }
    found.torn = Some(TornTail { from: scan.end, records: keys.len(), reason });
    let log = keys.into_iter().map(|k| (k, None)).collect();
    medium.apply(Batch { meta: Vec::new(), log }).map_err(named("cutting the torn tail"))?;
    medium.sync().map_err(named("cutting the torn tail"))?;
    Ok(found)
}

/// Marks a new store with the Raft id it belongs to, or checks the mark of an
/// old one. sled opens a file whose first segment is gone as an empty store
/// without a word; here that is damage.
pub(crate) fn check_owner(medium: &mut dyn Medium, raft_id: u64, new: bool) -> Result<(), StorageError> {
    let owner = meta(&*medium.reader(), OWNER)?;
    match owner.as_deref().and_then(<[u8]>::first_chunk) {
        Some(id) if *id == raft_id.to_le_bytes() => Ok(()),
        Some(id) => {
            let reason =
                format!("it was written under Raft id {:016x}, not {raft_id:016x}", u64::from_le_bytes(*id));
            Err(StorageError::damaged("the log store", reason))
        }
        None if new => {
            let mark = (OWNER.to_vec(), Some(seal(&raft_id.to_le_bytes())));
            let marked =
                medium.apply(Batch { meta: vec![mark], log: Vec::new() }).and_then(|()| medium.sync());
            marked.map_err(named("marking the log store"))
        }
        None => Err(StorageError::damaged("the log store", "its owner's mark is gone, and all data with it")),
    }
}

struct Scan {
    end: u64,
    acknowledged: u64,
    /// The first complaint, and every key from there on.
    bad: Option<(String, Vec<Vec<u8>>)>,
}

fn scan(reader: &dyn Reader, start: u64) -> Result<Scan, StorageError> {
    let mut scan = Scan { end: start, acknowledged: start, bad: None };
    let mut joiner = Joiner::default();
    let mut open_keys = Vec::new();
    let mut from = first_key(reader, start)?;
    loop {
        let page = reader.scan(&from, SCAN_BYTES).map_err(named("reading the log"))?;
        let Some((last, _)) = page.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        for (k, value) in page {
            let record = Record::decode(&k, Bytes::from(value));
            if let Ok(r) = &record {
                scan.acknowledged = scan.acknowledged.max(r.durable_end);
            }
            if let Some((_, keys)) = &mut scan.bad {
                keys.push(k);
                continue;
            }
            match record.and_then(|r| advance(&mut joiner, &mut scan.end, start, r)) {
                Ok(()) if joiner.is_open() => open_keys.push(k),
                Ok(()) => open_keys.clear(),
                Err(reason) => {
                    let mut keys = std::mem::take(&mut open_keys);
                    keys.push(k);
                    scan.bad = Some((reason, keys));
                }
            }
        }
    }
    if scan.bad.is_none() && joiner.is_open() {
        scan.bad = Some((format!("entry {} lacks its last parts", scan.end), open_keys));
    }
    Ok(scan)
}

/// Counts a record's entries; records below `start` are leftovers of a purge.
fn advance(joiner: &mut Joiner, end: &mut u64, start: u64, record: Record) -> Result<(), String> {
    if record.end() <= start {
        return Ok(());
    }
    let next = if *end == start { record.first.min(start) } else { *end };
    *end = next + joiner.push(next, record)?.len() as u64;
    *end = (*end).max(start);
    Ok(())
}

/// The key of the record that holds `index`, or would.
pub(crate) fn first_key(reader: &dyn Reader, index: u64) -> Result<Vec<u8>, StorageError> {
    let floor = reader.floor(&key(index, 0)).map_err(named("reading the log"))?;
    Ok(floor.unwrap_or_else(|| key(index, 0).to_vec()))
}

/// A meta value with its checksum in front.
pub(crate) fn seal(value: &[u8]) -> Vec<u8> {
    [&crc32fast::hash(value).to_le_bytes()[..], value].concat()
}

fn meta(reader: &dyn Reader, name: &'static [u8]) -> Result<Option<Bytes>, StorageError> {
    let Some(stored) = reader.meta(name).map_err(named("reading the log's bookkeeping"))? else {
        return Ok(None);
    };
    let stored = Bytes::from(stored);
    match stored.first_chunk::<4>() {
        Some(crc) if u32::from_le_bytes(*crc) == crc32fast::hash(&stored[4..]) => Ok(Some(stored.slice(4..))),
        _ => Err(StorageError::damaged(
            format!("the {} note", String::from_utf8_lossy(name)),
            "its checksum does not fit".to_owned(),
        )),
    }
}

/// The value of a meta key that goes with a number: the first index of the log
/// with the purge marker, the count of votes with the vote.
pub(crate) fn counted(number: u64, value: &[u8]) -> Vec<u8> {
    seal(&[&number.to_le_bytes()[..], value].concat())
}

fn split_counted(what: &str, value: Bytes) -> Result<(u64, Bytes), StorageError> {
    match value.first_chunk::<8>() {
        Some(number) => Ok((u64::from_le_bytes(*number), value.slice(8..))),
        None => Err(StorageError::damaged(what, format!("it has {} bytes", value.len()))),
    }
}

/// Reads the entries of `range` from the store, up to `limit` bytes but at
/// least one. `None` if the first of them is gone (purged meanwhile).
pub(crate) fn read(
    reader: &dyn Reader,
    range: std::ops::Range<u64>,
    limit: usize,
) -> Result<Option<Vec<Bytes>>, StorageError> {
    let (mut joiner, mut next, mut bytes, mut out) = (Joiner::default(), None, 0, Vec::new());
    let mut from = first_key(reader, range.start)?;
    loop {
        let page = reader.scan(&from, limit.min(SCAN_BYTES)).map_err(named("reading the log"))?;
        let Some((last, _)) = page.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        for (k, value) in page {
            let damaged =
                |reason| StorageError::damaged(format!("the log near index {}", range.start), reason);
            let record = Record::decode(&k, Bytes::from(value)).map_err(damaged)?;
            if record.end() <= range.start {
                continue;
            }
            let at = *next.get_or_insert(record.first);
            let entries = joiner.push(at, record).map_err(damaged)?;
            next = Some(at + entries.len() as u64);
            for (i, e) in (at..).zip(entries) {
                if i < range.start {
                    continue;
                }
                if i >= range.end || (bytes + e.len() > limit && !out.is_empty()) {
                    return Ok(Some(out));
                }
                if i > range.start && out.is_empty() {
                    return Ok(None);
                }
                bytes += e.len();
                out.push(e);
            }
        }
    }
    Ok((!out.is_empty()).then_some(out))
}

/// The changes that cut the log at `from`: later records go, the one that
/// straddles is written anew without its end.
pub(crate) fn truncation(reader: &dyn Reader, from: u64) -> Result<Batch, StorageError> {
    let mut batch = Batch::default();
    let mut at = first_key(reader, from)?;
    loop {
        let page = reader.scan(&at, SCAN_BYTES).map_err(named("reading the log"))?;
        let Some((last, _)) = page.last() else { break };
        at = [last.as_slice(), &[0]].concat();
        for (k, value) in page {
            let record = Record::decode(&k, Bytes::from(value))
                .map_err(|reason| StorageError::damaged(format!("the log near index {from}"), reason))?;
            if let Some(change) = cut(record, from, k) {
                batch.log.push(change);
            }
        }
    }
    // From the end backwards, so that no part of this leaves a hole.
    batch.log.reverse();
    Ok(batch)
}

fn cut(mut record: Record, from: u64, k: Vec<u8>) -> Option<Change> {
    if record.first >= from {
        return Some((k, None));
    }
    if record.end() <= from {
        return None;
    }
    if let Body::Packed(entries) = &mut record.body {
        entries.truncate((from - record.first) as usize);
    }
    Some((k, Some(record.encode())))
}

/// Where the removal of purged records stands.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Records from this key on have not been looked at.
    cursor: Vec<u8>,
    /// Records that end at or below this index can go.
    start: u64,
    done: bool,
}

impl Sweep {
    pub(crate) fn new(start: u64) -> Sweep {
        Sweep { cursor: key(0, 0).to_vec(), start, done: start == 0 }
    }

    /// There may be more to remove below `start`.
    pub(crate) fn raise(&mut self, start: u64) {
        self.start = self.start.max(start);
        self.done = false;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Removals of the next few records. Small steps: one batch with all of
    /// them would keep every append waiting for seconds.
    pub(crate) fn step(&mut self, reader: &dyn Reader, records: usize) -> Result<Vec<Change>, StorageError> {
        let mut changes = Vec::new();
        let page = reader.scan(&self.cursor, records * RECORD_BYTES / 4).map_err(named("purging the log"))?;
        self.done = page.is_empty();
        for (k, value) in page {
            let record = Record::decode(&k, Bytes::from(value)).map_err(|reason| {
                StorageError::damaged(format!("the log below index {}", self.start), reason)
            })?;
            if record.end() > self.start {
                self.cursor = k;
                self.done = true;
                break;
            }
            self.cursor = [k.as_slice(), &[0]].concat();
            changes.push((k, None));
            if changes.len() == records {
                break;
            }
        }
        Ok(changes)
    }
}
