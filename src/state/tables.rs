//! The tables and their indexes.

use std::{ops::Bound, sync::Arc};

use imbl::{OrdMap, OrdSet};
use quorate_base::{id::ClusterId, time::Timestamp};
use quorate_model::{
    Epoch, Job, JobId, JobSpec, Manager, Name, Node, NodeId, RaftId, Resources, Revision, Settings, Slot,
    Task, TaskId, Term,
};

use crate::{Change, Event, Meta, Object, RequestKey, RequestRecord};

/// Place of an entry in the Raft log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Term of its leader.
    pub term: Term,
    /// Its index.
    pub index: Revision,
}

/// What the living tasks of a node take of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Account {
    /// Sum of their reservations.
    pub(crate) reserved: Resources,
    /// How many they are.
    pub(crate) tasks: u32,
}

/// The whole replicated state. A clone is O(1) and never changes: it is the snapshot that readers use.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(crate) meta: Meta,
    pub(crate) jobs: OrdMap<JobId, Arc<Job>>,
    pub(crate) job_names: OrdMap<(Name, Name), JobId>,
    pub(crate) tasks: OrdMap<TaskId, Arc<Task>>,
    /// Holds the tasks themselves: a reconciler walks through all of them at every pass.
    pub(crate) tasks_of_job: OrdMap<(JobId, Slot, TaskId), Arc<Task>>,
    pub(crate) tasks_on_node: OrdMap<(NodeId, TaskId), Arc<Task>>,
    pub(crate) unplaced: OrdSet<TaskId>,
    pub(crate) nodes: OrdMap<NodeId, Arc<Node>>,
    pub(crate) node_names: OrdMap<Name, NodeId>,
    pub(crate) usage: OrdMap<NodeId, Account>,
    pub(crate) managers: OrdMap<RaftId, Arc<Manager>>,
    pub(crate) requests: OrdMap<RequestKey, Arc<RequestRecord>>,
    pub(crate) request_order: OrdMap<u64, RequestKey>,
}

impl State {
    /// The empty state before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest applied entry.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.meta.applied
    }

    /// Replicated time: never goes back.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.meta.now
    }

    /// Identity of the cluster; `None` before its first leader named it.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.meta.cluster
    }

    /// The cluster's epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.meta.epoch
    }

    /// The cluster's settings.
    #[must_use]
    pub fn settings(&self) -> &Arc<Settings> {
        &self.meta.settings
    }

    /// All jobs, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> + '_ {
        self.jobs.values()
    }

    /// All jobs of a namespace, or of all, by namespace and name, from those that follow on `after`.
    pub fn jobs_by_name<'a>(
        &'a self,
        namespace: Option<&'a Name>,
        after: Option<(Name, Name)>,
    ) -> impl Iterator<Item = &'a Arc<Job>> + 'a {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.job_names
            .range((from, Bound::Unbounded))
            .skip_while(move |((ns, _), _)| namespace.is_some_and(|want| ns < want))
            .take_while(move |((ns, _), _)| namespace.is_none_or(|want| want == ns))
            .filter_map(|(_, id)| self.jobs.get(id))
    }

    /// A job by number.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)
    }

    /// A job by name.
    #[must_use]
    pub fn job_named(&self, namespace: &Name, name: &Name) -> Option<&Arc<Job>> {
        self.jobs.get(self.job_names.get(&(namespace.clone(), name.clone()))?)
    }

    /// The specification that a task runs.
    #[must_use]
    pub fn spec_of(&self, task: &Task) -> Option<&Arc<JobSpec>> {
        self.jobs.get(&task.job)?.specs.get(&task.version)
    }

    /// All tasks, by number.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> + '_ {
        self.tasks.values()
    }

    /// All tasks from `first` on, by number.
    pub fn tasks_from(&self, first: TaskId) -> impl Iterator<Item = &Arc<Task>> + '_ {
        self.tasks.range(first..).map(|(_, t)| t)
    }

    /// A task by number.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&id)
    }

    /// How many tasks there are.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// The tasks of a job, by slot and number.
    pub fn tasks_of(&self, job: JobId) -> impl Iterator<Item = &Arc<Task>> + '_ {
        self.tasks_of_from(job, (Slot(0), TaskId(0)))
    }

    /// The same from a place on.
    pub fn tasks_of_from(
        &self,
        job: JobId,
        (slot, task): (Slot, TaskId),
    ) -> impl Iterator<Item = &Arc<Task>> + '_ {
        let range = (job, slot, task)..=(job, Slot(u32::MAX), TaskId(u64::MAX));
        self.tasks_of_job.range(range).map(|(_, task)| task)
    }

    /// The tasks of one slot, oldest first.
    pub fn tasks_of_slot(&self, job: JobId, slot: Slot) -> impl DoubleEndedIterator<Item = &Arc<Task>> + '_ {
        let range = (job, slot, TaskId(0))..=(job, slot, TaskId(u64::MAX));
        self.tasks_of_job.range(range).map(|(_, task)| task)
    }

    /// The tasks that were ever placed on a node and are not removed, by number.
    pub fn tasks_on(&self, node: NodeId) -> impl Iterator<Item = &Arc<Task>> + '_ {
        self.tasks_on_from(node, TaskId(0))
    }

    /// The same from a number on.
    pub fn tasks_on_from(&self, node: NodeId, first: TaskId) -> impl Iterator<Item = &Arc<Task>> + '_ {
        let range = (node, first)..=(node, TaskId(u64::MAX));
        self.tasks_on_node.range(range).map(|(_, task)| task)
    }

    /// The tasks that wait for a node, by number.
    pub fn unplaced(&self) -> impl Iterator<Item = &Arc<Task>> + '_ {
        self.unplaced.iter().filter_map(|id| self.tasks.get(id))
    }

    /// How many tasks wait for a node.
    #[must_use]
    pub fn unplaced_count(&self) -> usize {
        self.unplaced.len()
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> + '_ {
        self.nodes.values()
    }

    /// All nodes from `first` on, by number.
    pub fn nodes_from(&self, first: NodeId) -> impl Iterator<Item = &Arc<Node>> + '_ {
        self.nodes.range(first..).map(|(_, node)| node)
    }

    /// A node by number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    /// A node by name.
    #[must_use]
    pub fn node_named(&self, name: &Name) -> Option<&Arc<Node>> {
        self.nodes.get(self.node_names.get(name)?)
    }

    /// What the living tasks of a node reserve.
    #[must_use]
    pub fn usage(&self, node: NodeId) -> Resources {
        self.account(node).reserved
    }

    /// How many living tasks a node has, also ones that reserve nothing.
    #[must_use]
    pub fn living(&self, node: NodeId) -> u32 {
        self.account(node).tasks
    }

    fn account(&self, node: NodeId) -> Account {
        self.usage.get(&node).copied().unwrap_or_default()
    }

    /// All managers, by Raft id.
    pub fn managers(&self) -> impl Iterator<Item = &Arc<Manager>> + '_ {
        self.managers.values()
    }

    /// A manager by Raft id.
    #[must_use]
    pub fn manager(&self, id: RaftId) -> Option<&Arc<Manager>> {
        self.managers.get(&id)
    }

    /// A manager by name.
    #[must_use]
    pub fn manager_named(&self, name: &str) -> Option<&Arc<Manager>> {
        self.managers.values().find(|m| m.name.as_str() == name)
    }

    /// How many answered requests are remembered.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Notes that an entry without commands was applied (a leader's blank, a membership change).
    pub fn advance(&mut self, to: Position) {
        self.meta.applied = to;
    }

    pub(crate) fn put_job(&mut self, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        self.job_names.insert((job.namespace.clone(), job.name.clone()), job.id);
        self.jobs.insert(job.id, job.clone());
        job
    }

    pub(crate) fn drop_job(&mut self, job: &Job) {
        self.job_names.remove(&(job.namespace.clone(), job.name.clone()));
        self.jobs.remove(&job.id);
    }

    /// Writes a task and keeps every index true. The job's record must be there already.
    pub(crate) fn put_task(&mut self, task: Task) -> Arc<Task> {
        if let Some(old) = self.tasks.get(&task.id).cloned() {
            self.charge(&old, false);
            if old.node != task.node
                && let Some(node) = old.node
            {
                self.tasks_on_node.remove(&(node, old.id));
            }
        }
        let task = Arc::new(task);
        self.charge(&task, true);
        if task.is_unplaced() {
            self.unplaced.insert(task.id);
        } else {
            self.unplaced.remove(&task.id);
        }
        if let Some(node) = task.node {
            self.tasks_on_node.insert((node, task.id), task.clone());
        }
        self.tasks_of_job.insert((task.job, task.slot, task.id), task.clone());
        self.tasks.insert(task.id, task.clone());
        task
    }

    pub(crate) fn drop_task(&mut self, task: &Task) {
        self.charge(task, false);
        self.unplaced.remove(&task.id);
        if let Some(node) = task.node {
            self.tasks_on_node.remove(&(node, task.id));
        }
        self.tasks_of_job.remove(&(task.job, task.slot, task.id));
        self.tasks.remove(&task.id);
    }

    /// Adds a task's reservation to its node's account, or takes it off.
    fn charge(&mut self, task: &Task, add: bool) {
        let (true, Some(node)) = (task.holds_resources(), task.node) else { return };
        let Some(reserve) = self.spec_of(task).map(|spec| spec.reserve()) else { return };
        let Account { reserved, tasks } = self.account(node);
        let account = if add {
            Account { reserved: reserved.plus(reserve), tasks: tasks.saturating_add(1) }
        } else {
            Account { reserved: reserved.minus(reserve), tasks: tasks.saturating_sub(1) }
        };
        self.usage.insert(node, account);
    }

    pub(crate) fn put_node(&mut self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        self.node_names.insert(node.name.clone(), node.id);
        self.nodes.insert(node.id, node.clone());
        node
    }

    pub(crate) fn put_manager(&mut self, manager: Manager) -> Arc<Manager> {
        let manager = Arc::new(manager);
        self.managers.insert(manager.id, manager.clone());
        manager
    }
}

/// An event of the given change.
pub(crate) fn event(revision: Revision, change: Change, object: Object) -> Event {
    Event { revision, change, object }
}
