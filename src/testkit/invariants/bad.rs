//! Hand-made cases for the tests of the invariants.

use std::sync::Arc;

use quorate_base::rand::Rng;
use quorate_model::{JobId, JobKind, JobSpec, NodeId, Resources, Slot, Task, TaskId, TaskState, Term};
use quorate_state::{
    Actor, Applied, Builder, Command, Envelope, NewTasks, Record, State,
    lab::{self, Lab},
};

use super::{Scene, Step, Verdict};
use crate::world::{Agent, Container, Journal};

/// The state with its records changed; its indexes are true.
pub(super) fn rebuilt(state: &State, mut change: impl FnMut(Record) -> Record) -> State {
    let mut builder = Builder::default();
    state.records().for_each(|record| builder.push(change(record)).unwrap());
    builder.finish().unwrap()
}

/// The state with one task changed.
pub(super) fn with_task(state: &State, id: TaskId, change: impl Fn(&mut Task)) -> State {
    rebuilt(state, |record| match record {
        Record::Task(task) if task.id == id => {
            let mut task = (*task).clone();
            change(&mut task);
            Record::Task(task.into())
        }
        other => other,
    })
}

/// A cluster whose parts a test can bend.
pub(super) struct Case {
    pub(super) lab: Lab,
    pub(super) agents: Vec<Agent>,
    pub(super) journal: Journal,
    pub(super) now_ms: u64,
    pub(super) leader: Option<Term>,
}

pub(super) fn service(replicas: u32) -> JobSpec {
    lab::spec("web", JobKind::Service { replicas }).unwrap()
}

impl Case {
    /// Two machines that are healthy since the start; a minute has passed.
    pub(super) fn new() -> Self {
        let mut lab = Lab::new();
        let mut rng = Rng::seeded(1);
        let mut agents: Vec<Agent> = (0..2).map(|index| Agent::new(index, &mut rng)).collect();
        for agent in &mut agents {
            agent.up = true;
            let facts = Arc::new(lab::facts(Resources { cpu_millis: 1000, memory_bytes: 1 << 30 }));
            let (name, agent) = (agent.name.clone(), agent.identity());
            lab.done(Command::RegisterNode { name, agent, facts }).unwrap();
        }
        Self { lab, agents, journal: Journal::default(), now_ms: 60_000, leader: Some(Term(1)) }
    }

    /// The same with a running service of one replica: task 0 on node 0.
    pub(super) fn running() -> Self {
        let mut case = Self::new();
        let job = case.lab.job(service(1)).unwrap();
        case.create(job, 0, 1);
        case.start(TaskId(0), NodeId(0));
        case
    }

    pub(super) fn create(&mut self, job: JobId, first: u32, count: u32) {
        let version = self.lab.job_record(job).unwrap().version;
        let not_before = self.lab.now;
        let groups = vec![NewTasks { first: Slot(first), count, attempt: 0, not_before }];
        self.lab.done(Command::CreateTasks { job, version, groups }).unwrap();
    }

    /// Places a task and lets it run.
    pub(super) fn start(&mut self, task: TaskId, node: NodeId) {
        self.lab.done(Command::AssignTasks { placements: vec![(task, node)] }).unwrap();
        self.lab.report(task, TaskState::Running).unwrap();
        self.contain(task, node.0 as usize);
    }

    /// A running container.
    pub(super) fn contain(&mut self, task: TaskId, agent: usize) {
        let (job, slot) = self.lab.state.task(task).map_or((JobId(9), Slot(9)), |t| (t.job, t.slot));
        self.agents[agent].containers.insert(task, Container::running(job, slot));
    }

    pub(super) fn scene(&self, check: Option<fn(&Scene<'_>) -> Verdict>) -> Verdict {
        let Self { lab, agents, journal, leader, now_ms } = self;
        check.unwrap()(&Scene { state: &lab.state, agents, journal, leader: *leader, now_ms: *now_ms })
    }

    /// Applies a command, lets `bend` change what came of it, and checks the step.
    pub(super) fn step(
        &mut self,
        command: Command,
        check: Option<fn(&Step<'_>) -> Verdict>,
        bend: impl FnOnce(&mut Bent),
    ) -> Verdict {
        let before = self.lab.clone();
        let envelope = Envelope {
            proposed_at: self.lab.now,
            fence: Some(self.lab.at.term),
            actor: Actor::User("test".into()),
            request: None,
            trace: None,
            command,
        };
        let applied = self.lab.push(&envelope);
        self.journal.record(self.now_ms, &envelope, &applied);
        let mut bent = Bent { before, after: self.lab.clone(), envelope, applied };
        bend(&mut bent);
        check.unwrap()(&Step {
            before: &bent.before.state,
            after: &bent.after.state,
            at: bent.after.at,
            envelope: &bent.envelope,
            applied: &bent.applied,
            journal: &self.journal,
            agents: &self.agents,
            now_ms: self.now_ms,
        })
    }
}

/// The parts of a step, before it is checked.
pub(super) struct Bent {
    pub(super) before: Lab,
    pub(super) after: Lab,
    pub(super) envelope: Envelope,
    pub(super) applied: Applied,
}
