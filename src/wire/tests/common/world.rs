//! A state that tests drive command by command.

use std::sync::Arc;

use quorate_base::time::Timestamp;
use quorate_model::{
    JobId, JobSpec, JobVersion, NodeId, NodeStatus, Resources, Revision, Slot, TaskId, TaskState, TaskStatus,
    Term,
};
use quorate_state::{Actor, Command, Envelope, NewTasks, Position, Receipt, Report, State, apply};
use quorate_wire::api;

use super::{name, story};

/// The state and its log position.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) state: State,
    index: u64,
}

impl World {
    /// A cluster with nodes 0, 1, … of eight cores.
    pub(crate) fn with_nodes(count: usize) -> Self {
        let mut world = Self { state: State::new(), index: 0 };
        for i in 0..count {
            let capacity = Resources { cpu_millis: 8000, memory_bytes: 16 << 30 };
            let facts = Arc::new(quorate_model::NodeFacts { capacity, ..story::facts("a") });
            world.run(Command::RegisterNode { name: name(&format!("n{i}")), agent: format!("a{i}"), facts });
        }
        world
    }

    /// Applies a command that must be accepted in full.
    pub(crate) fn run(&mut self, command: Command) -> Receipt {
        self.index += 1;
        let envelope = Envelope {
            proposed_at: story::START,
            fence: None,
            actor: Actor::User("alice".into()),
            request: None,
            trace: None,
            command,
        };
        let at = Position { term: Term(1), index: Revision(self.index) };
        let receipt = apply(&mut self.state, at, &envelope).outcome.unwrap();
        if let Receipt::Changed { refused, .. } = &receipt {
            assert!(refused.is_empty(), "{:?}: {refused:?}", envelope.command);
        }
        receipt
    }

    pub(crate) fn apply_job(&mut self, spec: JobSpec) -> JobId {
        match self.run(Command::ApplyJob { spec: Arc::new(spec), expect: None }) {
            Receipt::Job { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create(&mut self, job: JobId, version: u32, first: u32, count: u32) {
        let run = NewTasks { first: Slot(first), count, attempt: 0, not_before: Timestamp::EPOCH };
        self.run(Command::CreateTasks { job, version: JobVersion(version), groups: vec![run] });
    }

    pub(crate) fn assign(&mut self, placements: &[(u64, u32)]) {
        let placements = placements.iter().map(|(task, node)| (TaskId(*task), NodeId(*node))).collect();
        self.run(Command::AssignTasks { placements });
    }

    pub(crate) fn desire(&mut self, desired: TaskState, tasks: &[u64]) {
        self.run(Command::SetDesired { desired, tasks: tasks.iter().copied().map(TaskId).collect() });
    }

    pub(crate) fn report(&mut self, node: u32, task: u64, state: TaskState) {
        let reports = vec![Report { task: TaskId(task), status: story::seen(state, self.index + 1) }];
        self.run(Command::ReportStatuses { node: NodeId(node), reports });
    }

    /// The agent saw a running task's container end and waits for its restart in place.
    pub(crate) fn waits_for_restart(&mut self, node: u32, task: u64) {
        let status = TaskStatus { running_since: None, ..story::seen(TaskState::Running, self.index + 1) };
        let reports = vec![Report { task: TaskId(task), status }];
        self.run(Command::ReportStatuses { node: NodeId(node), reports });
    }

    pub(crate) fn node_down(&mut self, node: u32) {
        let reason = "unheard".to_owned();
        self.run(Command::SetNodeStatus { node: NodeId(node), status: NodeStatus::Down, reason });
    }

    pub(crate) fn job(&self, id: JobId) -> api::Job {
        api::job(&self.state, self.state.job(id).unwrap())
    }

    pub(crate) fn converged(&self, id: JobId) -> bool {
        self.job(id).converged
    }
}
