//! The changes of the near past, bounded: what watchers read from, each at its own place.

use std::{collections::VecDeque, sync::Arc};

use quorate_base::time::Timestamp;
use quorate_model::Revision;
use quorate_wire::api as pb;

use super::filter::Tags;

/// One change with what filters ask for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tagged {
    pub(crate) tags: Tags,
    pub(crate) change: pb::Change,
    /// Bytes of the encoded change.
    pub(crate) bytes: usize,
}

/// All changes of one revision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    /// Replicated time, about.
    pub(crate) time: Timestamp,
    pub(crate) changes: Vec<Tagged>,
}

impl Entry {
    /// What keeping it costs, roughly.
    fn bytes(&self) -> usize {
        const PER_CHANGE: usize = 256;
        self.changes.iter().map(|change| change.bytes * 2 + PER_CHANGE).sum()
    }
}

/// Why a place cannot be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The changes after it were never known one by one: the whole state was replaced since.
    Replaced {
        /// The oldest place that can be read from.
        oldest: Revision,
    },
    /// The changes after it are not kept any more.
    Dropped {
        /// The oldest place that can be read from.
        oldest: Revision,
    },
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Revisions with changes.
    pub(crate) entries: usize,
    /// Bytes, roughly.
    pub(crate) bytes: usize,
}

/// The changes after `base`.
#[derive(Debug)]
pub(crate) struct Ring {
    bounds: Bounds,
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    base: Revision,
    /// Where it began.
    began: Revision,
    head: Revision,
}

impl Ring {
    /// An empty ring that begins after `base`.
    pub(crate) fn new(base: Revision, bounds: Bounds) -> Self {
        Self { bounds, entries: VecDeque::new(), bytes: 0, base, began: base, head: base }
    }

    /// Every change up to here is in, or was.
    pub(crate) fn head(&self) -> Revision {
        self.head
    }

    /// The oldest place that can be read from.
    pub(crate) fn oldest(&self) -> Revision {
        self.base
    }

    /// Appends the changes of a revision; what was there already is left out. The oldest go when there are too many.
    pub(crate) fn push(&mut self, entry: Entry) {
        if entry.revision <= self.head {
            return;
        }
        self.head = entry.revision;
        self.bytes += entry.bytes();
        self.entries.push_back(Arc::new(entry));
        // The newest always stays: a large revision must not throw out those who are up to date.
        while self.entries.len() > 1
            && (self.entries.len() > self.bounds.entries || self.bytes > self.bounds.bytes)
        {
            let Some(old) = self.entries.pop_front() else { break };
            self.bytes -= old.bytes();
            self.base = old.revision;
        }
    }

    /// Notes that there was no further change up to `head`.
    pub(crate) fn reach(&mut self, head: Revision) {
        self.head = self.head.max(head);
    }

    /// Begins anew after `base`: what came before is not known change by change.
    pub(crate) fn restart(&mut self, base: Revision) {
        *self = Self::new(base, self.bounds);
    }

    /// At most `most` entries after `place`.
    ///
    /// # Errors
    /// [`Missing`]
    pub(crate) fn after(&self, place: Revision, most: usize) -> Result<Vec<Arc<Entry>>, Missing> {
        let oldest = self.base;
        if place < self.began {
            return Err(Missing::Replaced { oldest });
        }
        if place < oldest {
            return Err(Missing::Dropped { oldest });
        }
        let from = self.entries.partition_point(|entry| entry.revision <= place);
        Ok(self.entries.range(from..).take(most).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { entries: 4, bytes: usize::MAX };

    fn entry(revision: u64, bytes: usize) -> Entry {
        let tagged = Tagged { tags: Tags::default(), change: pb::Change::default(), bytes };
        Entry { revision: Revision(revision), time: Timestamp::EPOCH, changes: vec![tagged] }
    }

    fn revisions(read: Result<Vec<Arc<Entry>>, Missing>) -> Vec<u64> {
        read.unwrap().iter().map(|entry| entry.revision.0).collect()
    }

    #[test]
    fn what_is_too_old_is_missing_and_what_repeats_is_left_out() {
        let mut ring = Ring::new(Revision(10), BOUNDS);
        for revision in [11, 13, 13, 12, 14] {
            ring.push(entry(revision, 1));
        }
        assert_eq!(revisions(ring.after(Revision(10), 9)), [11, 13, 14]);
        assert_eq!(revisions(ring.after(Revision(12), 1)), [13]);
        ring.push(entry(20, 1));
        ring.push(entry(21, 1));
        assert_eq!(ring.after(Revision(10), 9), Err(Missing::Dropped { oldest: Revision(11) }));
        assert_eq!(revisions(ring.after(Revision(11), 9)), [13, 14, 20, 21]);
        ring.reach(Revision(25));
        assert_eq!((ring.head(), revisions(ring.after(Revision(25), 9))), (Revision(25), vec![]));
        ring.restart(Revision(30));
        assert_eq!(ring.after(Revision(29), 9), Err(Missing::Replaced { oldest: Revision(30) }));
    }

    #[test]
    fn a_revision_larger_than_the_bound_is_still_told() {
        let mut ring = Ring::new(Revision(0), Bounds { entries: 1000, bytes: 1000 });
        ring.push(entry(1, 10));
        ring.push(entry(2, 1 << 20));
        assert_eq!(revisions(ring.after(Revision(1), 9)), [2]);
        ring.push(entry(3, 10));
        assert_eq!(ring.after(Revision(1), 9), Err(Missing::Dropped { oldest: Revision(2) }));
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut ring = Ring::new(Revision(0), Bounds { entries: 1000, bytes: 10_000 });
        for revision in 1..100 {
            ring.push(entry(revision, 1000));
        }
        assert!(ring.bytes <= 10_000 && ring.entries.len() >= 3, "{} entries", ring.entries.len());
    }

    proptest! {
        /// Whoever reads in steps of any size, at any moments, sees each revision once and in order, or is told.
        #[test]
        fn a_reader_misses_nothing_or_is_told(steps in prop::collection::vec((0_usize..3, 1_usize..4), 1..60)) {
            let mut ring = Ring::new(Revision(0), BOUNDS);
            let (mut pushed, mut place, mut seen) = (0, Revision(0), Vec::new());
            for (pushes, most) in steps {
                for _ in 0..pushes {
                    pushed += 1;
                    ring.push(entry(pushed, 1));
                }
                match ring.after(place, most) {
                    Ok(entries) => {
                        for entry in entries {
                            place = entry.revision;
                            seen.push(place.0);
                        }
                    }
                    Err(Missing::Replaced { .. }) => prop_assert!(false, "it was not replaced"),
                    Err(Missing::Dropped { oldest }) => {
                        prop_assert!(pushed - place.0 > BOUNDS.entries as u64, "only who is far behind");
                        place = oldest;
                        seen = (1..=oldest.0).collect();
                    }
                }
                prop_assert_eq!(&seen, &(1..=place.0).collect::<Vec<_>>());
            }
        }
    }
}
