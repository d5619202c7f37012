//! Containers that ran out of memory.
//!
//! The engine sometimes learns of a container's end before it learns that lack of memory was the cause, and then its
//! own flag stays false for ever; its event comes in any case.

use std::collections::VecDeque;
use std::sync::Mutex;

use quorate_base::sync::lock;

/// Containers that are remembered, at most.
const MOST: usize = 256;

/// Ids of containers that ran out of memory since they were started last.
#[derive(Debug, Default)]
pub(super) struct Ooms {
    ids: Mutex<VecDeque<String>>,
}

impl Ooms {
    /// The engine said so.
    pub(super) fn note(&self, id: String) {
        let mut ids = lock(&self.ids);
        if ids.len() >= MOST {
            ids.pop_front();
        }
        ids.push_back(id);
    }

    /// The container is started anew.
    pub(super) fn forget(&self, id: &str) {
        lock(&self.ids).retain(|known| known != id);
    }

    /// Whether the container is one of them.
    pub(super) fn has(&self, id: &str) -> bool {
        lock(&self.ids).iter().any(|known| known == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_forgets() {
        let ooms = Ooms::default();
        ooms.note("a".to_owned());
        assert!(ooms.has("a") && !ooms.has("b"));
        ooms.forget("a");
        assert!(!ooms.has("a"));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let ooms = Ooms::default();
        for number in 0..=MOST {
            ooms.note(number.to_string());
        }
        assert!(!ooms.has("0") && ooms.has("1"));
    }
}
