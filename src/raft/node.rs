//! One member of the group, as the manager uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use openraft::ChangeMembers;
use openraft::errors::{ClientWriteError, RaftError};
use quorate_base::{ClusterId, Rng, TaskGroup, TaskKind};
use quorate_model::{RaftId, Revision};
use quorate_pki::Security;
use quorate_state::{Envelope, Receipt, Rejection, State};
use quorate_storage::{LogStats, Opened, Storage, blocking};
use quorate_wire::raft::raft_service_server::RaftServiceServer;
use quorate_wire::store::encode_batch;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

use crate::config::RaftConfig;
use crate::core::{Core, Parts};
use crate::death;
use crate::error::{FatalError, MembershipError, ProposeError, ReadError, StartError};
use crate::formation;
use crate::leadership;
use crate::log::Log;
use crate::machine::{StateMachine, Update};
use crate::membership::replace_voters;
use crate::network::Network;
use crate::peers::{MESSAGE_BYTES, Peers};
use crate::service::Service;
use crate::status::{self, Leadership, RaftStatus};
use crate::types::{Commands, Peer, Raft};

/// Reads that may wait for one round.
const READ_QUEUE: usize = 4096;
/// Broken streams that may wait to be looked at.
const BROKEN_QUEUE: usize = 8;
/// A planned hand-over of leadership is tried so often, for so long each time.
const HAND_OVER_TRIES: u32 = 6;
const HAND_OVER_TRY: Duration = Duration::from_millis(150);

/// The gRPC service of a node, for the Raft listener.
pub type RaftServer = RaftServiceServer<Service>;

/// One envelope's answer: the revision that it speaks of, and the outcome.
pub type Reply = (Revision, Result<Receipt, Rejection>);

/// What a manager tells the others of itself; part of the membership, so that every manager can name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// `host:port` of its API listener.
    pub api_addr: String,
    /// `host:port` of its agent listener.
    pub agent_addr: String,
    /// Version of its binary.
    pub version: String,
}

/// What a node is started with.
#[derive(Debug)]
pub struct Setup {
    /// The opened store; its header says the node's name and Raft id.
    pub opened: Opened,
    /// `host:port` under which the other managers reach this one.
    pub addr: String,
    /// What the other managers are told besides.
    pub told: Told,
    /// The initial managers: name and Raft address, this one included, the same
    /// on all of them.
    pub managers: BTreeMap<String, String>,
    /// Settings.
    pub config: RaftConfig,
    /// How connections are secured.
    pub security: Security,
    /// For cluster ids and waiting times.
    pub rng: Rng,
}

/// Who this node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Identity of its disk.
    pub id: RaftId,
    /// Its manager's name.
    pub name: String,
    /// `host:port` of its Raft listener.
    pub addr: String,
    /// Its cluster, once it has one.
    pub cluster: Option<ClusterId>,
    /// The cluster's epoch.
    pub epoch: u64,
}

/// A running node. A cheap handle.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
    storage: Storage,
    reads: mpsc::Sender<oneshot::Sender<Result<u64, ReadError>>>,
    receiving: Arc<Semaphore>,
    broken: mpsc::Sender<u64>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Node {
    /// Starts a node on an opened store. It recovers, and comes into its cluster
    /// in the background: serve [`Node::service`] right after this.
    ///
    /// Tasks run in `group`; the node has to be shut down before the group.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(setup: Setup, group: &TaskGroup) -> Result<Node, StartError> {
        let Setup { opened, addr, told, managers, config, security, rng } = setup;
        let Opened { storage, recovered, .. } = opened;
        let header = storage.header.get();
        let Told { api_addr, agent_addr, version } = told;
        let peer = Peer { name: header.node.clone(), addr, api_addr, agent_addr, version };
        if managers.get(&peer.name) != Some(&peer.addr) {
            let list = managers.into_keys().collect();
            return Err(StartError::NotListed { name: peer.name, addr: peer.addr, list });
        }
        let settings = Arc::new(config.build(RaftId(header.raft_id))?);
        let failed = |e: std::io::Error| StartError::Core { reason: e.to_string() };
        let log = Log::new(storage.log.clone(), &recovered, config.batch_bytes).map_err(failed)?;
        let (images, queue) = (storage.images.clone(), config.update_queue);
        let machine = blocking("quorate-image", move || StateMachine::open(images, queue)).await?;
        let published = machine.published();
        let peers = Arc::new(Peers::new(security, storage.header.clone()));
        let network = Network { peers: peers.clone(), me: header.raft_id, stall: config.stall_timeout };
        let raft = Raft::new(header.raft_id, settings, network, log, machine).await;
        let raft = raft.map_err(|e| StartError::Core { reason: e.to_string() })?;
        let header = storage.header.clone();
        let core =
            Arc::new(Core::new(Parts { raft, published, header, peers, config, peer, listed: managers }));
        let (reads, queue) = mpsc::channel(READ_QUEUE);
        let (broken, streams) = mpsc::channel(BROKEN_QUEUE);
        let node = Node { core, storage, reads, receiving: Arc::new(Semaphore::new(1)), broken };
        node.spawn_tasks(group, queue, rng);
        group.spawn(TaskKind::critical("raft-death"), death::watch(node.core.clone(), streams));
        group.spawn(TaskKind::critical("raft-disk"), watch_disk(node.clone()));
        Ok(node)
    }

    fn spawn_tasks(
        &self,
        group: &TaskGroup,
        reads: mpsc::Receiver<oneshot::Sender<Result<u64, ReadError>>>,
        rng: Rng,
    ) {
        let core = self.core.clone();
        group.spawn(TaskKind::critical("raft-leadership"), async move { leadership::watch(&core).await });
        let core = self.core.clone();
        group.spawn(TaskKind::critical("raft-reads"), async move { serve_reads(&core, reads).await });
        let (core, log) = (self.core.clone(), self.storage.log.clone());
        group.spawn(TaskKind::critical("raft-fatal"), async move {
            let error = tokio::select! {
                e = log.failed() => FatalError::Storage(e),
                halt = core.published.halted() => FatalError::Halt(halt),
            };
            core.fail(error);
            Ok::<(), FatalError>(())
        });
        let core = self.core.clone();
        group.spawn(TaskKind::critical("raft-formation"), async move {
            let formed = formation::run(core.clone(), rng).await;
            formed.inspect_err(|e| core.fail(e.clone()))
        });
    }

    /// The service that the other managers call.
    pub fn service(&self) -> RaftServer {
        let service = Service {
            core: self.core.clone(),
            header: self.storage.header.clone(),
            images: self.storage.images.clone(),
            stall: self.core.config.stall_timeout,
            receiving: self.receiving.clone(),
            broken: self.broken.clone(),
        };
        RaftServiceServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES)
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        let header = self.storage.header.get();
        Identity {
            id: RaftId(header.raft_id),
            name: header.node,
            addr: self.core.peer.addr.clone(),
            cluster: header.cluster,
            epoch: header.epoch,
        }
    }

    /// Proposes envelopes as one log entry and waits until it is applied here.
    /// Only the leader can; see [`ProposeError`] for what a failure means.
    /// Dropping the future leaves the outcome unknown.
    pub async fn propose(&self, envelopes: Vec<Envelope>) -> Result<Vec<Reply>, ProposeError> {
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = encode_batch(&envelopes);
        let limit = self.core.config.proposal_bytes;
        if bytes.len() > limit {
            return Err(ProposeError::TooLarge { bytes: bytes.len(), limit });
        }
        let write = self.core.raft.client_write(Commands(bytes));
        match tokio::time::timeout(self.core.config.propose_timeout, write).await {
            Ok(Ok(response)) => Ok(response.data.0),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward)))) => {
                let metrics = self.core.metrics();
                let leader = forward.leader_id.filter(|id| *id != self.core.id);
                Err(ProposeError::NotLeader {
                    leader: leader.and_then(|id| status::leader_info(&metrics, id)),
                })
            }
            Ok(Err(RaftError::Fatal(_))) => Err(ProposeError::Stopped),
            // Only changes of members give the other errors; nothing is known then.
            Ok(Err(RaftError::APIError(_))) | Err(_) => Err(ProposeError::Unknown),
        }
    }

    /// Confirms with a quorum what a linearizable read has to see, and waits
    /// until this node's state has it. All who wait share one round. Works on
    /// any node; on the leader it is also the barrier after an election.
    pub async fn read_index(&self) -> Result<Revision, ReadError> {
        let (reply, answer) = oneshot::channel();
        self.reads.send(reply).await.map_err(|_| ReadError::Stopped)?;
        let revision = Revision(answer.await.map_err(|_| ReadError::Stopped)??);
        let applied = self.wait_applied(revision);
        tokio::time::timeout(self.core.config.read_timeout, applied)
            .await
            .map_err(|_| ReadError::Timeout)??;
        Ok(revision)
    }

    /// A snapshot of the state; O(1).
    pub fn view(&self) -> State {
        self.core.published.view()
    }

    /// The revision of the state, as it grows.
    pub fn applied(&self) -> watch::Receiver<Revision> {
        self.core.published.applied()
    }

    /// Waits until the state includes `revision`.
    pub async fn wait_applied(&self, revision: Revision) -> Result<(), ReadError> {
        let mut applied = self.applied();
        applied.wait_for(|r| *r >= revision).await.map(drop).map_err(|_| ReadError::Stopped)
    }

    /// Changes of the state from now on. A receiver that lags too far is told
    /// so, and has to start over from [`Node::view`].
    pub fn updates(&self) -> broadcast::Receiver<Update> {
        self.core.published.updates()
    }

    /// Who leads, as this node sees it.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.core.leadership.subscribe()
    }

    /// Everything about the node and its group.
    pub fn status(&self) -> RaftStatus {
        status::status(&self.core.metrics(), self.core.clock.monotonic(), self.core.leader_heard())
    }

    /// Counters of the log.
    pub fn log_stats(&self) -> LogStats {
        self.storage.log.stats()
    }

    /// Resolves when the node can't go on: the process has to end then, and say why.
    pub async fn fatal(&self) -> FatalError {
        let mut fatal = self.core.fatal.subscribe();
        loop {
            if let Some(e) = fatal.borrow_and_update().clone() {
                // Consensus ends when its store fails, and says so in its own words.
                let cause = self.storage.log.failed().now_or_never();
                return cause.map_or(e, FatalError::Storage);
            }
            // The sender lives in `core`, which we hold: this can't end early.
            let _ = fatal.changed().await;
        }
    }

    /// Adds a member without a vote, on the leader.
    pub async fn add_learner(&self, id: RaftId, name: &str, addr: &str) -> Result<(), MembershipError> {
        let peer = Peer { name: name.to_owned(), addr: addr.to_owned(), ..Peer::default() };
        self.core.change_members(ChangeMembers::AddNodes([(id.0, peer)].into())).await
    }

    /// Makes exactly these members voters, on the leader; voters that are not
    /// among them leave the group.
    pub async fn change_voters(&self, voters: &[RaftId]) -> Result<(), MembershipError> {
        self.core.change_members(replace_voters(voters)).await
    }

    /// Builds an image now, whatever the log's length.
    pub async fn build_image(&self) -> Result<(), FatalError> {
        self.core.raft.trigger().snapshot().await.map_err(|e| FatalError::Core(e.to_string()))
    }

    /// Hands leadership to the voter that has most of the log among those that
    /// answer, if this node leads and there is one; true once it does not lead
    /// any more.
    pub async fn hand_over(&self) -> bool {
        let mut leadership = self.leadership();
        for _ in 0..HAND_OVER_TRIES {
            if !leadership.borrow().me {
                return true;
            }
            let Some(heir) = self.readiest_voter() else { return false };
            // A message that is lost, or comes before the heir is ready, is repeated.
            if self.core.raft.trigger().transfer_leader(heir).await.is_err() {
                return false;
            }
            let handed = leadership.wait_for(|l| !l.me);
            if tokio::time::timeout(HAND_OVER_TRY, handed).await.is_ok_and(|l| l.is_ok()) {
                return true;
            }
        }
        false
    }

    /// The other voter that has most of the log and answered of late.
    fn readiest_voter(&self) -> Option<u64> {
        let status = self.status();
        let recent = |age: Option<Duration>| age.is_some_and(|age| age < self.core.silence());
        let others = status.members.iter().filter(|m| m.voter && m.id != status.id && recent(m.last_answer));
        others.max_by_key(|m| m.matched).map(|m| m.id.0)
    }

    /// Hands leadership over if possible, stops, and closes the store.
    pub async fn shutdown(&self) {
        self.hand_over().await;
        if let Err(error) = self.core.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not end in order");
        }
        self.storage.clone().close().await;
    }
}

/// Hands leadership over while this node's disk hangs.
async fn watch_disk(node: Node) -> Result<(), FatalError> {
    let limit = node.core.config.disk_stall;
    loop {
        tokio::time::sleep(limit / 4).await;
        let hangs_for = node.log_stats().flushing_for;
        if hangs_for >= limit && node.leadership().borrow().me {
            tracing::warn!(?hangs_for, "the disk hangs; handing leadership over");
            node.hand_over().await;
        }
    }
}

/// One round with a quorum for all reads that wait: a read that comes during a
/// round waits for the next one, which begins after it.
async fn serve_reads(
    core: &Core,
    mut reads: mpsc::Receiver<oneshot::Sender<Result<u64, ReadError>>>,
) -> Result<(), FatalError> {
    let mut waiting = Vec::new();
    while reads.recv_many(&mut waiting, READ_QUEUE).await > 0 {
        let result = core.read_index().await;
        for reply in waiting.drain(..) {
            // The reader may have given up.
            let _ = reply.send(result.clone());
        }
    }
    Ok(())
}
