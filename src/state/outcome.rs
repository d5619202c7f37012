//! Answers of the state machine.

use std::sync::Arc;

use quorate_base::{id::RequestId, time::Timestamp};
use quorate_model::{ClusterVersion, InvalidList, JobId, JobVersion, Name, NodeId, Revision, TaskId, Term};

/// What an applied command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// Nothing to tell.
    Done,
    /// Of the commands on jobs.
    Job {
        /// Which job.
        id: JobId,
        /// Its newest version.
        version: JobVersion,
        /// Whether it did not exist before.
        created: bool,
        /// Whether it was already as asked.
        unchanged: bool,
    },
    /// Of `CreateTasks`: a run of ids.
    Tasks {
        /// First new id.
        first: TaskId,
        /// How many.
        count: u32,
    },
    /// Of commands on many tasks.
    Changed {
        /// How many were changed.
        changed: u32,
        /// Which were not, because the state had moved on since the plan.
        refused: Vec<TaskId>,
    },
    /// Of `RegisterNode`.
    Node {
        /// Which node.
        id: NodeId,
    },
}

/// A business refusal: nothing was changed. An answer, never a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such job.
    #[error("there is no job {namespace}/{name}")]
    JobNotFound {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
    },
    /// The name belongs to a job of another type.
    #[error(
        "job {namespace}/{name} is a {stored}; a {sent} of the same name needs another name, or purge the old job first"
    )]
    JobTypeChanged {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
        /// Type of the stored one.
        stored: &'static str,
        /// Type that was sent.
        sent: &'static str,
    },
    /// The job moved since the caller read it.
    #[error("job {namespace}/{name} {}", moved(*stored, *sent, by))]
    EtagMismatch {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
        /// Revision of the stored job; 0 = it does not exist.
        stored: Revision,
        /// Revision that the caller expects.
        sent: Revision,
        /// Who edited it last; empty when it does not exist.
        by: Arc<str>,
        /// When.
        at: Timestamp,
    },
    /// The job is being purged.
    #[error("job {namespace}/{name} is being purged; submit it again when its tasks are gone")]
    JobPurging {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
    },
    /// Only services have replicas.
    #[error(
        "job {namespace}/{name} is a batch; only a service can be scaled: set parallelism in its file and run it again"
    )]
    NotScalable {
        /// Namespace.
        namespace: Name,
        /// Name.
        name: Name,
    },
    /// The specification breaks a rule.
    #[error("the job is not valid: {0}")]
    JobInvalid(InvalidList),
    /// The node's facts or the settings break a rule.
    #[error("not valid: {0}")]
    Invalid(InvalidList),
    /// The command names an object that is gone.
    #[error("{what} {id} is gone")]
    Gone {
        /// Kind of object.
        what: &'static str,
        /// Its number.
        id: u64,
    },
    /// The job is not in the state that the command needs.
    #[error("job {id} is {status}: {why}")]
    WrongJobStatus {
        /// Number of the job.
        id: JobId,
        /// Its status.
        status: &'static str,
        /// What would be needed.
        why: &'static str,
    },
    /// A ready node with another agent has the name.
    #[error("node name {name} is in use by another agent that is alive: give this agent its own name")]
    NodeNameTaken {
        /// The name.
        name: Name,
    },
    /// Planned in another term than the one that runs it.
    #[error("planned in term {planned}, but the term is {term}")]
    StaleFence {
        /// Term of the plan.
        planned: Term,
        /// Term of the log entry.
        term: Term,
    },
    /// The request id was used for another body.
    #[error("request id {id} was already used for another request: make a new one")]
    RequestReused {
        /// The id.
        id: RequestId,
    },
    /// The cluster has another identity already.
    #[error("the cluster was already initialised")]
    AlreadyInitialised,
}

impl Rejection {
    /// Whether a retry gets this refusal again.
    ///
    /// Not: what another fence or id would change, and the answers to plans, which carry no request id and name objects
    /// by numbers that never come back.
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        !matches!(
            self,
            Self::StaleFence { .. }
                | Self::RequestReused { .. }
                | Self::Gone { .. }
                | Self::WrongJobStatus { .. }
        )
    }
}

/// Why an expected revision is not met.
fn moved(stored: Revision, sent: Revision, by: &str) -> String {
    match (stored, sent) {
        (Revision(0), _) => format!("does not exist, but the write expects its revision {sent}"),
        (_, Revision(0)) => {
            format!(
                "exists since: {by} edited it at revision {stored}, but the write expects that there is none"
            )
        }
        _ => format!("was edited by {by} at revision {stored}, but the write expects revision {sent}"),
    }
}

/// This node cannot follow the log: it must stop and say why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// An entry from a newer version.
    #[error(
        "log entry {index} has command kind {kind} (format {format}), which this binary does not know; it follows cluster version {known:?} at most: upgrade this manager"
    )]
    NeedsVersion {
        /// Log index.
        index: Revision,
        /// Number of the kind.
        kind: u32,
        /// Its format.
        format: u32,
        /// Newest version known.
        known: ClusterVersion,
    },
    /// Bytes that are no entry or record.
    #[error("cannot decode {what}: {why}")]
    Undecodable {
        /// What was read.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The tables contradict each other.
    #[error("the state is inconsistent: {0}")]
    Inconsistent(String),
}
