//! Puts a manager together: bind first, build, spawn last.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use quorate_base::{
    Rng,
    tasks::{ShutdownReport, TaskGroup, TaskKind},
    time::Clock,
};
use quorate_pki::{ListenError, Listener, Profile};
use quorate_raft::{FatalError, Node, Setup, StartError as ConsensusError, Told};
use quorate_storage::{LogOptions, OpenError, Opened, Storage};
use quorate_telemetry::{metrics, recorder};
use quorate_wire::{
    agent::agent_service_server::AgentServiceServer,
    api::{
        cluster_service_server::ClusterServiceServer, job_service_server::JobServiceServer,
        node_service_server::NodeServiceServer, task_service_server::TaskServiceServer,
        watch_service_server::WatchServiceServer,
    },
};
use tokio::sync::watch;
use tonic::service::Routes;
use tracing::{error, info, warn};

use crate::{
    admin,
    api::{ClusterApi, JobApi, NodeApi, Relays, TaskApi, WatchApi},
    config::ManagerConfig,
    core::{Core, Leading},
    dispatcher::Dispatcher,
    duties::Duties,
    health, http,
    hub::Hub,
    measures,
    proposer::Proposer,
    routing::Router,
    rpc,
};

/// Largest message of a client: a specification and room around it.
pub(crate) const MAX_API_MESSAGE: usize = 4 << 20;
/// Largest message of an agent.
const MAX_AGENT_MESSAGE: usize = 16 << 20;
/// How long an orderly stop may take.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// How long the cause of a task's failure may take to be known.
const CAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its data directory cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The cluster's only manager has lost its data.
    #[error(
        "the data of this cluster's only manager is damaged, and no other manager has a copy: what was found is kept in \
         {}; restore the data directory {} from a copy, or empty it to begin a new cluster",
        .path.join("quarantine").display(), .path.display()
    )]
    OnlyCopyLost {
        /// Its data directory.
        path: PathBuf,
    },
    /// Consensus does not start.
    #[error(transparent)]
    Consensus(#[from] ConsensusError),
    /// Metrics cannot be exported.
    #[error(transparent)]
    Metrics(#[from] recorder::InstallError),
    /// The description of the API cannot be served.
    #[error("the reflection service does not start: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A running manager.
pub struct Manager {
    core: Core,
    group: TaskGroup,
    consensus: TaskGroup,
    addresses: Addresses,
    data_dir: PathBuf,
}

/// Where it really listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// For clients.
    pub api: SocketAddr,
    /// For agents.
    pub agents: SocketAddr,
    /// For managers.
    pub raft: SocketAddr,
    /// For probes and metrics.
    pub admin: SocketAddr,
}

/// The open ports of a manager; connections queue until it serves.
pub struct Listeners {
    api: Listener,
    agents: Listener,
    raft: Listener,
    admin: Listener,
}

impl Listeners {
    /// Opens all four.
    ///
    /// # Errors
    /// [`ListenError`] of the first that cannot be had.
    pub async fn bind(config: &ManagerConfig) -> Result<Self, ListenError> {
        let security = &config.security;
        Ok(Self {
            api: security.listen(Profile::Api, config.api.listen).await?,
            agents: security.listen(Profile::Agent, config.agents.listen).await?,
            raft: security.listen(Profile::Peer, config.raft.listen).await?,
            admin: security.listen(Profile::Admin, config.admin.listen).await?,
        })
    }

    /// Where they are: the real ports if port 0 was asked for.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses {
            api: self.api.local_addr(),
            agents: self.agents.local_addr(),
            raft: self.raft.local_addr(),
            admin: self.admin.local_addr(),
        }
    }
}

impl Manager {
    /// Binds every port, opens the store, starts to serve. The cluster forms, or is joined, afterwards.
    ///
    /// # Errors
    /// [`StartError`]: the first thing that is wrong; nothing keeps running.
    pub async fn start(config: ManagerConfig, clock: Clock, group: TaskGroup) -> Result<Self, StartError> {
        let listeners = Listeners::bind(&config).await?;
        Self::start_on(config, listeners, clock, group).await
    }

    /// The same on ports that are open already.
    ///
    /// # Errors
    /// As [`Manager::start`].
    pub async fn start_on(
        config: ManagerConfig,
        listeners: Listeners,
        clock: Clock,
        group: TaskGroup,
    ) -> Result<Self, StartError> {
        let metrics = recorder::install()?;
        metrics::build_info(&config.version, option_env!("QUORATE_COMMIT").unwrap_or("unknown"), true);
        let addresses = listeners.addresses();
        let mut rng = Rng::from_entropy();
        let opened = open_store(&config, rng.fork("raft id")).await?;
        let setup = Setup {
            opened,
            addr: config.raft.told(addresses.raft),
            told: Told {
                api_addr: config.api.told(addresses.api),
                agent_addr: config.agents.told(addresses.agents),
                version: config.version.clone(),
            },
            managers: config.managers.iter().map(|(name, addr)| (name.to_string(), addr.clone())).collect(),
            config: config.consensus.clone(),
            security: config.security.clone(),
            rng,
        };
        // Its tasks outlive the rest: what stops still needs it.
        let consensus = TaskGroup::new("consensus", quorate_telemetry::logging::log_task_failure);
        let node = Node::start(setup, &consensus).await?;
        let proposer = Proposer::start(node.clone(), clock.clone(), &group);
        let core =
            Core { name: config.name.clone(), node, proposer, security: config.security.clone(), clock };
        let (leading, duties_on) = watch::channel::<Option<Leading>>(None);
        let dispatcher = Dispatcher::new(core.clone(), duties_on, config.resync);
        serve(&config, &core, &dispatcher, listeners, metrics, &group).await?;
        Duties::start(core.clone(), dispatcher, config.settings.clone(), leading, &group);
        info!(manager = %core.name, api = %addresses.api, agents = %addresses.agents, raft = %addresses.raft,
              admin = %addresses.admin, "manager started");
        Ok(Self { core, group, consensus, addresses, data_dir: config.data_dir })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Consensus, for tests and tools in the same process.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.core.node
    }

    /// Waits until the manager cannot go on: its store failed or a vital task ended. The process must exit then.
    pub async fn failed(&self) -> String {
        let node = &self.core.node;
        let task = tokio::select! {
            biased;
            fatal = node.fatal() => return last_words(&fatal, &self.data_dir),
            failure = self.consensus.failed() => failure,
            failure = self.group.failed() => failure,
        };
        // A task of consensus ends because of something: that is what to tell, if it is known at once.
        match tokio::time::timeout(CAUSE_DEADLINE, node.fatal()).await {
            Ok(fatal) => last_words(&fatal, &self.data_dir),
            Err(_) => task.to_string(),
        }
    }

    /// Stops in order: not ready, duties, servers, consensus.
    pub async fn shutdown(self) -> ShutdownReport {
        info!(manager = %self.core.name, "stopping");
        // While the servers still run: the next leader needs this one's answers.
        self.core.node.hand_over().await;
        self.group.cancel();
        let report = self.group.shutdown(STOP_DEADLINE).await;
        self.core.node.shutdown().await;
        self.consensus.shutdown(STOP_DEADLINE).await;
        report
    }
}

/// Why a manager stops, and what to do where that is known.
fn last_words(fatal: &FatalError, data_dir: &Path) -> String {
    match fatal {
        FatalError::Storage(error) if error.is_disk_full() => format!(
            "the file system of {} is full: free some space and start this manager again; nothing that it \
             acknowledged is lost ({error})",
            data_dir.display()
        ),
        other => other.to_string(),
    }
}

/// Opens the data directory off the async workers and tells what it found.
async fn open_store(config: &ManagerConfig, mut rng: Rng) -> Result<Opened, StartError> {
    let (path, name) = (config.data_dir.clone(), config.name.to_string());
    let options =
        LogOptions { on_flush: |took| metrics::store_fsync_duration("log", took), ..LogOptions::default() };
    let opened = tokio::task::spawn_blocking(move || Storage::open(&path, &name, options, &mut rng));
    let opened = opened.await.map_err(|e| ConsensusError::Core { reason: e.to_string() })??;
    if let Some(quarantined) = &opened.quarantined {
        warn!(moved_to = %quarantined.path.display(), reason = quarantined.reason,
              "the store was damaged and moved aside; this manager joins anew under another Raft id");
    }
    let header = opened.storage.header.get();
    let formed = header.cluster.is_some() && header.epoch > 0;
    let empty = opened.recovered.end == 0 && opened.storage.images.newest().is_none();
    if config.managers.len() == 1 && formed && empty {
        return Err(StartError::OnlyCopyLost { path: config.data_dir.clone() });
    }
    for image in &opened.damaged_images {
        warn!(?image, "a damaged image was skipped");
    }
    Ok(opened)
}

/// Builds the services and starts the servers.
async fn serve(
    config: &ManagerConfig,
    core: &Core,
    dispatcher: &Dispatcher,
    listeners: Listeners,
    metrics: recorder::Handle,
    group: &TaskGroup,
) -> Result<(), StartError> {
    // First: what is applied before it listens is not watched.
    let hub = Hub::start(&core.node, group);
    let (reporter, health_service) = tonic_health::server::health_reporter();
    health::not_serving(&reporter).await;
    let router = Router::new(core.clone());
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(quorate_wire::PUBLIC_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let relays = Relays::new(core.clone(), router.clone(), dispatcher.clone(), group.clone());
    let tasks = TaskApi::new(core.clone(), router.clone(), relays.clone());
    let api = Routes::new(
        JobServiceServer::new(JobApi::new(core.clone(), router.clone(), relays))
            .max_decoding_message_size(MAX_API_MESSAGE),
    )
    .add_service(TaskServiceServer::new(tasks))
    .add_service(NodeServiceServer::new(NodeApi::new(core.clone(), router.clone(), dispatcher.clone())))
    .add_service(ClusterServiceServer::new(ClusterApi::new(core.clone())))
    .add_service(WatchServiceServer::new(WatchApi::new(core.clone(), hub, group.clone())))
    .add_service(health_service)
    .add_service(describe().build_v1()?)
    .add_service(describe().build_v1alpha()?);
    let agents =
        Routes::new(AgentServiceServer::new(dispatcher.clone()).max_decoding_message_size(MAX_AGENT_MESSAGE));
    let peers = Routes::new(core.node.service());
    let measured = |routes| rpc::measured(routes, core.clock.clone());
    measures::start(core.node.clone(), group);
    spawn_grpc(config, Profile::Api, "api server", http::ways_in(measured(api)), listeners.api, group);
    spawn_grpc(config, Profile::Agent, "agent server", measured(agents), listeners.agents, group);
    spawn_grpc(config, Profile::Peer, "peer server", measured(peers), listeners.raft, group);
    let http = admin::routes(core.clone(), metrics, config.log.clone(), group.clone());
    group.spawn(TaskKind::critical("admin server"), async move {
        axum::serve(listeners.admin.into_tcp(), http).await
    });
    health::follow(core, reporter, group);
    Ok(())
}

fn spawn_grpc(
    config: &ManagerConfig,
    profile: Profile,
    name: &'static str,
    routes: Routes,
    listener: Listener,
    group: &TaskGroup,
) {
    let mut server = config.security.server(profile);
    group.spawn(TaskKind::critical(name), async move {
        let served = server.add_routes(routes).serve_with_incoming(listener.incoming()).await;
        if let Err(error) = &served {
            error!(%error, server = name, "a server ended");
        }
        served
    });
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use quorate_storage::StorageError;

    use super::*;

    #[test]
    fn a_manager_whose_disk_is_full_says_what_to_do() {
        let dir = Path::new("/data/m1");
        let failed = |kind| StorageError::io("writing the log", io::Error::from(kind));
        let later = |cause| StorageError::Failed { cause: Arc::new(cause) };
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            for error in [failed(kind), later(failed(kind))] {
                let words = last_words(&FatalError::Storage(error.clone()), dir);
                let advice =
                    "the file system of /data/m1 is full: free some space and start this manager again";
                assert!(words.starts_with(advice) && words.ends_with(&format!("({error})")), "{words}");
            }
        }
        let other = FatalError::Storage(failed(io::ErrorKind::PermissionDenied));
        assert_eq!(last_words(&other, dir), other.to_string());
    }
}
