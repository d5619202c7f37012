//! Settings of consensus.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use quorate_model::RaftId;

use crate::StartError;

/// How soon silence counts as death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// How often the leader shows that it lives.
    pub heartbeat: Duration,
    /// A follower waits at least this long, beyond the leader's lease.
    pub election_min: Duration,
    /// A follower waits at most this long beyond the lease. This is also the lease.
    pub election_max: Duration,
}

impl Timers {
    /// For managers in one network. Silence counts as death after the lease
    /// (`election_max`) and a draw between minimum and maximum: 330–440 ms.
    pub const LAN: Timers = Timers {
        heartbeat: Duration::from_millis(40),
        election_min: Duration::from_millis(110),
        election_max: Duration::from_millis(220),
    };
}

impl Default for Timers {
    fn default() -> Self {
        Timers::LAN
    }
}

/// Settings of one Raft node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftConfig {
    /// Heartbeat and election times.
    pub timers: Timers,
    /// An image is built after about so many entries; each node adds up to a
    /// fifth, by its id, so that not all build at the same moment.
    pub snapshot_every: u64,
    /// Entries kept behind the image, for followers that lag a little.
    pub keep_logs: u64,
    /// Most bytes of entries in one message to a follower.
    pub batch_bytes: usize,
    /// Most bytes of one proposal.
    pub proposal_bytes: usize,
    /// How long a proposal may take before its outcome counts as unknown.
    pub propose_timeout: Duration,
    /// How long a linearizable read may wait for its confirmation.
    pub read_timeout: Duration,
    /// A replication or image stream without progress for so long is given up.
    pub stall_timeout: Duration,
    /// A leader whose log flush takes this long hands leadership over:
    /// heartbeats need no disk, so nobody else would notice.
    pub disk_stall: Duration,
    /// Updates that a watcher may lag behind before it has to start over.
    pub update_queue: usize,
    /// Has to be false. A leader that returns after a power cut as leader of the
    /// same term, without the end of its log that it had not flushed, gives the
    /// same log ids to other entries: acknowledged writes are lost. Here only so
    /// that a test can see it refused.
    pub leader_restore: bool,
}

impl Default for RaftConfig {
    fn default() -> Self {
        RaftConfig {
            timers: Timers::LAN,
            snapshot_every: 50_000,
            keep_logs: 5_000,
            batch_bytes: 1 << 20,
            proposal_bytes: 3 << 19,
            propose_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(5),
            disk_stall: Duration::from_secs(2),
            update_queue: 4096,
            leader_restore: false,
        }
    }
}

impl RaftConfig {
    /// openraft's settings for node `id`.
    pub(crate) fn build(&self, id: RaftId) -> Result<Config, StartError> {
        let invalid = |reason: String| StartError::Config { reason };
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        if self.snapshot_every == 0 || self.batch_bytes == 0 || self.proposal_bytes == 0 {
            return Err(invalid("snapshot_every, batch_bytes and proposal_bytes must not be 0".to_owned()));
        }
        let stagger = self.snapshot_every.saturating_mul(id.0 % 1000) / 5000;
        let config = Config {
            cluster_name: "quorate".to_owned(),
            heartbeat_interval: millis(self.timers.heartbeat),
            election_timeout_min: millis(self.timers.election_min),
            election_timeout_max: millis(self.timers.election_max),
            enable_pre_vote: Some(true),
            enable_leader_restore: Some(self.leader_restore),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every + stagger),
            max_in_snapshot_log_to_keep: self.keep_logs,
            replication_lag_threshold: self.snapshot_every.saturating_mul(2),
            purge_batch_size: (self.keep_logs / 4).clamp(1, 1024),
            max_payload_entries: 4096,
            install_snapshot_timeout: millis(self.stall_timeout).saturating_mul(60),
            api_channel_size: Some(8192),
            notification_channel_size: Some(8192),
            backoff: "50ms 50ms 50ms".to_owned(),
            ..Config::default()
        };
        if config.enable_leader_restore != Some(false) {
            return Err(StartError::LeaderRestore);
        }
        config.validate().map_err(|e| invalid(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_never_restores_a_leader() {
        let config = RaftConfig::default().build(RaftId(u64::MAX)).unwrap();
        assert_eq!(config.enable_leader_restore, Some(false));
        assert_eq!(config.enable_pre_vote, Some(true));
    }

    #[test]
    fn leader_restore_is_refused() {
        let planted = RaftConfig { leader_restore: true, ..RaftConfig::default() };
        assert!(matches!(planted.build(RaftId(1)), Err(StartError::LeaderRestore)));
    }

    #[test]
    fn impossible_timers_are_refused() {
        let timers = Timers { heartbeat: Duration::from_millis(200), ..Timers::LAN };
        let text = RaftConfig { timers, ..RaftConfig::default() }.build(RaftId(1)).unwrap_err().to_string();
        assert!(text.starts_with("the settings of consensus are invalid:"), "{text}");
    }

    #[test]
    fn nodes_build_their_images_at_different_times() {
        let at = |id| RaftConfig::default().build(RaftId(id)).unwrap().snapshot_policy;
        assert_ne!(at(1), at(500));
    }
}
