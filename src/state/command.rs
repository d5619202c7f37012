//! What a log entry may ask for.

use std::sync::Arc;

use quorate_base::{
    id::{ClusterId, RequestId},
    time::Timestamp,
};
use quorate_model::{
    ClusterVersion, Epoch, Explanation, JobId, JobSpec, JobStatus, JobVersion, Manager, Name, NodeFacts,
    NodeId, NodeStatus, Revision, Settings, Slot, TaskId, TaskState, TaskStatus, Term, TraceContext,
};

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A client of the API, by principal.
    User(Arc<str>),
    /// The control plane itself, by manager name.
    Manager(Name),
    /// An agent, by node name.
    Agent(Name),
}

impl Actor {
    /// The principal, for people.
    #[must_use]
    pub fn words(&self) -> Arc<str> {
        match self {
            Self::User(principal) => principal.clone(),
            Self::Manager(name) => format!("manager {name}").into(),
            Self::Agent(name) => format!("agent {name}").into(),
        }
    }
}

/// A caller's mark on a write, which makes its retry exact-once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller; kept over retries.
    pub id: RequestId,
    /// Hash of the encoded command: the same id with another body is refused.
    pub fingerprint: u64,
}

/// One command with what its proposer stamped on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The proposer's clock. Replicated time is the maximum seen, so it never goes back.
    pub proposed_at: Timestamp,
    /// The term in which a controller planned; the command is refused in any other.
    pub fence: Option<Term>,
    /// Who asked.
    pub actor: Actor,
    /// The caller's mark, on writes of clients.
    pub request: Option<Request>,
    /// Trace that the request belongs to.
    pub trace: Option<TraceContext>,
    /// What to do.
    pub command: Command,
}

/// A run of equal new tasks in neighbouring slots: a thousand tasks are a few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTasks {
    /// First slot.
    pub first: Slot,
    /// How many slots from there.
    pub count: u32,
    /// How many tasks of the slot ended badly in a row before.
    pub attempt: u32,
    /// Not to be started earlier.
    pub not_before: Timestamp,
}

/// An agent's word on one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which task.
    pub task: TaskId,
    /// What the agent saw.
    pub status: TaskStatus,
}

/// A change of the state. Numbers of the kinds are fixed, see [`CommandKind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Creates a job or replaces its specification.
    ApplyJob {
        /// The new specification.
        spec: Arc<JobSpec>,
        /// Refused unless the stored job was last changed at this revision; 0 = must not exist.
        expect: Option<Revision>,
    },
    /// Sets the replicas of a service.
    ScaleJob {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
        /// New number of replicas.
        replicas: u32,
        /// As in `ApplyJob`.
        expect: Option<Revision>,
    },
    /// Stops a job.
    DeleteJob {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
        /// Whether the job is forgotten once its tasks are gone.
        purge: bool,
        /// As in `ApplyJob`.
        expect: Option<Revision>,
    },
    /// Records how far a job is; from the leader.
    SetJobStatus {
        /// Which job.
        job: JobId,
        /// Version of which the end was seen; refused when the job has a newer one.
        version: JobVersion,
        /// `Complete` or `Failed`.
        status: JobStatus,
    },
    /// Deletes the record of a purged job without tasks; from the leader.
    ForgetJob {
        /// Which job.
        job: JobId,
    },
    /// Creates tasks; from the leader.
    CreateTasks {
        /// Whose.
        job: JobId,
        /// Of which version.
        version: JobVersion,
        /// Where and how many.
        groups: Vec<NewTasks>,
    },
    /// Gives tasks their nodes; from the leader. Apply checks again that each fits.
    AssignTasks {
        /// Task and node, by task id.
        placements: Vec<(TaskId, NodeId)>,
    },
    /// Raises what is desired of tasks; from the leader.
    SetDesired {
        /// The new desired state.
        desired: TaskState,
        /// Which tasks.
        tasks: Vec<TaskId>,
    },
    /// Records why tasks cannot be placed; from the leader.
    ExplainTasks {
        /// Reasons by shared explanation: many tasks usually have the same one.
        groups: Vec<(Arc<Explanation>, Vec<TaskId>)>,
    },
    /// Records what an agent saw.
    ReportStatuses {
        /// Whose agent.
        node: NodeId,
        /// Newest word per task.
        reports: Vec<Report>,
    },
    /// Treats tasks of lost nodes as gone; from the leader.
    OrphanTasks {
        /// Which tasks.
        tasks: Vec<TaskId>,
    },
    /// Deletes ended tasks; from the leader.
    RemoveTasks {
        /// Which tasks.
        tasks: Vec<TaskId>,
    },
    /// Asks for a restart in place.
    RestartTasks {
        /// Which tasks.
        tasks: Vec<TaskId>,
    },
    /// Adds a node or renews its facts; from the dispatcher when an agent opens a session.
    RegisterNode {
        /// Name of the node.
        name: Name,
        /// Identity of the agent's data directory.
        agent: String,
        /// What the agent says of its machine.
        facts: Arc<NodeFacts>,
    },
    /// Records whether a node is heard; from the leader.
    SetNodeStatus {
        /// Which node.
        node: NodeId,
        /// Its new status.
        status: NodeStatus,
        /// Why.
        reason: String,
    },
    /// Adds a manager or renews its addresses.
    UpsertManager {
        /// The record; `changed` is set by apply.
        manager: Manager,
    },
    /// Deletes the record of a manager that left.
    RemoveManager {
        /// Identity of its disk.
        id: quorate_model::RaftId,
    },
    /// Replaces the cluster's settings.
    UpdateSettings {
        /// All of them.
        settings: Settings,
    },
    /// Names the cluster; the first command of its first leader.
    InitCluster {
        /// Random, never changes.
        cluster: ClusterId,
        /// Raised by disaster recovery.
        epoch: Epoch,
    },
}

/// Number of a command in the log: fixed, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
#[allow(missing_docs, reason = "each is the command of the same name")]
pub enum CommandKind {
    ApplyJob = 1,
    ScaleJob = 2,
    DeleteJob = 3,
    SetJobStatus = 4,
    ForgetJob = 5,
    CreateTasks = 16,
    AssignTasks = 17,
    SetDesired = 18,
    ExplainTasks = 19,
    ReportStatuses = 20,
    OrphanTasks = 21,
    RemoveTasks = 22,
    RestartTasks = 23,
    RegisterNode = 32,
    SetNodeStatus = 33,
    UpsertManager = 48,
    RemoveManager = 49,
    UpdateSettings = 50,
    InitCluster = 51,
}

impl CommandKind {
    /// All kinds.
    pub const ALL: [Self; 19] = [
        Self::ApplyJob,
        Self::ScaleJob,
        Self::DeleteJob,
        Self::SetJobStatus,
        Self::ForgetJob,
        Self::CreateTasks,
        Self::AssignTasks,
        Self::SetDesired,
        Self::ExplainTasks,
        Self::ReportStatuses,
        Self::OrphanTasks,
        Self::RemoveTasks,
        Self::RestartTasks,
        Self::RegisterNode,
        Self::SetNodeStatus,
        Self::UpsertManager,
        Self::RemoveManager,
        Self::UpdateSettings,
        Self::InitCluster,
    ];

    /// The number in the log.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The kind with that number; `None` = from a newer version.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.number() == number)
    }

    /// The cluster version from which on it may be proposed.
    #[must_use]
    pub fn since(self) -> ClusterVersion {
        ClusterVersion::V1
    }
}

impl Command {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self {
            Self::ApplyJob { .. } => CommandKind::ApplyJob,
            Self::ScaleJob { .. } => CommandKind::ScaleJob,
            Self::DeleteJob { .. } => CommandKind::DeleteJob,
            Self::SetJobStatus { .. } => CommandKind::SetJobStatus,
            Self::ForgetJob { .. } => CommandKind::ForgetJob,
            Self::CreateTasks { .. } => CommandKind::CreateTasks,
            Self::AssignTasks { .. } => CommandKind::AssignTasks,
            Self::SetDesired { .. } => CommandKind::SetDesired,
            Self::ExplainTasks { .. } => CommandKind::ExplainTasks,
            Self::ReportStatuses { .. } => CommandKind::ReportStatuses,
            Self::OrphanTasks { .. } => CommandKind::OrphanTasks,
            Self::RemoveTasks { .. } => CommandKind::RemoveTasks,
            Self::RestartTasks { .. } => CommandKind::RestartTasks,
            Self::RegisterNode { .. } => CommandKind::RegisterNode,
            Self::SetNodeStatus { .. } => CommandKind::SetNodeStatus,
            Self::UpsertManager { .. } => CommandKind::UpsertManager,
            Self::RemoveManager { .. } => CommandKind::RemoveManager,
            Self::UpdateSettings { .. } => CommandKind::UpdateSettings,
            Self::InitCluster { .. } => CommandKind::InitCluster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_distinct_fixed_numbers() {
        let numbers: Vec<u16> = CommandKind::ALL.into_iter().map(CommandKind::number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21, 22, 23, 32, 33, 48, 49, 50, 51]);
        for kind in CommandKind::ALL {
            assert_eq!(CommandKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(CommandKind::from_number(9999), None);
    }
}
