//! Who belongs to the group, on the leader: joining, promotion, replacement of
//! an emptied member.

use std::collections::{BTreeMap, BTreeSet};

use openraft::errors::{ClientWriteError, RaftError};
use openraft::{ChangeMembers, Instant, ServerState};
use quorate_model::RaftId;
use quorate_wire::raft as pb;
use tonic::{Request, Status};

use crate::codec::get_member;
use crate::core::Core;
use crate::error::MembershipError;
use crate::service::{get_cluster, put_cluster};
use crate::status::{Metrics, leader_info};
use crate::types::{Peer, TypeConfig};

/// A learner this close to the leader's log is ready to vote.
const CAUGHT_UP: u64 = 1000;

/// What a join asks for, given who is a member.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It votes, at the address it says.
    Done,
    /// It is a member at another address.
    Move,
    /// Its old self, under another Raft id, has to be gone first.
    Add { old: u64, old_addr: String },
    /// It learns; once it has caught up it votes in the place of these.
    Promote { old: BTreeSet<u64> },
    /// Nobody of that name belongs to the group.
    Unknown,
}

fn step(members: &BTreeMap<u64, Peer>, voters: &BTreeSet<u64>, id: u64, peer: &Peer) -> Step {
    let namesakes = || members.iter().filter(|(other, p)| **other != id && p.name == peer.name);
    match members.get(&id) {
        Some(known) if known != peer => Step::Move,
        Some(_) if voters.contains(&id) => Step::Done,
        Some(_) => Step::Promote { old: namesakes().map(|(id, _)| *id).collect() },
        None => match namesakes().next() {
            Some((old, p)) => Step::Add { old: *old, old_addr: p.addr.clone() },
            None => Step::Unknown,
        },
    }
}

impl Core {
    /// Takes one step towards making the caller a voter.
    pub(crate) async fn join(&self, request: pb::JoinRequest) -> Result<pb::JoinResponse, Status> {
        let member = request.member.ok_or_else(|| Status::invalid_argument("the request names no member"))?;
        let header = self.header.get();
        let cluster = header.cluster.ok_or_else(|| Status::unavailable("this manager has no cluster yet"))?;
        if let Some(theirs) = get_cluster(&request.cluster)?.filter(|theirs| *theirs != cluster) {
            tracing::warn!(name = member.name, addr = member.addr, %theirs, ours = %cluster, "refused a manager of another cluster");
            return Err(Status::failed_precondition(format!(
                "manager {} belongs to cluster {theirs}, this is cluster {cluster}: correct its list of managers, or \
                 give it an empty data directory",
                member.name
            )));
        }
        let _one = self.changing.lock().await;
        let metrics = self.metrics();
        if metrics.state != ServerState::Leader {
            return Err(not_leader(&metrics));
        }
        if metrics.membership_config.get_joint_config().len() > 1 {
            return Err(Status::unavailable("another change of members is under way"));
        }
        let (id, peer) = get_member(member);
        let members = metrics.membership_config.nodes().map(|(id, p)| (*id, p.clone())).collect();
        let voters = metrics.membership_config.voter_ids().collect();
        let voter = match step(&members, &voters, id, &peer) {
            Step::Done => true,
            Step::Move => {
                self.change(ChangeMembers::SetNodes([(id, peer)].into())).await?;
                voters.contains(&id)
            }
            Step::Add { old, old_addr } => {
                self.refuse_if_alive(&metrics, old, &peer.name, &old_addr).await?;
                self.change(ChangeMembers::AddNodes([(id, peer)].into())).await?;
                false
            }
            Step::Promote { old } if self.has_caught_up(&metrics, id) => {
                let steps = vec![ChangeMembers::AddVoterIds([id].into()), ChangeMembers::RemoveVoters(old)];
                self.change(ChangeMembers::Batch(steps)).await?;
                true
            }
            Step::Promote { .. } => false,
            Step::Unknown => {
                return Err(Status::failed_precondition(format!(
                    "cluster {cluster} has no manager called {}: correct the name, or add it to the cluster first",
                    peer.name
                )));
            }
        };
        Ok(pb::JoinResponse { cluster: put_cluster(cluster), epoch: header.epoch.max(1), voter })
    }

    async fn change(&self, change: ChangeMembers<u64, Peer>) -> Result<(), Status> {
        self.change_members(change).await.map_err(|e| match e {
            MembershipError::NotLeader { .. } => not_leader(&self.metrics()),
            MembershipError::Refused(_) | MembershipError::Unknown(_) => Status::unavailable(e.to_string()),
        })
    }

    /// Changes the members; when this returns the change is committed.
    pub(crate) async fn change_members(
        &self,
        change: ChangeMembers<u64, Peer>,
    ) -> Result<(), MembershipError> {
        tracing::info!(?change, "changing the members of the group");
        let changed = self.raft.change_membership(change, false);
        let changed = tokio::time::timeout(self.config.propose_timeout, changed).await;
        match changed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(refusal(&self.metrics(), e)),
            Err(_) => Err(MembershipError::Unknown("it took too long".to_owned())),
        }
    }

    fn has_caught_up(&self, metrics: &Metrics, id: u64) -> bool {
        let matched = metrics.replication.as_ref().and_then(|r| r.get(&id)).and_then(|m| m.as_ref());
        let last = metrics.last_log_index.unwrap_or(0);
        matched.is_some_and(|m| last.saturating_sub(m.index) <= CAUGHT_UP)
    }

    /// Two managers with one name must not replace each other for ever.
    async fn refuse_if_alive(
        &self,
        metrics: &Metrics,
        old: u64,
        name: &str,
        addr: &str,
    ) -> Result<(), Status> {
        let answered = metrics.heartbeat.as_ref().and_then(|h| h.get(&old)).and_then(|at| at.as_ref());
        let recent = answered.is_some_and(|at| at.elapsed() < self.silence());
        let alive = match self.identify(addr).await {
            Some(answer) => answer.raft_id == old,
            None => recent,
        };
        if alive {
            return Err(Status::unavailable(format!(
                "manager {name} is alive at {addr} under Raft id {old:016x}: stop it, or correct the name of the new one"
            )));
        }
        Ok(())
    }

    /// Asks who is at `addr`; none if nobody answers in time.
    pub(crate) async fn identify(&self, addr: &str) -> Option<pb::IdentifyResponse> {
        let mut client = self.peers.stranger(addr).ok()?;
        let call = client.identify(Request::new(pb::IdentifyRequest { name: self.peer.name.clone() }));
        let answer = tokio::time::timeout(self.config.read_timeout, call).await.ok()?;
        Some(answer.ok()?.into_inner())
    }
}

fn refusal(metrics: &Metrics, e: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> MembershipError {
    match e {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            MembershipError::NotLeader { leader: forward.leader_id.and_then(|id| leader_info(metrics, id)) }
        }
        RaftError::APIError(e @ ClientWriteError::LogEntryDiscarded(_)) => {
            MembershipError::Unknown(e.to_string())
        }
        RaftError::APIError(e) => MembershipError::Refused(e.to_string()),
        RaftError::Fatal(e) => MembershipError::Unknown(e.to_string()),
    }
}

/// Metadata with the address of the leader, on answers of others.
pub(crate) const LEADER: &str = "quorate-leader";

fn not_leader(metrics: &Metrics) -> Status {
    let leader =
        metrics.current_leader.filter(|id| *id != metrics.id).and_then(|id| leader_info(metrics, id));
    let mut status = Status::unavailable("this manager does not lead");
    if let Some(addr) = leader.and_then(|l| l.addr.parse().ok()) {
        status.metadata_mut().insert(LEADER, addr);
    }
    status
}

/// A change of members that a caller may ask for.
pub(crate) fn replace_voters(voters: &[RaftId]) -> ChangeMembers<u64, Peer> {
    ChangeMembers::ReplaceAllVoters(voters.iter().map(|id| id.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, addr: &str) -> Peer {
        Peer { name: name.to_owned(), addr: addr.to_owned(), ..Peer::default() }
    }

    #[test]
    fn a_join_takes_the_step_that_fits() {
        let members = BTreeMap::from([(1, peer("a", "a:1")), (2, peer("b", "b:1")), (9, peer("b", "b:1"))]);
        let voters = BTreeSet::from([1, 2]);
        let step = |id, name: &str, addr: &str| step(&members, &voters, id, &peer(name, addr));
        assert_eq!(step(1, "a", "a:1"), Step::Done);
        assert_eq!(step(1, "a", "a:2"), Step::Move);
        assert_eq!(step(5, "a", "x:1"), Step::Add { old: 1, old_addr: "a:1".to_owned() });
        assert_eq!(step(9, "b", "b:1"), Step::Promote { old: [2].into() });
        assert_eq!(step(5, "c", "x:1"), Step::Unknown);
    }
}
