//! A state to try things on: applies commands one by one and keeps the position (feature `lab`, for tests).

use std::{sync::Arc, time::Duration};

use quorate_base::time::Timestamp;
use quorate_model::{
    ContainerSpec, Invalid, Job, JobId, JobKind, JobSpec, Name, NodeFacts, NodeId, Placement,
    ReschedulePolicy, Resources, RestartPolicy, Revision, RuntimeKind, TaskId, TaskState, TaskStatus, Term,
};

use crate::{Actor, Applied, Command, Envelope, Position, Receipt, Rejection, Report, State, apply};

/// A state with the log position and the clock that drive it.
#[derive(Debug, Clone)]
pub struct Lab {
    /// The state.
    pub state: State,
    /// Position of the last entry.
    pub at: Position,
    /// The proposer's clock.
    pub now: Timestamp,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

/// Why the lab could not set something up.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A name breaks the rules.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The state refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The answer is of another kind.
    #[error("unexpected answer {0:?}")]
    Unexpected(Receipt),
}

impl Lab {
    /// An empty state in term 1, an hour after the epoch.
    #[must_use]
    pub fn new() -> Self {
        let at = Position { term: Term(1), index: Revision(0) };
        Self { state: State::new(), at, now: Timestamp::from_millis(3_600_000) }
    }

    /// Moves the clock on.
    pub fn pass(&mut self, span: Duration) {
        self.now = self.now.saturating_add(span);
    }

    /// Applies a command as the next entry, in the current term.
    pub fn apply(&mut self, command: Command) -> Applied {
        let actor = Actor::User(Arc::from("lab"));
        let term = self.at.term;
        self.push(&Envelope {
            proposed_at: self.now,
            fence: Some(term),
            actor,
            request: None,
            trace: None,
            command,
        })
    }

    /// Applies an envelope as the next entry.
    pub fn push(&mut self, envelope: &Envelope) -> Applied {
        self.at.index = self.at.index.next();
        apply(&mut self.state, self.at, envelope)
    }

    /// Applies a command that must succeed.
    ///
    /// # Errors
    /// The state's refusal.
    pub fn done(&mut self, command: Command) -> Result<Receipt, LabError> {
        Ok(self.apply(command).outcome?)
    }

    /// Creates or changes a job.
    ///
    /// # Errors
    /// The state's refusal.
    pub fn job(&mut self, spec: JobSpec) -> Result<JobId, LabError> {
        match self.done(Command::ApplyJob { spec: Arc::new(spec), expect: None })? {
            Receipt::Job { id, .. } => Ok(id),
            other => Err(LabError::Unexpected(other)),
        }
    }

    /// Registers a node, by name `n<number>`, with all runtimes.
    ///
    /// # Errors
    /// The state's refusal.
    pub fn node(&mut self, number: u32, capacity: Resources) -> Result<NodeId, LabError> {
        self.node_with(number, facts(capacity))
    }

    /// Registers a node, by name `n<number>`.
    ///
    /// # Errors
    /// The state's refusal.
    pub fn node_with(&mut self, number: u32, facts: NodeFacts) -> Result<NodeId, LabError> {
        let name = Name::parse("node", &format!("n{number}"))?;
        let agent = format!("agent-{number}");
        match self.done(Command::RegisterNode { name, agent, facts: Arc::new(facts) })? {
            Receipt::Node { id } => Ok(id),
            other => Err(LabError::Unexpected(other)),
        }
    }

    /// Reports a task's state as its agent would; a running task began to run now.
    ///
    /// # Errors
    /// The state's refusal.
    pub fn report(&mut self, task: TaskId, state: TaskState) -> Result<Receipt, LabError> {
        let gone = Rejection::Gone { what: "task", id: task.0 };
        let old = self.state.task(task).ok_or(gone.clone())?;
        let node = old.node.ok_or(gone)?;
        let running_since =
            if state == TaskState::Running { Some(self.now) } else { old.status.running_since };
        let status =
            TaskStatus { seq: old.status.seq + 1, running_since, ..TaskStatus::by_manager(state, self.now) };
        self.done(Command::ReportStatuses { node, reports: vec![Report { task, status }] })
    }

    /// A job's record.
    ///
    /// # Errors
    /// When it is gone.
    pub fn job_record(&self, id: JobId) -> Result<Arc<Job>, LabError> {
        let gone = Rejection::Gone { what: "job", id: u64::from(id.0) };
        Ok(self.state.job(id).cloned().ok_or(gone)?)
    }
}

/// A legal job in the default namespace with one docker container that reserves 0.1 CPU and 32 MiB.
///
/// # Errors
/// When the name breaks the rules.
pub fn spec(name: &str, kind: JobKind) -> Result<JobSpec, Invalid> {
    let container = ContainerSpec {
        image: Some("app:1".to_owned()),
        reserve: Resources { cpu_millis: 100, memory_bytes: 32 << 20 },
        ..ContainerSpec::default()
    };
    Ok(JobSpec {
        namespace: Name::default_namespace(),
        name: Name::parse("name", name)?,
        kind,
        priority: 50,
        labels: [].into(),
        placement: Placement::default(),
        restart: RestartPolicy::default(),
        reschedule: ReschedulePolicy::default(),
        ports: [].into(),
        volumes: [].into(),
        containers: [(Name::parse("container", "app")?, container)].into(),
    })
}

/// The same job with another image, so that its tasks must be replaced.
#[must_use]
pub fn with_image(mut spec: JobSpec, image: &str) -> JobSpec {
    for container in spec.containers.values_mut() {
        container.image = Some(image.to_owned());
    }
    spec
}

/// Facts of a Linux machine with all runtimes.
#[must_use]
pub fn facts(capacity: Resources) -> NodeFacts {
    NodeFacts {
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        runtimes: RuntimeKind::ALL.into_iter().map(|kind| (kind, "1".to_owned())).collect(),
        capacity,
        ..NodeFacts::default()
    }
}
