//! What a node knows of itself and its group.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant, RaftMetrics, ServerState};
use quorate_base::time::Mono;
use quorate_model::{RaftId, Revision, Term};

use crate::types::{LogId, Peer, Raft, TypeConfig};

pub(crate) type Metrics = RaftMetrics<TypeConfig>;

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderInfo {
    /// Its Raft id.
    pub id: RaftId,
    /// Its manager's name.
    pub name: String,
    /// `host:port` of its Raft listener.
    pub addr: String,
}

/// Leadership as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// The leader of that term, if known.
    pub leader: Option<LeaderInfo>,
    /// Whether it is this node.
    pub me: bool,
}

/// What a node does in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Replicates without a vote.
    Learner,
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
    /// Is being stopped.
    Stopping,
}

/// One member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its Raft id.
    pub id: RaftId,
    /// Its manager's name.
    pub name: String,
    /// `host:port` of its Raft listener.
    pub addr: String,
    /// `host:port` of its API listener.
    pub api_addr: String,
    /// `host:port` of its agent listener.
    pub agent_addr: String,
    /// Version of its binary.
    pub version: String,
    /// Whether it votes.
    pub voter: bool,
    /// On the leader: the last index that it is known to have.
    pub matched: Option<Revision>,
    /// On the leader: how long ago it last answered; none if it never did.
    pub last_answer: Option<Duration>,
}

/// A snapshot of everything above, for status pages and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftStatus {
    /// This node.
    pub id: RaftId,
    /// Its term.
    pub term: Term,
    /// Whom it voted for in that term, and whether a quorum did too.
    pub vote: (RaftId, bool),
    /// What it does.
    pub role: Role,
    /// Who leads.
    pub leader: Option<LeaderInfo>,
    /// Its last log index.
    pub last_log: Option<Revision>,
    /// The last index that it knows to be committed.
    pub committed: Option<Revision>,
    /// The last index that its state includes.
    pub applied: Option<Revision>,
    /// The last index that its newest image includes.
    pub snapshot: Option<Revision>,
    /// The last index that is gone from its log.
    pub purged: Option<Revision>,
    /// All members, by id.
    pub members: Vec<MemberStatus>,
    /// Whether a change of members is under way.
    pub changing: bool,
    /// On the leader: how long ago a quorum last confirmed it.
    pub last_quorum_ack: Option<Duration>,
    /// On others: how long ago the leader was last heard.
    pub last_leader_contact: Option<Duration>,
}

/// The newest metrics.
pub(crate) fn current(raft: &Raft) -> Metrics {
    raft.metrics().borrow_watched().clone()
}

pub(crate) fn leader_info(metrics: &Metrics, id: u64) -> Option<LeaderInfo> {
    let peer = metrics.membership_config.get_node(&id)?;
    Some(LeaderInfo { id: RaftId(id), name: peer.name.clone(), addr: peer.addr.clone() })
}

pub(crate) fn leadership(metrics: &Metrics) -> Leadership {
    Leadership {
        term: Term(metrics.current_term),
        leader: metrics.current_leader.and_then(|id| leader_info(metrics, id)),
        me: metrics.current_leader == Some(metrics.id) && metrics.state == ServerState::Leader,
    }
}

pub(crate) fn status(metrics: &Metrics, now: Mono, leader_heard: Option<Mono>) -> RaftStatus {
    let revision = |id: &Option<LogId>| id.as_ref().map(|id| Revision(id.index));
    let leads = metrics.state == ServerState::Leader;
    let membership = &metrics.membership_config;
    RaftStatus {
        id: RaftId(metrics.id),
        term: Term(metrics.current_term),
        vote: (RaftId(metrics.vote.leader_id.voted_for), metrics.vote.committed),
        role: role(metrics.state),
        leader: metrics.current_leader.and_then(|id| leader_info(metrics, id)),
        last_log: metrics.last_log_index.map(Revision),
        committed: revision(&metrics.local_committed),
        applied: revision(&metrics.last_applied),
        snapshot: revision(&metrics.snapshot),
        purged: revision(&metrics.purged),
        members: members(metrics),
        changing: membership.get_joint_config().len() > 1,
        last_quorum_ack: metrics.last_quorum_acked.as_ref().map(|at| at.elapsed()),
        last_leader_contact: leader_heard.filter(|_| !leads).map(|at| now.since(at)),
    }
}

fn members(metrics: &Metrics) -> Vec<MemberStatus> {
    let voters: Vec<u64> = metrics.membership_config.voter_ids().collect();
    let matched = metrics.replication.clone().unwrap_or_default();
    let answered = metrics.heartbeat.clone().unwrap_or_default();
    let member = |(id, peer): (&u64, &Peer)| MemberStatus {
        id: RaftId(*id),
        name: peer.name.clone(),
        addr: peer.addr.clone(),
        api_addr: peer.api_addr.clone(),
        agent_addr: peer.agent_addr.clone(),
        version: peer.version.clone(),
        voter: voters.contains(id),
        matched: matched.get(id).and_then(|m| m.as_ref()).map(|id| Revision(id.index)),
        last_answer: answered.get(id).and_then(|a| a.as_ref()).map(|at| at.elapsed()),
    };
    let by_id: BTreeMap<_, _> = metrics.membership_config.nodes().collect();
    by_id.into_iter().map(member).collect()
}

fn role(state: ServerState) -> Role {
    match state {
        ServerState::Learner => Role::Learner,
        ServerState::Follower => Role::Follower,
        ServerState::Candidate => Role::Candidate,
        ServerState::Leader => Role::Leader,
        ServerState::Shutdown => Role::Stopping,
    }
}
