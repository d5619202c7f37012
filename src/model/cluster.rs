//! Managers and what holds for the whole cluster.

use std::time::Duration;

use crate::{InvalidList, Name, RaftId, Revision};

/// How the scheduler prefers nodes that all could take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Strategy {
    /// Even numbers of tasks: least of this job first, then least loaded.
    #[default]
    Spread,
    /// Fill nodes up: most loaded first.
    Binpack,
}

impl Strategy {
    /// The word of the job file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Binpack => "binpack",
        }
    }
}

/// The version that the whole cluster can follow; gates commands, formats and features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterVersion(pub u32);

impl ClusterVersion {
    /// The first one.
    pub const V1: Self = Self(1);
    /// The newest that this binary knows.
    pub const NEWEST: Self = Self::V1;
}

impl Default for ClusterVersion {
    fn default() -> Self {
        Self::V1
    }
}

/// A member of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Identity of its disk.
    pub id: RaftId,
    /// The operator's name for it.
    pub name: Name,
    /// Where clients reach its API, `host:port`.
    pub api_addr: String,
    /// Where agents reach it, `host:port`.
    pub agent_addr: String,
    /// Where the other managers reach it, `host:port`.
    pub raft_addr: String,
    /// Version of its binary.
    pub binary_version: String,
    /// Newest cluster version that its binary can follow.
    pub can_follow: ClusterVersion,
    /// Revision of the last change.
    pub changed: Revision,
}

/// An agent notices a frozen manager within 2.5 s (the ping of its connection) and has to reach
/// the next one before its lease runs out: with less a change of the leader would move tasks.
const MIN_LEASE: Duration = Duration::from_secs(3);

/// Settings of the whole cluster, replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Default placement strategy.
    pub strategy: Strategy,
    /// How long an unheard agent counts as there.
    pub node_lease: Duration,
    /// How long a down node may come back before its tasks count as gone.
    pub orphan_after: Duration,
    /// Ended tasks kept per slot, as history.
    pub task_history: u32,
    /// What the cluster as a whole can follow.
    pub version: ClusterVersion,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            strategy: Strategy::Spread,
            node_lease: Duration::from_secs(5),
            orphan_after: Duration::from_secs(24 * 3600),
            task_history: 5,
            version: ClusterVersion::V1,
        }
    }
}

impl Settings {
    /// Checks ranges.
    ///
    /// # Errors
    /// All violations.
    pub fn validate(&self) -> Result<(), InvalidList> {
        let mut out = InvalidList::default();
        if !(MIN_LEASE..=Duration::from_secs(600)).contains(&self.node_lease) {
            out.push("nodeLease", "must be 3s to 10m");
        }
        if self.orphan_after < self.node_lease {
            out.push("orphanAfter", "must not be shorter than nodeLease");
        }
        if self.task_history > 100 {
            out.push("taskHistory", "must be at most 100");
        }
        out.into_result()
    }
}
