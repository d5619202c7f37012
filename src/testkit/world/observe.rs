//! Counts what a run has reached.

use quorate_model::{Job, JobStatus, Node, NodeStatus, Task, TaskState};
use quorate_state::{Applied, Change, Command, Envelope, Object, Receipt, Rejection, State};

use super::World;
use crate::counters::Sometimes;

impl World {
    pub(super) fn observe(&mut self, before: &State, envelope: &Envelope, applied: &Applied) {
        let counters = &mut self.counters;
        counters.note_if(applied.replayed, Sometimes::RetryReplayed);
        counters.note_if(applied.replayed && applied.outcome.is_err(), Sometimes::RefusalReplayed);
        counters
            .note_if(matches!(applied.outcome, Err(Rejection::StaleFence { .. })), Sometimes::FenceRefused);
        if let (Command::OrphanTasks { .. }, Ok(Receipt::Changed { changed, .. })) =
            (&envelope.command, &applied.outcome)
        {
            counters.note_if(*changed > 0, Sometimes::GivenUpWithNode);
        }
        if let Ok(Receipt::Changed { refused, .. }) = &applied.outcome
            && !refused.is_empty()
        {
            match &envelope.command {
                Command::AssignTasks { .. } => counters.note(Sometimes::PlacementRefused),
                Command::ReportStatuses { .. } => counters.note(Sometimes::ReportRefused),
                _ => {}
            }
        }
        for event in &applied.events {
            match &event.object {
                Object::Job(job) => self.observe_job(event.change, job),
                Object::Node(node) => self.observe_node(before, node),
                Object::Task(task) => self.observe_task(before, event.change, task),
                Object::Manager(_) | Object::Settings(_) => {}
            }
        }
    }

    fn observe_job(&mut self, change: Change, job: &Job) {
        let counters = &mut self.counters;
        counters.note_if(change == Change::Deleted, Sometimes::JobForgotten);
        counters.note_if(job.status == JobStatus::Complete, Sometimes::BatchCompleted);
        counters.note_if(job.status == JobStatus::Failed, Sometimes::BatchFailed);
    }

    fn observe_node(&mut self, before: &State, node: &Node) {
        let was = before.node(node.id).map(|n| n.status);
        match (was, node.status) {
            (Some(NodeStatus::Ready), NodeStatus::Down) => {
                self.counters.note(Sometimes::NodeLost);
                // From now on a second copy of these may run elsewhere.
                for agent in self.agents.iter_mut().filter(|a| a.name == node.name) {
                    agent.containers.values_mut().for_each(|c| c.forsaken = true);
                }
            }
            (Some(NodeStatus::Down), NodeStatus::Ready) => self.counters.note(Sometimes::NodeReturned),
            _ => {}
        }
    }

    fn observe_task(&mut self, before: &State, change: Change, task: &Task) {
        let Some(old) = before.task(task.id) else {
            self.counters.note_if(task.attempt > 0, Sometimes::ReplacementMade);
            return;
        };
        let counters = &mut self.counters;
        counters.note_if(change == Change::Deleted, Sometimes::HistoryReaped);
        counters.note_if(task.explanation.is_some(), Sometimes::Unplaceable);
        if old.desired < task.desired {
            let current = before.job(task.job).is_some_and(|j| j.is_current(task.version));
            let running = old.status.state == TaskState::Running;
            counters.note_if(running && !current, Sometimes::RolledOut);
            let active = before.job(task.job).is_some_and(|j| j.status == JobStatus::Active);
            counters.note_if(active && task.desired == TaskState::Remove, Sometimes::ScaledDown);
        }
        if old.status.state != task.status.state {
            counters.note_if(task.status.state == TaskState::Failed, Sometimes::TaskFailed);
            counters.note_if(task.status.state == TaskState::Rejected, Sometimes::TaskRejected);
            let shut = task.status.state == TaskState::Shutdown && old.status.state == TaskState::Running;
            let replaced = before.tasks_of_slot(task.job, task.slot).any(|t| t.id > task.id && t.is_live());
            counters.note_if(shut && replaced, Sometimes::ReturnedWithStopped);
        }
    }
}
