//! Managers of one test process, on real ports and real stores.

use std::{collections::BTreeMap, path::Path, time::Duration};

use quorate_base::{tasks::TaskGroup, time::Clock};
use quorate_manager::{Address, Addresses, Listeners, Manager, ManagerConfig, StartError};
use quorate_model::{Name, Settings};
use quorate_pki::Security;
use quorate_raft::RaftConfig;
use quorate_wire::api::{
    cluster_service_client::ClusterServiceClient, job_service_client::JobServiceClient,
    node_service_client::NodeServiceClient, task_service_client::TaskServiceClient,
};
use tempfile::TempDir;
use tonic::transport::Channel;

/// Longest wait for a condition; a test that needs it is broken anyway.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One manager with what is needed to start it again.
pub(crate) struct Member {
    pub(crate) name: Name,
    pub(crate) addresses: Addresses,
    config: ManagerConfig,
    group: TaskGroup,
    manager: Option<Manager>,
}

/// Three managers or one.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    _dir: TempDir,
}

impl Cluster {
    /// Starts `count` managers and waits until they have a leader that serves.
    pub(crate) async fn start(count: usize) -> Self {
        Self::start_with(count, |_| {}).await
    }

    /// The same, each configured by `change`.
    pub(crate) async fn start_with(count: usize, change: impl Fn(&mut ManagerConfig)) -> Self {
        let mut cluster = Self::prepare(count).await;
        for member in 0..count {
            change(&mut cluster.members[member].config);
            cluster.run(member).await;
        }
        cluster.leader().await;
        cluster
    }

    /// Ports and folders for `count` managers, none of them running.
    pub(crate) async fn prepare(count: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let mut members = Vec::new();
        for i in 1..=count {
            let name: Name = format!("m{i}").parse().unwrap();
            let config = config(&name, dir.path());
            let listeners = Listeners::bind(&config).await.unwrap();
            members.push((name, config, listeners));
        }
        let peers: BTreeMap<Name, String> =
            members.iter().map(|(name, _, l)| (name.clone(), l.addresses().raft.to_string())).collect();
        let members = members
            .into_iter()
            .map(|(name, mut config, listeners)| {
                let addresses = listeners.addresses();
                config.managers = peers.clone();
                config.api = Address::at(addresses.api);
                config.agents = Address::at(addresses.agents);
                config.raft = Address::at(addresses.raft);
                config.admin = Address::at(addresses.admin);
                Member { name, addresses, config, group: group(), manager: None }
            })
            .collect();
        Self { members, _dir: dir }
    }

    /// Starts a member that does not run.
    pub(crate) async fn run(&mut self, at: usize) {
        self.try_run(at).await.unwrap();
    }

    /// The same, where it may be refused.
    pub(crate) async fn try_run(&mut self, at: usize) -> Result<(), StartError> {
        let member = &mut self.members[at];
        assert!(member.manager.is_none(), "{} runs already", member.name);
        member.group = group();
        let config = member.config.clone();
        member.manager = Some(Manager::start(config, Clock::system(), member.group.clone()).await?);
        Ok(())
    }

    /// A member's data directory.
    pub(crate) fn data_dir(&self, at: usize) -> &Path {
        &self.members[at].config.data_dir
    }

    /// Stops a member.
    pub(crate) async fn stop(&mut self, at: usize) {
        if let Some(manager) = self.members[at].manager.take() {
            manager.shutdown().await;
        }
    }

    /// Waits for a leader whose first writes every running member has, and returns its place.
    pub(crate) async fn leader(&self) -> usize {
        until("a leader that serves", async || {
            let running = || self.members.iter().filter_map(|m| m.manager.as_ref());
            let all = running().all(|m| m.node().view().managers().count() == self.members.len());
            let leads = |m: &Member| m.manager.as_ref().is_some_and(|m| m.node().leadership().borrow().me);
            self.members.iter().position(leads).filter(|_| all)
        })
        .await
    }

    /// A running member that does not lead.
    pub(crate) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.members.len()).find(|i| *i != leader && self.members[*i].manager.is_some()).unwrap()
    }

    pub(crate) fn manager(&self, at: usize) -> &Manager {
        self.members[at].manager.as_ref().unwrap()
    }

    pub(crate) fn jobs(&self, at: usize) -> JobServiceClient<Channel> {
        JobServiceClient::new(channel(&self.members[at].addresses.api.to_string()))
    }

    pub(crate) fn tasks(&self, at: usize) -> TaskServiceClient<Channel> {
        TaskServiceClient::new(channel(&self.members[at].addresses.api.to_string()))
    }

    pub(crate) fn nodes(&self, at: usize) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(channel(&self.members[at].addresses.api.to_string()))
    }

    pub(crate) fn cluster(&self, at: usize) -> ClusterServiceClient<Channel> {
        ClusterServiceClient::new(channel(&self.members[at].addresses.api.to_string()))
    }
}

/// A lazy channel to a loopback address.
pub(crate) fn channel(address: &str) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Asks again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

fn group() -> TaskGroup {
    TaskGroup::new("test", |failure| eprintln!("{failure}"))
}

fn config(name: &Name, dir: &Path) -> ManagerConfig {
    let any = || Address::at("127.0.0.1:0".parse().unwrap());
    ManagerConfig {
        name: name.clone(),
        data_dir: dir.join(name.as_str()),
        api: any(),
        agents: any(),
        raft: any(),
        admin: any(),
        managers: BTreeMap::new(),
        consensus: RaftConfig::default(),
        security: Security::PlaintextLoopback,
        settings: Settings { node_lease: Duration::from_secs(3), ..Settings::default() },
        resync: quorate_manager::RESYNC,
        version: "test".to_owned(),
        log: None,
    }
}
