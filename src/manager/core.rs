//! What all parts of a manager share.

use std::{sync::Arc, time::Duration};

use quorate_base::time::Clock;
use quorate_model::{Epoch, Name, Term};
use quorate_pki::Security;
use quorate_raft::{Node, ReadError};
use quorate_state::State;
use quorate_telemetry::metrics;
use quorate_wire::{
    common,
    status::{ApiError, Reason},
};

use crate::proposer::{Proposer, WriteError};

/// How long a linearizable read waits for a quorum.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// When to try again while an election runs.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Shared by services and duties; cheap to clone.
#[derive(Clone)]
pub struct Core {
    /// This manager's name.
    pub name: Name,
    /// Consensus.
    pub node: Node,
    /// The write path.
    pub proposer: Proposer,
    /// How it dials others.
    pub security: Security,
    /// The clock.
    pub clock: Clock,
}

/// Orders the words of leaders towards agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// The cluster's epoch.
    pub epoch: Epoch,
    /// The leader's term.
    pub term: Term,
}

impl Core {
    /// The state as fresh as the caller wishes.
    ///
    /// # Errors
    /// [`Reason::NoLeader`] or [`Reason::ReadTimeout`] when no quorum confirms the leader.
    pub async fn view(&self, options: Option<&common::ReadOptions>) -> Result<State, ApiError> {
        let wanted = options.map_or(0, |o| o.consistency);
        match common::Consistency::try_from(wanted) {
            Ok(common::Consistency::Stale | common::Consistency::Bounded) => {
                metrics::reads("stale", "ok", 1);
                Ok(self.node.view())
            }
            Ok(common::Consistency::Unspecified | common::Consistency::Linearizable) => {
                let started = self.clock.monotonic();
                let read = self.linearize().await;
                metrics::raft_read_index_duration(self.clock.monotonic().since(started));
                metrics::reads("linearizable", if read.is_ok() { "ok" } else { "failed" }, 1);
                read.map(|()| self.node.view())
            }
            Err(_) => Err(ApiError::new(
                Reason::ArgumentInvalid,
                format!("read.consistency {wanted} is unknown: use linearizable or stale"),
            )),
        }
    }

    async fn linearize(&self) -> Result<(), ApiError> {
        match tokio::time::timeout(READ_DEADLINE, self.node.read_index()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(ReadError::NoLeader)) => Err(self.no_leader()),
            Ok(Err(error @ ReadError::Timeout)) => Err(ApiError::new(
                Reason::ReadTimeout,
                format!("{error}: no quorum confirmed the leader in time; a stale read works without one"),
            )),
            Ok(Err(error @ ReadError::Stopped)) => {
                Err(ApiError::new(Reason::ShuttingDown, error.to_string()))
            }
            Err(_) => Err(ApiError::new(
                Reason::ReadTimeout,
                format!(
                    "no quorum confirmed the leader within {}; a stale read works without one",
                    quorate_base::time::format_duration(READ_DEADLINE)
                ),
            )),
        }
    }

    /// The error of a manager that knows no leader.
    #[must_use]
    pub fn no_leader(&self) -> ApiError {
        ApiError::new(
            Reason::NoLeader,
            "no leader is known: an election runs, or a majority of the managers is unreachable",
        )
        .after(RETRY_AFTER)
        .with("manager", self.name.as_str())
    }

    /// The error of a write that this manager could not finish.
    #[must_use]
    pub fn write_failed(&self, error: WriteError) -> ApiError {
        let error = match error {
            WriteError::Rejected(rejection) => ApiError::from(rejection),
            WriteError::NotLeader => {
                let leader = self.node.leadership().borrow().leader.clone();
                let mut error =
                    ApiError::new(Reason::NotLeader, "this manager is not the leader").after(RETRY_AFTER);
                if let Some(leader) = leader {
                    error = error
                        .with("leader", &leader.name)
                        .with("leader_address", self.api_address(&leader.name));
                }
                error
            }
            WriteError::Unknown => ApiError::new(
                Reason::CommitTimeout,
                "the outcome is unknown: the write may or may not have been done; \
                 try again with the same request id to find out",
            ),
            WriteError::Overloaded => {
                ApiError::new(Reason::Overloaded, "too many writes wait on this manager").after(RETRY_AFTER)
            }
            error @ WriteError::TooLarge { .. } => ApiError::new(Reason::SpecTooLarge, error.to_string()),
            WriteError::Stopped => ApiError::new(Reason::ShuttingDown, "this manager is stopping"),
        };
        error.with("manager", self.name.as_str())
    }

    /// Where clients reach the named manager; empty when it is not known.
    #[must_use]
    pub fn api_address(&self, name: &str) -> String {
        self.node.view().manager_named(name).map(|m| m.api_addr.clone()).unwrap_or_default()
    }

    /// Who answers, and how fresh `state` is.
    #[must_use]
    pub fn meta(&self, state: &State) -> common::ResponseMeta {
        let now = self.node.leadership().borrow().clone();
        let leader = now.leader.map(|l| l.name).unwrap_or_default();
        common::ResponseMeta {
            cluster_id: state.cluster().map(|c| c.to_string()).unwrap_or_default(),
            manager: self.name.to_string(),
            leader_address: state.manager_named(&leader).map(|m| m.api_addr.clone()).unwrap_or_default(),
            leader,
            term: now.term.0,
            applied_revision: state.applied().index.0,
            last_contact: self.last_contact().map(common::duration),
            session_token: String::new(),
        }
    }

    /// Time since a leader was heard: zero on the leader, `None` = never.
    #[must_use]
    pub fn last_contact(&self) -> Option<Duration> {
        if self.node.leadership().borrow().me {
            return Some(Duration::ZERO);
        }
        self.node.status().last_leader_contact
    }
}

/// What a leader's services need of its term; there is one only while duties run.
#[derive(Clone)]
pub struct Leading {
    /// The fence of everything it says to agents.
    pub fence: Fence,
    /// Its tasks: gone when the term is over.
    pub group: quorate_base::tasks::TaskGroup,
    /// Which agents were heard when.
    pub liveness: Arc<crate::duties::liveness::Liveness>,
}
