//! A cluster of managers' consensus parts in one process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use quorate_base::time::Timestamp;
use quorate_base::{Rng, TaskGroup, TaskKind};
use quorate_model::{ClusterVersion, Manager, Name, RaftId, Revision};
use quorate_pki::{Profile, Security};
use quorate_raft::{Node, ProposeError, RaftConfig, Setup, StartError, Timers};
use quorate_state::{Actor, Command, Envelope, State};
use quorate_storage::{LogOptions, MemoryDisk, OpenError, Opened, Storage};
use quorate_wire::store::digest;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

/// Nothing here takes longer unless it is stuck.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a condition without a channel is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Managers of one test process have an address of their own, so that tests in
/// parallel never meet.
fn loopback() -> IpAddr {
    let pid = std::process::id();
    IpAddr::V4(Ipv4Addr::new(127, (pid >> 16) as u8 | 1, (pid >> 8) as u8, (pid as u8).clamp(1, 254)))
}

/// Slow enough for a debug build on a busy machine.
pub(crate) fn config() -> RaftConfig {
    let timers = Timers {
        heartbeat: Duration::from_millis(100),
        election_min: Duration::from_millis(400),
        election_max: Duration::from_millis(800),
    };
    RaftConfig { timers, read_timeout: Duration::from_secs(3), ..RaftConfig::default() }
}

/// Where a manager keeps its data.
pub(crate) enum Disk {
    Memory(MemoryDisk),
    Sled(TempDir),
}

impl Disk {
    fn open(&self, name: &str, rng: &mut Rng) -> Result<Opened, OpenError> {
        // A small cache: lagging members are served from the store.
        let options = LogOptions { cache_bytes: 64 << 10, ..LogOptions::default() };
        match self {
            Disk::Memory(disk) => Storage::open_memory(disk, name, options, rng),
            Disk::Sled(dir) => Storage::open(dir.path(), name, options, rng),
        }
    }
}

/// A manager that runs, in a runtime of its own.
struct Running {
    node: Node,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) disk: Disk,
    running: Option<Running>,
}

pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) config: RaftConfig,
    pub(crate) rng: Rng,
    /// What every manager has as its list.
    pub(crate) listed: BTreeMap<String, String>,
    /// Members whose stores are expected to be found damaged at their next start.
    pub(crate) damaged: BTreeSet<usize>,
}

impl Cluster {
    pub(crate) fn new(size: usize, memory: bool, seed: u64, config: RaftConfig) -> Cluster {
        let member = |n: usize| Member {
            name: format!("m{}", n + 1),
            addr: SocketAddr::new(loopback(), 7401 + n as u16),
            disk: if memory {
                Disk::Memory(MemoryDisk::new())
            } else {
                Disk::Sled(tempfile::tempdir().unwrap())
            },
            running: None,
        };
        let members: Vec<_> = (0..size).map(member).collect();
        let listed = members.iter().map(|m| (m.name.clone(), m.addr.to_string())).collect();
        Cluster { members, config, rng: Rng::seeded(seed), listed, damaged: BTreeSet::new() }
    }

    /// A cluster of three on memory disks that has a leader.
    pub(crate) async fn three(seed: u64) -> Cluster {
        Cluster::started(Cluster::new(3, true, seed, config())).await
    }

    pub(crate) async fn started(mut cluster: Cluster) -> Cluster {
        for n in 0..cluster.members.len() {
            cluster.start(n).await;
        }
        cluster.leader().await;
        cluster
    }

    pub(crate) fn memory(&self, n: usize) -> MemoryDisk {
        match &self.members[n].disk {
            Disk::Memory(disk) => disk.clone(),
            Disk::Sled(_) => panic!("not a memory disk"),
        }
    }

    pub(crate) fn node(&self, n: usize) -> &Node {
        &self.members[n].running.as_ref().expect("the manager does not run").node
    }

    pub(crate) fn is_running(&self, n: usize) -> bool {
        self.members[n].running.is_some()
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|n| self.is_running(*n)).collect()
    }

    pub(crate) async fn start(&mut self, n: usize) {
        self.try_start(n).await.unwrap();
    }

    pub(crate) async fn try_start(&mut self, n: usize) -> Result<(), StartError> {
        assert!(!self.is_running(n));
        let (mut rng, member) = (self.rng.fork("member"), &self.members[n]);
        // The store of a manager that was just killed takes a moment to close.
        let opened = eventually("the store opens", || match member.disk.open(&member.name, &mut rng) {
            Ok(opened) => Some(opened),
            Err(OpenError::Locked { .. }) => None,
            Err(e) if e.to_string().contains("could not acquire lock") => None,
            Err(e) => panic!("{e}"),
        })
        .await;
        assert_eq!(opened.quarantined.is_some(), self.damaged.remove(&n), "{:?}", opened.quarantined);
        let setup = Setup {
            opened,
            addr: member.addr.to_string(),
            told: Default::default(),
            managers: self.listed.clone(),
            config: self.config.clone(),
            security: Security::PlaintextLoopback,
            rng,
        };
        let (stop, stopped) = oneshot::channel();
        let (started, ready) = oneshot::channel();
        let addr = member.addr;
        let thread = std::thread::Builder::new().name(member.name.clone());
        let thread = thread.spawn(move || serve(setup, addr, started, stopped)).unwrap();
        match ready.await.unwrap() {
            Ok(node) => {
                self.members[n].running = Some(Running { node, stop, thread });
                Ok(())
            }
            Err(e) => {
                thread.join().unwrap();
                Err(e)
            }
        }
    }

    /// Ends a manager as abruptly as SIGKILL does.
    pub(crate) fn kill(&mut self, n: usize) {
        let Running { node, stop, thread } = self.members[n].running.take().unwrap();
        drop((node, stop));
        thread.join().unwrap();
    }

    /// Kills a manager and cuts the power of its disk at the same moment.
    pub(crate) fn power_cut(&mut self, n: usize) {
        let seed = self.rng.next_u64();
        self.memory(n).power_cut(seed);
        self.kill(n);
    }

    /// Ends a manager in order.
    pub(crate) async fn stop(&mut self, n: usize) {
        self.node(n).shutdown().await;
        self.kill(n);
    }

    /// The running manager that leads and has applied everything of before.
    pub(crate) async fn leader(&self) -> usize {
        let lead = async {
            loop {
                let leader = self.running().into_iter().find(|n| self.node(*n).leadership().borrow().me);
                match leader {
                    Some(n) if self.node(n).read_index().await.is_ok() => return n,
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        };
        let status = || self.running().into_iter().map(|n| self.node(n).status()).collect::<Vec<_>>();
        tokio::time::timeout(DEADLINE, lead)
            .await
            .unwrap_or_else(|_| panic!("no leader is elected: {:#?}", status()))
    }

    pub(crate) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        self.running().into_iter().find(|n| *n != leader).unwrap()
    }

    /// Writes until it is acknowledged; true if some try may have been done before.
    pub(crate) async fn write(&self, id: u64) -> Revision {
        let deadline = tokio::time::timeout(DEADLINE, async {
            loop {
                let leader = self.leader().await;
                match self.node(leader).propose(vec![put(id)]).await {
                    Ok(replies) => return replies[0].0,
                    Err(ProposeError::TooLarge { .. }) => panic!("too large"),
                    Err(ProposeError::NotLeader { .. } | ProposeError::Unknown | ProposeError::Stopped) => {
                        tokio::time::sleep(LOOK).await;
                    }
                }
            }
        });
        deadline.await.unwrap_or_else(|_| panic!("write {id} was not acknowledged in time"))
    }

    pub(crate) async fn write_all(&self, ids: std::ops::Range<u64>) {
        for id in ids {
            self.write(id).await;
        }
    }

    /// Waits until all running managers have the same applied state, at `least` or later.
    pub(crate) async fn converged(&self, least: Revision) -> State {
        eventually("all managers have the same state", || {
            let views: Vec<State> = self.running().into_iter().map(|n| self.node(n).view()).collect();
            let first = views.first()?.clone();
            let same = views.iter().all(|v| v.applied() == first.applied());
            (same && first.applied().index >= least).then(|| {
                assert!(
                    views.iter().all(|v| digest(v) == digest(&first)),
                    "states differ at the same revision"
                );
                first
            })
        })
        .await
    }
}

impl Drop for Cluster {
    /// The next cluster of the same test has the same addresses.
    fn drop(&mut self) {
        for n in self.running() {
            self.kill(n);
        }
    }
}

/// What a killed manager leaves behind is dropped with its runtime.
fn serve(
    setup: Setup,
    addr: SocketAddr,
    started: oneshot::Sender<Result<Node, StartError>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let group = TaskGroup::new("member", |failure| eprintln!("{failure}"));
        let security = setup.security.clone();
        let listener = security.listen(Profile::Peer, addr).await.unwrap();
        match Node::start(setup, &group).await {
            Err(e) => drop(started.send(Err(e))),
            Ok(node) => {
                let router = security.server(Profile::Peer).add_service(node.service());
                group.spawn(TaskKind::critical("server"), router.serve_with_incoming(listener.incoming()));
                drop(started.send(Ok(node)));
                // The sender is dropped to stop us.
                let _ = stopped.await;
            }
        }
    });
}

/// A write whose trace in the state is a manager's record with that id.
pub(crate) fn put(id: u64) -> Envelope {
    let manager = Manager {
        id: RaftId(id),
        name: Name::parse("name", &format!("w{id}")).unwrap(),
        api_addr: String::new(),
        agent_addr: String::new(),
        raft_addr: String::new(),
        binary_version: String::new(),
        can_follow: ClusterVersion::V1,
        changed: Revision(0),
    };
    Envelope {
        proposed_at: Timestamp::from_millis(id),
        fence: None,
        actor: Actor::User(Arc::from("test")),
        request: None,
        trace: None,
        command: Command::UpsertManager { manager },
    }
}

/// The writes that a state holds.
pub(crate) fn written(state: &State) -> BTreeSet<u64> {
    state.managers().map(|m| m.id.0).collect()
}

/// Looks again and again until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, async {
        loop {
            match look() {
                Some(answer) => return answer,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    });
    waited.await.unwrap_or_else(|_| panic!("it did not happen in time that {what}"))
}

/// Acknowledged writes of a load that runs beside the faults.
pub(crate) struct Acknowledged(watch::Sender<BTreeSet<u64>>);

impl Acknowledged {
    pub(crate) fn new() -> Acknowledged {
        Acknowledged(watch::Sender::new(BTreeSet::new()))
    }

    pub(crate) fn add(&self, id: u64) {
        self.0.send_if_modified(|ids| ids.insert(id));
    }

    pub(crate) fn all(&self) -> BTreeSet<u64> {
        self.0.borrow().clone()
    }

    /// Waits until so many writes more than now are acknowledged.
    pub(crate) async fn more(&self, count: usize) {
        let target = self.0.borrow().len() + count;
        self.0.subscribe().wait_for(|ids| ids.len() >= target).await.unwrap();
    }
}
