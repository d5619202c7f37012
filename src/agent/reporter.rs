//! The newest status of each task, kept until the managers have committed it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use quorate_base::CoalescingQueue;
use quorate_base::sync::lock;
use quorate_model::{TaskId, TaskStatus};

use crate::config::MAX_TASKS;

/// Statuses on their way to the managers. A newer status of a task replaces an older one; none is lost on a broken
/// session, and none is sent twice in one session.
#[derive(Debug)]
pub(crate) struct Reporter {
    /// Not sent in this session.
    waiting: CoalescingQueue<TaskId, TaskStatus>,
    /// Sent in this session, not acknowledged.
    sent: Mutex<BTreeMap<TaskId, TaskStatus>>,
}

impl Default for Reporter {
    fn default() -> Self {
        // Twice the bound: tasks that are being removed still count.
        Self { waiting: CoalescingQueue::new(2 * MAX_TASKS), sent: Mutex::default() }
    }
}

impl Reporter {
    /// Queues a task's newest status.
    pub(crate) fn report(&self, task: TaskId, status: TaskStatus) {
        if let Err(full) = self.waiting.push(task, status) {
            // Unreachable while the worker keeps its bound; the next complete set would bring the status up again.
            tracing::error!(%task, %full, "a status was dropped");
        }
    }

    /// Waits until a status is to be sent. Safe to cancel.
    pub(crate) async fn ready(&self) {
        self.waiting.ready().await;
    }

    /// Takes up to `most` statuses to send.
    pub(crate) fn take(&self, most: usize) -> Vec<(TaskId, TaskStatus)> {
        let batch = self.waiting.take_batch(most);
        lock(&self.sent).extend(batch.iter().cloned());
        batch
    }

    /// The session is over: what it did not acknowledge is to be sent again.
    pub(crate) fn rewind(&self) {
        let sent = std::mem::take(&mut *lock(&self.sent));
        self.waiting.put_back(sent.into_iter().collect());
    }

    /// The managers know everything up to `seq` of `task`.
    pub(crate) fn acknowledge(&self, task: TaskId, seq: u64) {
        let mut sent = lock(&self.sent);
        if sent.get(&task).is_some_and(|status| status.seq <= seq) {
            sent.remove(&task);
        }
    }

    /// Statuses that were sent in this session and are not acknowledged.
    pub(crate) fn sent(&self) -> usize {
        lock(&self.sent).len()
    }

    /// Statuses that are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.waiting.len().saturating_add(self.sent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::Timestamp;
    use quorate_model::TaskState;

    fn status(seq: u64) -> TaskStatus {
        TaskStatus { seq, ..TaskStatus::by_manager(TaskState::Running, Timestamp::EPOCH) }
    }

    fn seqs(batch: &[(TaskId, TaskStatus)]) -> Vec<(u64, u64)> {
        batch.iter().map(|(task, status)| (task.0, status.seq)).collect()
    }

    #[tokio::test]
    async fn the_newest_status_is_kept_until_it_is_acknowledged() {
        let reporter = Reporter::default();
        reporter.report(TaskId(1), status(1));
        reporter.report(TaskId(1), status(2));
        reporter.ready().await;
        assert_eq!(seqs(&reporter.take(9)), [(1, 2)]);
        assert_eq!(seqs(&reporter.take(9)), [], "sent once per session");
        reporter.acknowledge(TaskId(1), 1);
        assert_eq!(reporter.unacknowledged(), 1, "an older one was acknowledged");
        reporter.rewind();
        assert_eq!(seqs(&reporter.take(9)), [(1, 2)], "sent again in the next session");
        reporter.acknowledge(TaskId(1), 2);
        reporter.rewind();
        assert_eq!(reporter.unacknowledged(), 0);
    }

    #[test]
    fn a_rewind_never_hides_a_newer_status() {
        let reporter = Reporter::default();
        reporter.report(TaskId(1), status(1));
        reporter.take(9);
        reporter.report(TaskId(1), status(2));
        reporter.rewind();
        assert_eq!(seqs(&reporter.take(9)), [(1, 2)]);
    }

    #[test]
    fn batches_are_bounded() {
        let reporter = Reporter::default();
        for task in 0..5 {
            reporter.report(TaskId(task), status(1));
        }
        assert_eq!(reporter.take(3).len(), 3);
        assert_eq!(reporter.take(3).len(), 2);
    }
}
