//! What the handle, the service and the tasks of one node share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::errors::{LinearizableReadError, RaftError};
use openraft::{Instant as _, ReadPolicy};
use quorate_base::sync::lock;
use quorate_base::time::Mono;
use quorate_base::{Clock, ClusterId};
use quorate_storage::{HeaderStore, StorageError, blocking};
use quorate_wire::raft as pb;
use tokio::sync::{Notify, watch};
use tonic::Request;

use crate::config::RaftConfig;
use crate::error::{FatalError, ReadError};
use crate::machine::Published;
use crate::peers::{Lane, Peers};
use crate::status::{self, LeaderInfo, Leadership, Metrics};
use crate::types::{Peer, Raft, TypeConfig};

/// One node's parts.
pub(crate) struct Core {
    pub(crate) raft: Raft,
    pub(crate) published: Arc<Published>,
    pub(crate) header: HeaderStore,
    pub(crate) peers: Arc<Peers>,
    pub(crate) config: RaftConfig,
    pub(crate) clock: Clock,
    /// Raft id, and how this node is called and reached.
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    /// The configured managers: name and Raft address.
    pub(crate) listed: BTreeMap<String, String>,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) fatal: watch::Sender<Option<FatalError>>,
    /// One change of members at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    leader_heard: Mutex<Option<Mono>>,
    /// The term that this node led last, and since when.
    leading: Mutex<Option<(u64, Mono)>>,
    /// A leader was heard while none counted as known, or was seen dead.
    pub(crate) heard_again: Notify,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// What a core is made of, beyond what it makes itself.
pub(crate) struct Parts {
    pub(crate) raft: Raft,
    pub(crate) published: Arc<Published>,
    pub(crate) header: HeaderStore,
    pub(crate) peers: Arc<Peers>,
    pub(crate) config: RaftConfig,
    pub(crate) peer: Peer,
    pub(crate) listed: BTreeMap<String, String>,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Core {
        let Parts { raft, published, header, peers, config, peer, listed } = parts;
        let id = header.get().raft_id;
        let leadership = watch::Sender::new(Leadership::default());
        Core {
            raft,
            published,
            header,
            peers,
            config,
            clock: Clock::system(),
            id,
            peer,
            listed,
            leadership,
            fatal: watch::Sender::new(None),
            changing: tokio::sync::Mutex::new(()),
            leader_heard: Mutex::new(None),
            leading: Mutex::new(None),
            heard_again: Notify::new(),
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        status::current(&self.raft)
    }

    /// Notes, durably, the cluster that this manager belongs to from now on.
    pub(crate) async fn adopt(&self, cluster: ClusterId, epoch: u64) -> Result<(), StorageError> {
        let header = self.header.clone();
        blocking("quorate-header", move || header.join_cluster(cluster, epoch)).await
    }

    /// Notes that the leader was heard, if it was accepted as such.
    pub(crate) fn heard(&self, response: &pb::AppendResponse) {
        if !matches!(response.result, Some(pb::append_response::Result::Higher(_)) | None) {
            *lock(&self.leader_heard) = Some(self.clock.monotonic());
            if self.leadership.borrow().leader.is_none() {
                self.heard_again.notify_one();
            }
        }
    }

    /// The leader was seen dead: it does not count as known any more.
    pub(crate) fn forget_leader(&self) {
        *lock(&self.leader_heard) = None;
        self.heard_again.notify_one();
    }

    pub(crate) fn leader_heard(&self) -> Option<Mono> {
        *lock(&self.leader_heard)
    }

    /// Records why this node has to stop; the first reason counts.
    pub(crate) fn fail(&self, error: FatalError) {
        self.fatal.send_if_modified(|fatal| {
            let first = fatal.is_none();
            fatal.get_or_insert(error);
            first
        });
    }

    /// A round with a quorum, which confirms that this node still leads; the log
    /// index that a read has to wait for. `None` as error: it took too long.
    pub(crate) async fn confirm_leadership(
        &self,
    ) -> Result<u64, Option<RaftError<TypeConfig, LinearizableReadError<TypeConfig>>>> {
        let round = self.raft.get_read_linearizer(ReadPolicy::ReadIndex);
        let linearizer = tokio::time::timeout(self.config.read_timeout, round).await.map_err(|_| None)?;
        Ok(linearizer.map_err(Some)?.read_log_id().index())
    }

    /// The log index for a linearizable read: from this node if it leads, else
    /// from the leader.
    pub(crate) async fn read_index(&self) -> Result<u64, ReadError> {
        let leader = match self.confirm_leadership().await {
            Ok(index) => return Ok(index),
            Err(None) => return Err(ReadError::Timeout),
            Err(Some(RaftError::Fatal(_))) => return Err(ReadError::Stopped),
            Err(Some(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) => {
                return Err(ReadError::Timeout);
            }
            Err(Some(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                forward.leader_id.zip(forward.leader_node).filter(|(id, _)| *id != self.id)
            }
        };
        let Some((id, peer)) = leader else { return Err(ReadError::NoLeader) };
        let Ok(mut client) = self.peers.client(id, &peer.addr, Lane::Control) else {
            return Err(ReadError::NoLeader);
        };
        let call = client.read_index(Request::new(pb::ReadIndexRequest {}));
        match tokio::time::timeout(self.config.read_timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner().index),
            Ok(Err(status)) => {
                tracing::debug!(%status, leader = peer.name, "read index refused");
                Err(ReadError::NoLeader)
            }
            Err(_) => Err(ReadError::Timeout),
        }
    }

    /// The leader, unless that is this node.
    pub(crate) fn other_leader(&self) -> Option<LeaderInfo> {
        self.leadership.borrow().leader.clone().filter(|leader| leader.id.0 != self.id)
    }

    /// Who leads, and how long until a silent leader no longer counts as known.
    ///
    /// A stored vote still names the leader of long ago: whom this node has not
    /// heard of late it does not name.
    pub(crate) fn judge_leadership(&self, metrics: &Metrics) -> (Leadership, Option<Duration>) {
        let mut leadership = status::leadership(metrics);
        let quiet = if leadership.me {
            if metrics.membership_config.voter_ids().count() < 2 {
                return (leadership, None);
            }
            Some(self.unconfirmed(metrics))
        } else if leadership.leader.is_some() {
            let now = self.clock.monotonic();
            self.leader_heard().map(|at| now.since(at))
        } else {
            return (leadership, None);
        };
        let left = quiet.and_then(|quiet| self.silence().checked_sub(quiet)).filter(|left| !left.is_zero());
        if left.is_none() {
            (leadership.leader, leadership.me) = (None, false);
        }
        (leadership, left)
    }

    /// How long this leader has gone without an answer of a quorum. openraft
    /// lets it call itself leader for ever; its agents and clients must not.
    fn unconfirmed(&self, metrics: &Metrics) -> Duration {
        let now = self.clock.monotonic();
        let mut leading = lock(&self.leading);
        let term = metrics.current_term;
        let since = leading.filter(|(led, _)| *led == term).map_or(now, |(_, since)| since);
        *leading = Some((term, since));
        let leading_for = now.since(since);
        metrics.last_quorum_acked.as_ref().map_or(leading_for, |at| at.elapsed().min(leading_for))
    }

    /// How long a member may be silent before it counts as gone.
    pub(crate) fn silence(&self) -> Duration {
        self.config.timers.election_max * 3
    }
}
