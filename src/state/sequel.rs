//! What follows on the tasks of a slot that has no live one: restart conditions, back-off, giving up.
//!
//! The leader's reconcilers act by it and the API counts by it, so that users are told what will happen.

use std::time::Duration;

use quorate_model::{Job, JobKind, JobSpec, NodeStatus, Task, TaskState};

use crate::State;

/// What a slot without a live task gets next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequel {
    /// Nothing yet: what ran there still stops where it can be heard, and two must not run at once.
    Wait,
    /// A task that need not wait, with this number of bad ends in a row before it.
    AtOnce(u32),
    /// A task for one that ended: its number in the row of replacements, and the wait before it starts.
    Replace(u32, Duration),
    /// Nothing until the job is changed: it ended as its policy allows, or its replacements are used up.
    GivenUp,
}

impl State {
    /// Whether the task's node is down.
    #[must_use]
    pub fn is_lost(&self, task: &Task) -> bool {
        task.node.is_some_and(|id| self.node(id).is_none_or(|node| node.status == NodeStatus::Down))
    }

    /// Whether something that is no longer wanted may still run where it can be heard, among a slot's tasks.
    pub fn is_stopping<'a>(&self, tasks: impl IntoIterator<Item = &'a Task>) -> bool {
        let mut tasks = tasks.into_iter();
        tasks.any(|t| !t.is_live() && !t.status.state.is_terminal() && !self.is_lost(t))
    }

    /// What follows on `newest`, the newest of a slot's tasks, none of which is live.
    #[must_use]
    pub fn sequel(&self, job: &Job, spec: &JobSpec, newest: &Task) -> Sequel {
        let tasks = self.tasks_of_slot(job.id, newest.slot);
        if self.is_stopping(tasks.map(AsRef::as_ref)) {
            return Sequel::Wait;
        }
        if !job.is_current(newest.version) {
            return Sequel::AtOnce(0);
        }
        // The loss of a node is not the task's fault: no wait, and its row of failures neither grows nor ends.
        if self.is_lost_work(newest) {
            return Sequel::AtOnce(newest.attempt);
        }
        // The leader stopped it, and wants one again.
        if newest.desired >= TaskState::Shutdown {
            return Sequel::AtOnce(0);
        }
        let batch = matches!(spec.kind, JobKind::Batch { .. });
        if batch && newest.status.state == TaskState::Complete {
            return Sequel::AtOnce(0);
        }
        let failure = batch || newest.status.state.is_failure();
        let attempt = if ran_long(newest, spec) { 1 } else { newest.attempt.saturating_add(1) };
        if spec.restart.covers(failure) && spec.reschedule.allows(attempt) {
            Sequel::Replace(attempt, spec.reschedule.wait(attempt))
        } else {
            Sequel::GivenUp
        }
    }

    /// How many replicas of a job will not be tried again until the job is changed.
    #[must_use]
    pub fn given_up(&self, job: &Job) -> u32 {
        let Some(spec) = job.spec().filter(|_| job.status.wants_tasks()) else { return 0 };
        let width = match spec.kind {
            JobKind::Service { .. } => u32::MAX,
            JobKind::Batch { .. } => spec.kind.width(),
        };
        let mut count = 0;
        // By slot and number: the last task of a slot is its newest.
        let mut tasks = self.tasks_of(job.id).take_while(|t| t.slot.0 < width).peekable();
        let (mut live, mut open) = (false, false);
        while let Some(task) = tasks.next() {
            live |= task.is_live();
            open |= task.desired < TaskState::Remove;
            if tasks.peek().is_some_and(|next| next.slot == task.slot) {
                continue;
            }
            if open && !live && self.sequel(job, spec, task) == Sequel::GivenUp {
                count += 1;
            }
            (live, open) = (false, false);
        }
        count
    }

    fn is_lost_work(&self, task: &Task) -> bool {
        match task.status.state {
            TaskState::Orphaned => true,
            state => !state.is_terminal() && self.is_lost(task),
        }
    }
}

/// Whether the task ran longer than the longest wait, so that its end starts a new row of failures.
fn ran_long(task: &Task, spec: &JobSpec) -> bool {
    task.status.running_since.is_some_and(|since| task.status.at.since(since) > spec.reschedule.max_delay)
}
