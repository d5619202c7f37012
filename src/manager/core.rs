//! What all parts of a manager share.

use std::{sync::Arc, time::Duration};

use quorate_base::time::Clock;
use quorate_model::{Epoch, Invalid, Name, Revision, Term};
use quorate_pki::Security;
use quorate_raft::{Node, ReadError};
use quorate_state::State;
use quorate_telemetry::metrics;
use quorate_wire::{
    api::{parse_session_token, session_token},
    common,
    status::{ApiError, Reason},
};

use crate::proposer::{Proposer, WriteError};

/// How long a linearizable read waits for a quorum.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// How long a bounded read waits for its bounds.
const BOUND_DEADLINE: Duration = Duration::from_secs(2);
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
    /// [`Reason::NoLeader`] or [`Reason::ReadTimeout`] when no quorum confirms the leader, [`Reason::StaleRead`] when
    /// this manager does not reach the bounds in time, [`Reason::RevisionInFuture`] for a bound that no manager has
    /// reached, and [`Reason::ArgumentInvalid`].
    pub async fn view(&self, options: Option<&common::ReadOptions>) -> Result<State, ApiError> {
        let Some(options) = options else { return self.newest(Revision(0)).await };
        let least = self.least_revision(options)?;
        let staleness = staleness(options)?;
        let bounded = least > Revision(0) || staleness.is_some();
        match common::Consistency::try_from(options.consistency) {
            Ok(common::Consistency::Unspecified | common::Consistency::Linearizable) => {
                self.newest(least).await
            }
            Ok(common::Consistency::Bounded) if !bounded => Err(argument(
                "read.consistency",
                "a bounded read needs a bound: min_revision, max_staleness or session_token",
            )),
            Ok(common::Consistency::Stale) if !bounded => {
                metrics::reads("stale", "ok", 1);
                Ok(self.node.view())
            }
            Ok(common::Consistency::Stale | common::Consistency::Bounded) => {
                let read = self.within(least, staleness).await;
                metrics::reads("bounded", if read.is_ok() { "ok" } else { "failed" }, 1);
                read
            }
            Err(_) => Err(argument(
                "read.consistency",
                &format!("{} is unknown: use linearizable, bounded or stale", options.consistency),
            )),
        }
    }

    /// The state with every write that was acknowledged before.
    async fn newest(&self, least: Revision) -> Result<State, ApiError> {
        let started = self.clock.monotonic();
        let read = self.linearize().await;
        metrics::raft_read_index_duration(self.clock.monotonic().since(started));
        metrics::reads("linearizable", if read.is_ok() { "ok" } else { "failed" }, 1);
        read?;
        let view = self.node.view();
        let applied = view.applied().index;
        if least <= applied {
            return Ok(view);
        }
        let text = format!("the read asks for revision {least}, but the newest is {applied}");
        Err(ApiError::new(Reason::RevisionInFuture, text)
            .with("revision", least)
            .with("applied", applied)
            .with("manager", self.name.as_str()))
    }

    /// The state once it is within the bounds.
    async fn within(&self, least: Revision, staleness: Option<Duration>) -> Result<State, ApiError> {
        let late = |most: Duration| self.last_contact().is_none_or(|heard| heard > most);
        // Out of touch: a quorum may confirm the leader all the same.
        // Who leads has to be confirmed by others: it may have lost them a moment ago.
        let leads = || self.node.leadership().borrow().me;
        if let Some(most) = staleness.filter(|most| leads() || late(*most))
            && !matches!(tokio::time::timeout(BOUND_DEADLINE, self.linearize()).await, Ok(Ok(())))
            && (leads() || late(most))
        {
            return Err(self.stale("the leader was not heard of within max_staleness", least));
        }
        let applied = self.node.wait_applied(least);
        match tokio::time::timeout(BOUND_DEADLINE, applied).await {
            Ok(Ok(())) => Ok(self.node.view()),
            Ok(Err(error)) => Err(ApiError::new(Reason::ShuttingDown, error.to_string())),
            Err(_) => Err(self.stale("the revision did not arrive here in time", least)),
        }
    }

    fn stale(&self, why: &str, wanted: Revision) -> ApiError {
        let heard =
            self.last_contact().map_or_else(|| "never".to_owned(), quorate_base::time::format_duration);
        ApiError::new(Reason::StaleRead, format!("this manager is not fresh enough: {why}"))
            .with("applied", self.node.view().applied().index)
            .with("wanted", wanted)
            .with("last_contact", heard)
            .with("manager", self.name.as_str())
            .after(RETRY_AFTER)
    }

    /// The revision that the answer must reflect.
    fn least_revision(&self, options: &common::ReadOptions) -> Result<Revision, ApiError> {
        let least = Revision(options.min_revision);
        if options.session_token.is_empty() {
            return Ok(least);
        }
        let cluster = self.node.view().cluster().map(|c| c.to_string()).unwrap_or_default();
        Ok(least.max(parse_session_token(&cluster, &options.session_token)?))
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
        let cluster_id = state.cluster().map(|c| c.to_string()).unwrap_or_default();
        let revision = state.applied().index;
        // Without an identity there is nothing to bind a token to.
        let session_token =
            if cluster_id.is_empty() { String::new() } else { session_token(&cluster_id, revision) };
        common::ResponseMeta {
            cluster_id,
            manager: self.name.to_string(),
            leader_address: state.manager_named(&leader).map(|m| m.api_addr.clone()).unwrap_or_default(),
            leader,
            term: now.term.0,
            applied_revision: revision.0,
            last_contact: self.last_contact().map(common::duration),
            session_token,
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

/// Within which time the leader must have been heard.
fn staleness(options: &common::ReadOptions) -> Result<Option<Duration>, ApiError> {
    let Some(most) = &options.max_staleness else { return Ok(None) };
    match (u64::try_from(most.seconds), u32::try_from(most.nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(argument("read.max_staleness", "is no span of time: zero or more, in seconds")),
    }
}

fn argument(path: &str, why: &str) -> ApiError {
    ApiError::invalid(Reason::ArgumentInvalid, "the request", Invalid::new(path, why).into())
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
