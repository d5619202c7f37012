//! A cluster on a table: a state, the reconcilers, and agents that do what they are told when asked to.

use std::{collections::BTreeMap, time::Duration};

use quorate_model::{
    JobId, JobKind, JobSpec, Name, NodeId, NodeStatus, Resources, Task, TaskId, TaskState, TaskStatus,
};
use quorate_orchestrator::{Outcome, Reconciler, Tick, registry};
use quorate_state::{
    Command, Rejection, Report,
    lab::{self, Lab},
};

/// More passes than any case needs: a plan that is not quiet by then circles.
const MOST_PASSES: usize = 200;

pub(crate) struct Room {
    pub(crate) lab: Lab,
    pub(crate) overdue: Vec<NodeId>,
    pub(crate) nodes: Vec<NodeId>,
}

/// A service called `web`, image `app:1`, 0.1 CPU.
pub(crate) fn service(replicas: u32) -> JobSpec {
    lab::spec("web", JobKind::Service { replicas }).unwrap()
}

pub(crate) fn batch(completions: u32, parallelism: u32) -> JobSpec {
    lab::spec("import", JobKind::Batch { completions, parallelism }).unwrap()
}

impl Room {
    /// A cluster of equal nodes with one CPU each.
    pub(crate) fn new(nodes: u32) -> Self {
        let mut lab = Lab::new();
        let capacity = Resources { cpu_millis: 1000, memory_bytes: 1 << 30 };
        let nodes = (0..nodes).map(|n| lab.node(n, capacity).unwrap()).collect();
        Self { lab, overdue: Vec::new(), nodes }
    }

    /// A cluster with a job that has settled and runs.
    pub(crate) fn with(nodes: u32, spec: JobSpec) -> (Self, JobId) {
        let mut room = Self::new(nodes);
        let job = room.lab.job(spec).unwrap();
        room.converge();
        (room, job)
    }

    pub(crate) fn ask(&self, reconciler: &dyn Reconciler) -> Outcome {
        reconciler.reconcile(&self.lab.state, &Tick { now: self.lab.now, overdue: &self.overdue })
    }

    /// What the reconciler of that name asks for.
    pub(crate) fn outcome(&self, name: &str) -> Outcome {
        self.ask(registry().iter().find(|r| r.name() == name).unwrap().as_ref())
    }

    pub(crate) fn commands(&self, name: &str) -> Vec<Command> {
        self.outcome(name).commands
    }

    /// All reconcilers on one snapshot, then their commands in order. Returns how many there were.
    pub(crate) fn pass(&mut self) -> usize {
        let commands: Vec<Command> = registry().iter().flat_map(|r| self.ask(r.as_ref()).commands).collect();
        let count = commands.len();
        for command in commands {
            self.run(command);
        }
        count
    }

    /// Runs a planned command; one that the state outran may be refused, a broken one may not.
    pub(crate) fn run(&mut self, command: Command) {
        let applied = self.lab.apply(command.clone());
        if let Err(refusal) = applied.outcome {
            assert!(matches!(refusal, Rejection::WrongJobStatus { .. }), "{command:?}: {refusal}");
        }
    }

    /// Passes until nothing is asked for any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MOST_PASSES {
            if self.pass() == 0 {
                return;
            }
        }
        panic!("the reconcilers do not come to rest");
    }

    /// Every agent that can be heard does what is desired. Returns whether anything changed.
    pub(crate) fn obey(&mut self) -> bool {
        let todo: Vec<(TaskId, TaskState)> = self
            .lab
            .state
            .tasks()
            .filter(|t| t.node.is_some_and(|n| self.lab.state.node(n).unwrap().status == NodeStatus::Ready))
            .filter_map(|t| Some((t.id, obedient(t)?)))
            .collect();
        for (task, state) in &todo {
            self.lab.report(*task, *state).unwrap();
        }
        !todo.is_empty()
    }

    /// Settles and obeys until nothing changes, also when a roll-out's new tasks have been up for a while.
    pub(crate) fn converge(&mut self) {
        for _ in 0..MOST_PASSES {
            self.settle();
            if self.obey() {
                continue;
            }
            let Some(at) = self.outcome("service").wake_at else { return };
            self.lab.pass(at.since(self.lab.now));
        }
        panic!("the cluster does not converge");
    }

    /// Lets every back-off run out, again and again.
    pub(crate) fn wait_out(&mut self) {
        for _ in 0..20 {
            self.lab.pass(Duration::from_secs(700));
            self.converge();
        }
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> JobId {
        self.lab.job(spec).unwrap()
    }

    pub(crate) fn scale(&mut self, replicas: u32) {
        let (namespace, name) = (Name::default_namespace(), "web".parse().unwrap());
        self.lab.done(Command::ScaleJob { namespace, name, replicas, expect: None }).unwrap();
    }

    pub(crate) fn delete(&mut self, name: &str, purge: bool) {
        let (namespace, name) = (Name::default_namespace(), name.parse().unwrap());
        self.lab.done(Command::DeleteJob { namespace, name, purge, expect: None }).unwrap();
    }

    pub(crate) fn judge(&mut self, node: NodeId, status: NodeStatus) {
        self.lab.done(Command::SetNodeStatus { node, status, reason: "test".into() }).unwrap();
    }

    /// The task that lives in each slot.
    pub(crate) fn live(&self, job: JobId) -> BTreeMap<u32, Task> {
        self.lab.state.tasks_of(job).filter(|t| t.is_live()).map(|t| (t.slot.0, (**t).clone())).collect()
    }

    /// Slots with a live task.
    pub(crate) fn slots(&self, job: JobId) -> Vec<u32> {
        self.live(job).into_keys().collect()
    }

    pub(crate) fn count(&self, job: JobId, state: TaskState) -> usize {
        self.lab.state.tasks_of(job).filter(|t| t.status.state == state).count()
    }

    /// Reports a status as the task's agent would.
    pub(crate) fn tell(&mut self, task: TaskId, status: TaskStatus) {
        let old = self.lab.state.task(task).unwrap();
        let node = old.node.unwrap();
        let status = TaskStatus { seq: old.status.seq + 1, at: self.lab.now, ..status };
        let reports = vec![Report { task, status }];
        self.lab.done(Command::ReportStatuses { node, reports }).unwrap();
    }

    /// The container of a running task ends, and the agent waits before it restarts it.
    pub(crate) fn wait_for_restart(&mut self, task: TaskId) {
        let status = self.lab.state.task(task).unwrap().status.clone();
        self.tell(task, TaskStatus { running_since: None, restarts: status.restarts + 1, ..status });
    }

    pub(crate) fn end(&mut self, task: TaskId, state: TaskState) {
        self.lab.report(task, state).unwrap();
    }
}

fn obedient(task: &Task) -> Option<TaskState> {
    let state = task.status.state;
    if state.is_terminal() {
        None
    } else if task.desired >= TaskState::Shutdown {
        Some(TaskState::Shutdown)
    } else {
        (state < TaskState::Running).then_some(TaskState::Running)
    }
}
