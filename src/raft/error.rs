//! What can go wrong, and what a caller may conclude from it.

use quorate_base::ClusterId;
use quorate_state::Halt;
use quorate_storage::StorageError;

use crate::status::LeaderInfo;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of range or contradicts another.
    #[error("the settings of consensus are invalid: {reason}")]
    Config {
        /// Which and why.
        reason: String,
    },
    /// Leader restore is switched on.
    #[error(
        "leader restore must stay off: a leader that lost power would return to the same term without the end of its \
         log, and acknowledged writes would be lost"
    )]
    LeaderRestore,
    /// This manager is not among the initial managers, or its address differs from theirs.
    #[error(
        "the list of managers {list:?} lacks this one, {name} at {addr}; add it, the same on every manager"
    )]
    NotListed {
        /// This manager's name.
        name: String,
        /// Its Raft address.
        addr: String,
        /// The names in the list.
        list: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Consensus refused what the store holds.
    #[error("consensus cannot start on this store: {reason}")]
    Core {
        /// Why.
        reason: String,
    },
}

/// Why a running node has to stop. The process must end and say so: nothing
/// that it would still answer can be relied on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FatalError {
    /// The store failed.
    #[error("storage failed: {0}")]
    Storage(#[from] StorageError),
    /// An entry can't be applied.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// The core of consensus ended.
    #[error("consensus stopped: {0}")]
    Core(String),
    /// A manager of another cluster answers on an address of the list.
    #[error(
        "manager {peer} at {addr} belongs to cluster {theirs}, this one's data directory to cluster {ours}: \
         correct the list of managers or the --data-dir"
    )]
    OtherCluster {
        /// The other manager.
        peer: String,
        /// Its address.
        addr: String,
        /// Its cluster.
        theirs: ClusterId,
        /// This manager's cluster.
        ours: ClusterId,
    },
    /// Another manager answers on an address of the list.
    #[error(
        "{addr} is listed as manager {expected}, but {found} answers there: correct the list of managers"
    )]
    OtherName {
        /// The address.
        addr: String,
        /// The name in the list.
        expected: String,
        /// The name that answered.
        found: String,
    },
    /// The cluster refuses this manager for good.
    #[error("the cluster refuses this manager: {0}")]
    Refused(String),
}

/// Why a proposal has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none, or this leader has lost its quorum. Nothing
    /// was done: the proposal may be sent elsewhere.
    #[error("this manager does not lead{}; nothing was done", leader_text(.leader))]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<LeaderInfo>,
    },
    /// The proposal is too large. Nothing was done.
    #[error("the proposal has {bytes} bytes, at most {limit} are taken; nothing was done")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It took too long, or leadership was lost meanwhile: it may have been done
    /// or may still be. Retry with the same request id.
    #[error("the outcome is unknown: the write may have been done, or may still be")]
    Unknown,
    /// The node stopped: it may have been done.
    #[error("this manager is stopping; the write may have been done")]
    Stopped,
}

/// Why a linearizable read could not be confirmed. Nothing was read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// No leader is known at the moment.
    #[error("the cluster has no leader at the moment; retry, or read stale data")]
    NoLeader,
    /// The leader did not answer in time, or has no quorum.
    #[error("the read could not be confirmed by a quorum in time; retry, or read stale data")]
    Timeout,
    /// The node stopped.
    #[error("this manager is stopping")]
    Stopped,
}

/// Why the members could not be changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MembershipError {
    /// Only the leader can.
    #[error("this manager does not lead{}; nothing was done", leader_text(.leader))]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<LeaderInfo>,
    },
    /// The change is not possible.
    #[error("the members were not changed: {0}")]
    Refused(String),
    /// It may have been done.
    #[error("the outcome of the change of members is unknown: {0}")]
    Unknown(String),
}

fn leader_text(leader: &Option<LeaderInfo>) -> String {
    leader.as_ref().map(|l| format!(" ({} at {} does)", l.name, l.addr)).unwrap_or_default()
}
