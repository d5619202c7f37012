//! A bounded queue that keeps only the newest value of each key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use thiserror::Error;
use tokio::sync::Notify;

use crate::sync::lock;

/// The queue holds as many keys as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue already holds {capacity} keys; take some before adding another")]
pub struct QueueFull {
    /// The bound.
    pub capacity: usize,
}

/// A queue of `(key, newest value)`: a push for a key that waits replaces its value and keeps its place.
///
/// Bounded by the number of keys, so a slow consumer costs freshness of nothing and memory of at most one value per key.
/// Share it behind an `Arc`.
#[derive(Debug)]
pub struct CoalescingQueue<K, V> {
    capacity: usize,
    waiting: Mutex<Waiting<K, V>>,
    added: Notify,
}

/// `order` holds exactly the keys of `values`, each once.
#[derive(Debug)]
struct Waiting<K, V> {
    values: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Ord + Clone, V> CoalescingQueue<K, V> {
    /// A queue of at most `capacity` keys.
    pub const fn new(capacity: usize) -> Self {
        let waiting = Waiting { values: BTreeMap::new(), order: VecDeque::new() };
        Self { capacity, waiting: Mutex::new(waiting), added: Notify::const_new() }
    }

    /// Queues `value` for `key` and returns the value it replaced, if one waited.
    ///
    /// # Errors
    /// [`QueueFull`] when the key is new and the queue holds `capacity` keys. Replacing always works.
    pub fn push(&self, key: K, value: V) -> Result<Option<V>, QueueFull> {
        let mut waiting = lock(&self.waiting);
        if let Some(slot) = waiting.values.get_mut(&key) {
            return Ok(Some(std::mem::replace(slot, value)));
        }
        if waiting.values.len() >= self.capacity {
            return Err(QueueFull { capacity: self.capacity });
        }
        waiting.order.push_back(key.clone());
        waiting.values.insert(key, value);
        drop(waiting);
        self.added.notify_waiters();
        Ok(None)
    }

    /// Gives back a batch that could not be delivered, to the front and in its order; a key that has a newer value
    /// meanwhile keeps that. May pass the bound by the size of the batch, since losing it would be worse.
    pub fn put_back(&self, batch: Vec<(K, V)>) {
        let mut waiting = lock(&self.waiting);
        for (key, value) in batch.into_iter().rev() {
            if !waiting.values.contains_key(&key) {
                waiting.order.push_front(key.clone());
                waiting.values.insert(key, value);
            }
        }
        drop(waiting);
        self.added.notify_waiters();
    }

    /// Takes up to `max` entries, the longest waiting key first.
    pub fn take_batch(&self, max: usize) -> Vec<(K, V)> {
        let mut waiting = lock(&self.waiting);
        let count = max.min(waiting.order.len());
        let keys: Vec<K> = waiting.order.drain(..count).collect();
        keys.into_iter().filter_map(|key| waiting.values.remove_entry(&key)).collect()
    }

    /// Waits until an entry waits. Safe to cancel; with several consumers another may take it first.
    pub async fn ready(&self) {
        loop {
            // Made before the check: a push between the check and the await still wakes it.
            let added = self.added.notified();
            if !self.is_empty() {
                return;
            }
            added.await;
        }
    }

    /// Keys that wait.
    pub fn len(&self) -> usize {
        lock(&self.waiting).values.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn newest_value_wins_and_keeps_its_place() {
        let queue = CoalescingQueue::new(8);
        assert_eq!(queue.push("a", 1), Ok(None));
        assert_eq!(queue.push("b", 2), Ok(None));
        assert_eq!(queue.push("a", 3), Ok(Some(1)));
        assert_eq!(queue.take_batch(1), [("a", 3)]);
        assert_eq!(queue.take_batch(9), [("b", 2)]);
        assert_eq!(queue.take_batch(9), []);
    }

    #[test]
    fn a_full_queue_refuses_new_keys_and_takes_newer_values() {
        let queue = CoalescingQueue::new(1);
        assert_eq!(queue.push("a", 1), Ok(None));
        assert_eq!(queue.push("b", 1), Err(QueueFull { capacity: 1 }));
        assert_eq!(queue.push("a", 2), Ok(Some(1)));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn put_back_restores_the_front_and_never_hides_a_newer_value() {
        let queue = CoalescingQueue::new(3);
        for (key, value) in [("a", 1), ("b", 1), ("c", 1)] {
            queue.push(key, value).unwrap();
        }
        let batch = queue.take_batch(2);
        queue.push("b", 2).unwrap();
        queue.put_back(batch);
        assert_eq!(queue.take_batch(9), [("a", 1), ("c", 1), ("b", 2)]);
    }

    #[tokio::test]
    async fn ready_wakes_on_a_push_and_at_once_when_something_waits() {
        let queue = CoalescingQueue::new(2);
        let push = async {
            tokio::task::yield_now().await;
            queue.push(1, ()).unwrap();
        };
        tokio::join!(queue.ready(), queue.ready(), push);
        queue.ready().await;
        assert_eq!(queue.len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_the_last_value_pushed_for_each_key(
            pushes in prop::collection::vec((0_u8..6, any::<u32>()), 0..60), capacity in 1_usize..8, max in 1_usize..5,
        ) {
            let (queue, mut model) = (CoalescingQueue::new(capacity), BTreeMap::new());
            for (key, value) in pushes {
                if queue.push(key, value).is_ok() {
                    model.insert(key, value);
                }
                prop_assert!(queue.len() <= capacity);
            }
            let mut taken = BTreeMap::new();
            while !queue.is_empty() {
                let batch = queue.take_batch(max);
                prop_assert!(batch.len() <= max);
                for (key, value) in batch {
                    prop_assert_eq!(taken.insert(key, value), None);
                }
            }
            prop_assert_eq!(taken, model);
        }
    }
}
