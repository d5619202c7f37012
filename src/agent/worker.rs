//! Holds the tasks: turns what the leader says into runners, and removes what nobody wants.

mod measure;
mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{TaskGroup, TaskKind};
use quorate_model::{Name, TaskId, TaskState, TaskStatus};
use quorate_wire::agent::{AssignedTask, Fence};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::config::MAX_TASKS;
use crate::ledger::{Contents, Held};
use crate::runner::{Core, Runner, Wish};
use crate::runtime::{Owner, Runtime, Unit, Work};
use crate::step::Record;
use orphans::Orphans;

/// Ended tasks that are kept beside the living ones, so that their logs can be read: what the managers keep above that
/// is left to them.
const MAX_ENDED: usize = MAX_TASKS;

/// What the leader says of a task that this agent cannot even read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) task: TaskId,
    pub(crate) observed_seq: u64,
    pub(crate) reason: String,
}

/// A set of assignments, complete or a change.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Changes {
    pub(crate) fence: Fence,
    /// Whether tasks that are not in it are to be removed.
    pub(crate) complete: bool,
    pub(crate) assigned: Vec<AssignedTask>,
    pub(crate) removals: Vec<TaskId>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// What a task runs and what runs it, or why nothing here can.
pub(crate) type Found = Result<(Work, Arc<dyn Runtime>), String>;

/// Holds the tasks.
#[derive(Debug)]
pub(crate) struct Worker {
    core: Arc<Core>,
    node: Name,
    tasks: TaskGroup,
    wishes: Mutex<BTreeMap<TaskId, watch::Sender<Wish>>>,
    orphans: Orphans,
    /// Whether a leader has said in this life what the node must run: without that nothing is a stranger.
    told: watch::Sender<bool>,
}

impl Worker {
    /// A worker; containers that no task has are removed after `grace`.
    pub(crate) fn new(core: Arc<Core>, node: Name, tasks: TaskGroup, grace: Duration) -> Self {
        let told = watch::Sender::new(false);
        Self { core, node, tasks, wishes: Mutex::default(), orphans: Orphans::new(grace), told }
    }

    /// Takes up the tasks of the ledger where they were left, with or without managers.
    pub(crate) fn resume(self: &Arc<Self>) {
        let held: Vec<Held> = self.core.ledger.read().tasks.values().cloned().collect();
        for held in held {
            self.core.reporter.report(held.assigned.id, held.record.status.clone());
            self.drive(&held);
        }
    }

    /// Tasks held now.
    pub(crate) fn count(&self) -> usize {
        self.core.ledger.read().tasks.len()
    }

    /// Does what the leader says. Returns when it is written down and under way.
    pub(crate) async fn apply(self: &Arc<Self>, changes: Changes) {
        for unreadable in &changes.unreadable {
            self.reject(unreadable.task, unreadable.observed_seq, &unreadable.reason);
        }
        let adopted = self.adoptable(&changes).await;
        let complete = changes.complete;
        let (touched, change) = self.core.ledger.change(|contents| self.merge(contents, changes, &adopted));
        self.core.ledger.durable(change).await;
        for (id, removed) in touched {
            let held = self.core.ledger.read().tasks.get(&id).cloned();
            if let Some(held) = held {
                self.wish(&held, removed);
            }
        }
        if complete {
            self.told.send_replace(true);
        }
    }

    fn owner(&self) -> Owner {
        Owner { cluster: Arc::clone(&self.core.ledger.read().cluster), node: self.node.clone() }
    }

    /// What the runtimes have of tasks that the ledger does not know: an agent that lost its ledger adopts them under
    /// the names that they have, and so are orphans that become wanted within their grace.
    async fn adoptable(&self, changes: &Changes) -> Vec<Unit> {
        let is_new = |task: &AssignedTask| !self.core.ledger.read().tasks.contains_key(&task.id);
        if !changes.assigned.iter().any(is_new) {
            return Vec::new();
        }
        if !changes.complete {
            return self.orphans.units();
        }
        let found = self.core.runtimes.list(&self.owner()).await;
        found.into_iter().map(|(_, unit)| unit).collect()
    }

    /// Enters the changes into the ledger. Returns the tasks that must hear of it, and whether each is removed.
    fn merge(&self, contents: &mut Contents, changes: Changes, adopted: &[Unit]) -> Vec<(TaskId, bool)> {
        contents.fence = contents.fence.max(changes.fence);
        let mut touched = BTreeMap::new();
        let mut removals: BTreeSet<TaskId> = changes.removals.into_iter().collect();
        if changes.complete {
            let wanted: BTreeSet<TaskId> = changes.assigned.iter().map(|task| task.id).collect();
            removals.extend(contents.tasks.keys().filter(|id| !wanted.contains(id)));
        }
        for assigned in changes.assigned {
            let id = assigned.id;
            if self.merge_one(contents, assigned, changes.complete, adopted) {
                touched.insert(id, false);
            }
        }
        for id in removals {
            if let Some(held) = contents.tasks.get_mut(&id) {
                // Also a restart without managers must not start it anew.
                held.assigned.desired = TaskState::Remove;
                touched.insert(id, true);
            }
        }
        touched.into_iter().collect()
    }

    /// False when the task is not taken.
    fn merge_one(
        &self,
        contents: &mut Contents,
        new: AssignedTask,
        complete: bool,
        adopted: &[Unit],
    ) -> bool {
        if let Some(held) = contents.tasks.get_mut(&new.id) {
            held.assigned.desired = held.assigned.desired.max(new.desired);
            held.assigned.restarts_asked = held.assigned.restarts_asked.max(new.restarts_asked);
            self.reconcile(held, new.observed, new.observed_seq, complete);
            return true;
        }
        if new.workload.is_none() {
            self.reject(new.id, new.observed_seq, "the assignment does not say what to run");
            return false;
        }
        let has_ended = new.observed.is_terminal();
        let ended = |held: &&Held| held.record.status.state.is_terminal();
        let most = if has_ended { MAX_ENDED } else { MAX_TASKS };
        if contents.tasks.len() >= most
            && contents.tasks.values().filter(|held| ended(held) == has_ended).count() >= most
        {
            if !has_ended {
                self.reject(new.id, new.observed_seq, &format!("this agent holds {MAX_TASKS} tasks already"));
            }
            return false;
        }
        let mut record = Record::accepted(self.core.clock.now());
        // What was asked for before this ledger knew the task is done, or was done by its start.
        record.restarts_done = new.restarts_asked;
        let mut held = Held { epoch: quorate_model::Epoch(contents.fence.epoch), assigned: new, record };
        if let Some(unit) = self.unit(&held, &contents.cluster)
            && let Some(found) = adopted.iter().find(|found| found.is_same_task(&unit))
        {
            held.epoch = found.epoch;
        }
        let status = &mut held.record.status;
        status.seq = self.core.next_seq(held.assigned.observed_seq);
        if held.assigned.observed > TaskState::Assigned {
            // An earlier life of this agent ran it. Its runner reports what has become of it, once it has looked.
            status.state = status.state.max(held.assigned.observed);
            status.events = Arc::default();
        } else {
            self.core.reporter.report(held.assigned.id, status.clone());
        }
        contents.tasks.insert(held.assigned.id, held);
        true
    }

    /// Brings the agent's memory and the managers' together: a state never goes below what either saw, and a report is
    /// numbered above all that the managers have.
    fn reconcile(&self, held: &mut Held, observed: TaskState, observed_seq: u64, complete: bool) {
        let (id, status) = (held.assigned.id, &mut held.record.status);
        if observed.may_be_reported() || observed == TaskState::Orphaned {
            status.state = status.state.max(observed);
        }
        let same = status.state == observed;
        if observed_seq > status.seq || (observed_seq == status.seq && !same) {
            status.seq = self.core.next_seq(observed_seq);
        } else if observed_seq == status.seq {
            self.core.reporter.acknowledge(id, observed_seq);
            return;
        } else if !complete {
            // An echo of an older report; the newer one is on its way.
            return;
        }
        if status.state != TaskState::Orphaned {
            self.core.reporter.report(id, status.clone());
        }
    }

    /// Tells the managers that a task is not taken. Nothing of it is kept: asked again, the agent answers again.
    fn reject(&self, task: TaskId, observed_seq: u64, reason: &str) {
        let status = TaskStatus::by_manager(TaskState::Rejected, self.core.clock.now()).with_reason(reason);
        tracing::error!(%task, reason, "task rejected");
        self.core.reporter.report(task, TaskStatus { seq: self.core.next_seq(observed_seq), ..status });
    }

    fn wish(self: &Arc<Self>, held: &Held, removed: bool) {
        let wish = Wish { removed, ..wish_of(held) };
        let known = match lock(&self.wishes).get(&held.assigned.id) {
            Some(sender) => {
                sender.send_if_modified(|old| std::mem::replace(old, wish) != wish);
                true
            }
            None => false,
        };
        if !known {
            self.drive(held);
            if removed && let Some(sender) = lock(&self.wishes).get(&held.assigned.id) {
                sender.send_replace(wish);
            }
        }
    }

    /// Starts the runner of a task, or rejects the task if none can be had.
    fn drive(self: &Arc<Self>, held: &Held) {
        let id = held.assigned.id;
        let (work, runtime) = match self.work(held) {
            Ok(found) => found,
            Err(reason) => return self.cannot_drive(id, &reason),
        };
        let restart = held.assigned.workload.as_ref().map(|workload| workload.restart).unwrap_or_default();
        // At every level: also a warning says whose task it is about.
        let job = format!("{}/{}", work.unit.namespace, work.unit.job);
        let span = tracing::error_span!("drive", task = %id, job);
        let (sender, wish) = watch::channel(wish_of(held));
        lock(&self.wishes).insert(id, sender);
        let runner = Runner::new(Arc::clone(&self.core), work, restart, runtime, wish);
        let worker = Arc::clone(self);
        self.tasks.spawn(TaskKind::best_effort("task"), async move {
            runner.run().instrument(span).await;
            lock(&worker.wishes).remove(&id);
            Ok::<_, Infallible>(())
        });
    }

    /// A task that no runtime of this agent can run ends as rejected, and is forgotten as soon as it is removed.
    fn cannot_drive(&self, id: TaskId, reason: &str) {
        let reject = |contents: &mut Contents| {
            let held = contents.tasks.remove(&id)?;
            (!held.record.status.state.is_terminal()).then_some(held.record.status.seq)
        };
        if let (Some(seq), _) = self.core.ledger.change(reject) {
            self.reject(id, seq, reason);
        }
    }

    /// A task that is held: what it runs and what runs it, or why nothing can. `None` when it is not held.
    pub(crate) fn find(&self, id: TaskId) -> Option<Found> {
        let held = self.core.ledger.read().tasks.get(&id).cloned()?;
        Some(self.work(&held))
    }

    fn work(&self, held: &Held) -> Found {
        let cluster = Arc::clone(&self.core.ledger.read().cluster);
        let (Some(unit), Some(workload)) = (self.unit(held, &cluster), &held.assigned.workload) else {
            return Err("this agent runs one container per task: upgrade it".to_owned());
        };
        let spec = workload.containers.get(&unit.container).cloned().unwrap_or_default();
        let runtime = self.core.runtimes.get(spec.runtime);
        let Some(runtime) = runtime else {
            return Err(format!("this node offers no {} runtime", spec.runtime.as_str()));
        };
        let work = Work { unit, spec, volumes: workload.volumes.clone(), ports: workload.ports.clone() };
        Ok((work, Arc::clone(runtime)))
    }

    /// The name of a task's container; `None` unless there is exactly one.
    fn unit(&self, held: &Held, cluster: &Arc<str>) -> Option<Unit> {
        let assigned = &held.assigned;
        let mut containers = assigned.workload.as_ref()?.containers.keys();
        let (Some(container), None) = (containers.next(), containers.next()) else { return None };
        Some(Unit {
            owner: Owner { cluster: Arc::clone(cluster), node: self.node.clone() },
            epoch: held.epoch,
            task: assigned.id,
            container: container.clone(),
            namespace: assigned.namespace.clone(),
            job: assigned.job.clone(),
            version: assigned.version,
            slot: assigned.slot,
        })
    }
}

/// What the ledger wants of a task.
fn wish_of(held: &Held) -> Wish {
    let assigned = &held.assigned;
    Wish { desired: assigned.desired, removed: false, restarts_asked: assigned.restarts_asked }
}
