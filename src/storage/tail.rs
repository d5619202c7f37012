//! The end of the log in memory: replication and apply read it here, never
//! from the store, unless they lag far behind.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::StorageError;

/// Where the log stands, and its newest entries. Ranges are half-open.
#[derive(Debug)]
pub(crate) struct Tail {
    /// First index of the log; everything below is purged.
    pub(crate) start: u64,
    /// One past the last index.
    pub(crate) end: u64,
    /// One past the last index that is durable. Entries from here on are only
    /// in memory and never evicted.
    durable_end: u64,
    /// Counts truncations, so that a flush that began before one can't declare
    /// the entries written after it durable.
    epoch: u64,
    /// Index of `entries[0]`.
    first: u64,
    entries: VecDeque<Bytes>,
    bytes: usize,
    /// Most bytes of durable entries that are kept.
    capacity: usize,
}

/// What a range of the log needs to be read.
pub(crate) enum Lookup {
    /// All of it is here: index of the first entry, entries.
    Here(u64, Vec<Bytes>),
    /// This range has to come from the store first.
    Stored(Range<u64>),
}

impl Tail {
    /// A tail that knows the log's bounds but holds no entries yet.
    pub(crate) fn new(start: u64, end: u64, capacity: usize) -> Tail {
        let entries = VecDeque::new();
        Tail { start, end, durable_end: end, epoch: 0, first: end, entries, bytes: 0, capacity }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Adds entries behind the last one.
    pub(crate) fn append(&mut self, first: u64, entries: &[Bytes]) -> Result<(), StorageError> {
        if first != self.end {
            return Err(StorageError::OutOfOrder { got: first, start: self.start, end: self.end });
        }
        self.end += entries.len() as u64;
        self.bytes += entries.iter().map(Bytes::len).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
        Ok(())
    }

    /// Removes the entries from `from` on.
    pub(crate) fn truncate(&mut self, from: u64) -> Result<(), StorageError> {
        if from < self.start || from > self.end {
            return Err(StorageError::OutOfOrder { got: from, start: self.start, end: self.end });
        }
        let keep = from.saturating_sub(self.first) as usize;
        for gone in self.entries.drain(keep.min(self.entries.len())..) {
            self.bytes -= gone.len();
        }
        self.first = self.first.min(from);
        self.end = from;
        self.durable_end = self.durable_end.min(from);
        self.epoch += 1;
        Ok(())
    }

    /// Forgets what lies below `start`; returns the entries so that the caller
    /// can drop them where it does not hurt.
    pub(crate) fn purge(&mut self, start: u64) -> VecDeque<Bytes> {
        if start <= self.start {
            return VecDeque::new();
        }
        self.start = start;
        let gone = (start.saturating_sub(self.first) as usize).min(self.entries.len());
        let keep = self.entries.split_off(gone);
        let trash = std::mem::replace(&mut self.entries, keep);
        self.bytes -= trash.iter().map(Bytes::len).sum::<usize>();
        self.first = self.first.max(start);
        self.end = self.end.max(start);
        self.durable_end = self.durable_end.max(start);
        trash
    }

    /// Notes that everything below `end`, accepted in `epoch`, is durable, and
    /// evicts what exceeds the capacity.
    pub(crate) fn durable(&mut self, end: u64, epoch: u64) {
        if epoch == self.epoch {
            self.durable_end = self.durable_end.max(end.min(self.end));
        }
        while self.bytes > self.capacity && self.first < self.durable_end {
            let Some(gone) = self.entries.pop_front() else { break };
            self.bytes -= gone.len();
            self.first += 1;
        }
    }

    /// The entries of `range` that the log holds, up to `limit` bytes (at least
    /// one entry), or the part that must be read from the store.
    pub(crate) fn lookup(&self, range: &Range<u64>, limit: usize) -> Lookup {
        let range = range.start.max(self.start)..range.end.min(self.end);
        if range.is_empty() {
            return Lookup::Here(range.start, Vec::new());
        }
        if range.start < self.first {
            return Lookup::Stored(range.start..range.end.min(self.first));
        }
        let (from, to) = ((range.start - self.first) as usize, (range.end - self.first) as usize);
        let mut left = limit;
        let mut out = Vec::with_capacity((to - from).min(1024));
        for e in self.entries.range(from..to) {
            if e.len() > left && !out.is_empty() {
                break;
            }
            left = left.saturating_sub(e.len());
            out.push(e.clone());
        }
        Lookup::Here(range.start, out)
    }

    /// Bytes of entries held in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u8) -> Bytes {
        Bytes::from(vec![n; 10])
    }

    #[test]
    fn entries_that_are_not_durable_are_never_evicted() {
        let mut t = Tail::new(0, 0, 25);
        t.append(0, &[entry(0), entry(1), entry(2), entry(3)]).unwrap();
        t.durable(1, 0);
        assert_eq!((t.first, t.bytes()), (1, 30));
        t.durable(4, 0);
        assert_eq!((t.first, t.bytes()), (2, 20));
        assert!(matches!(t.lookup(&(0..4), 1000), Lookup::Stored(r) if r == (0..2)));
        assert!(matches!(t.lookup(&(2..9), 1000), Lookup::Here(2, e) if e.len() == 2));
    }

    #[test]
    fn a_flush_from_before_a_truncation_does_not_make_new_entries_durable() {
        let mut t = Tail::new(0, 0, 0);
        t.append(0, &[entry(0), entry(1), entry(2)]).unwrap();
        let old = t.epoch();
        t.truncate(1).unwrap();
        t.append(1, &[entry(7), entry(8)]).unwrap();
        t.durable(3, old);
        assert!(matches!(t.lookup(&(1..3), 1000), Lookup::Here(1, e) if e[0] == entry(7)));
    }

    #[test]
    fn purging_past_the_end_moves_the_end() {
        let mut t = Tail::new(0, 0, 100);
        t.append(0, &[entry(0), entry(1)]).unwrap();
        assert_eq!(t.purge(9).len(), 2);
        assert_eq!((t.start, t.end, t.bytes()), (9, 9, 0));
        assert!(t.append(2, &[entry(2)]).is_err());
        t.append(9, &[entry(2)]).unwrap();
    }

    #[test]
    fn a_read_is_limited_by_bytes_but_gives_at_least_one_entry() {
        let mut t = Tail::new(5, 5, 100);
        t.append(5, &[entry(0), entry(1), entry(2)]).unwrap();
        assert!(matches!(t.lookup(&(0..9), 1), Lookup::Here(5, e) if e.len() == 1));
        assert!(matches!(t.lookup(&(0..9), 20), Lookup::Here(5, e) if e.len() == 2));
    }
}
