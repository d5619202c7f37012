//! Containers that ran out of memory.
//!
//! The engine sometimes learns of a container's end before it learns that lack of memory was the cause, and then its
//! own flag stays false for ever; its event comes in any case.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use quorate_base::sync::lock;
use tokio::sync::Notify;

/// Containers that are remembered, at most.
const MOST: usize = 256;
/// How long the event may come after the end.
const LATE: Duration = Duration::from_millis(500);

/// Ids of containers that ran out of memory since they were started last.
#[derive(Debug, Default)]
pub(super) struct Ooms {
    ids: Mutex<VecDeque<String>>,
    noted: Notify,
}

impl Ooms {
    /// The engine said so.
    pub(super) fn note(&self, id: String) {
        let mut ids = lock(&self.ids);
        if ids.len() >= MOST {
            ids.pop_front();
        }
        ids.push_back(id);
        drop(ids);
        self.noted.notify_waiters();
    }

    /// The container is started anew.
    pub(super) fn forget(&self, id: &str) {
        lock(&self.ids).retain(|known| known != id);
    }

    /// Whether the container is one of them.
    pub(super) fn has(&self, id: &str) -> bool {
        lock(&self.ids).iter().any(|known| known == id)
    }

    /// The same for one that has just ended: waits a little for the event.
    pub(super) async fn learn(&self, id: &str) -> bool {
        let learned = async {
            loop {
                let noted = self.noted.notified();
                if self.has(id) {
                    return;
                }
                noted.await;
            }
        };
        tokio::time::timeout(LATE, learned).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_may_come_a_little_late() {
        let ooms = Ooms::default();
        assert!(!ooms.learn("a").await);
        let (learned, ()) = tokio::join!(ooms.learn("a"), async { ooms.note("a".to_owned()) });
        assert!(learned && ooms.has("a") && !ooms.has("b"));
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
