//! The whole agent: start, status, end.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::{Clock, Rng, ShutdownReport, TaskGroup, TaskKind};
use quorate_model::{Name, TaskId, TaskStatus};
use quorate_wire::agent::Fence;
use thiserror::Error;
use tokio::sync::watch;

use crate::config::{AgentConfig, ConfigError, Storage};
use crate::data_dir::{DataDir, DataDirError, Identity};
use crate::facts;
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::relay::Relays;
use crate::reporter::Reporter;
use crate::runner::Core;
use crate::runtime::Runtime;
use crate::runtime::docker::DockerRuntime;
use crate::runtime::fake::FakeRuntime;
use crate::runtime::process::ProcessRuntime;
use crate::runtime::set::{Offer, Runtimes};
use crate::session::{Session, SessionState};
use crate::worker::Worker;

/// How long the agent's own work may take to end. Tasks are not its work: they go on.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Why an agent does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
}

/// How an agent stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStatus {
    /// The node's name.
    pub node: Name,
    /// Identity of its data directory.
    pub agent_id: String,
    /// Its cluster; empty before the first session.
    pub cluster: Arc<str>,
    /// The newest fence that it obeyed.
    pub fence: Fence,
    /// Its session.
    pub session: SessionState,
    /// Its tasks as it sees them.
    pub tasks: Vec<(TaskId, TaskStatus)>,
    /// Statuses that the managers have not committed yet.
    pub unacknowledged: usize,
    /// Runtimes that answer.
    pub runtimes: Offer,
    /// Why the ledger is not written, if it is not.
    pub ledger_trouble: Option<String>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    node: Name,
    identity: Identity,
    core: Arc<Core>,
    session: watch::Receiver<SessionState>,
    tasks: TaskGroup,
    data_dir: Option<DataDir>,
}

impl Agent {
    /// Starts an agent: takes up the tasks of its ledger at once, and the session in the background.
    ///
    /// # Errors
    /// [`StartError`], with nothing left running.
    pub async fn start(config: AgentConfig, clock: Clock, tasks: TaskGroup) -> Result<Self, StartError> {
        Self::start_seeded(config, clock, tasks, Rng::from_entropy()).await
    }

    /// [`Agent::start`] with a chosen stream of randomness.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub async fn start_seeded(
        config: AgentConfig,
        clock: Clock,
        tasks: TaskGroup,
        mut rng: Rng,
    ) -> Result<Self, StartError> {
        let facts = facts::gather(&config, Offer::new());
        config.validate(&facts)?;
        let (data_dir, identity, ledger) = open_storage(&config, &clock, &mut rng)?;
        let runtimes =
            Runtimes::new(build_runtimes(&config, data_dir.as_ref(), &clock, &tasks), clock.clone());
        let core = Arc::new(Core {
            ledger,
            reporter: Reporter::default(),
            runtimes,
            clock,
            rng: Mutex::new(rng),
            starts: identity.starts,
        });
        let node = config.node.clone();
        let group = tasks.child("tasks");
        let worker = Arc::new(Worker::new(Arc::clone(&core), node.clone(), group, config.orphan_grace));
        let machine = Arc::new(Machine::new(&config));
        let relays = Arc::new(Relays::new(
            Arc::clone(&core),
            Arc::clone(&worker),
            config.security.clone(),
            node.clone(),
            tasks.child("relays"),
        ));
        let (held, identified) = (Arc::clone(&worker), identity.clone());
        let session = Session::new(Arc::clone(&core), held, Arc::clone(&machine), relays, config, identified);
        let state = session.state();
        worker.resume();
        spawn_loops(&tasks, &core, worker, machine, session);
        tracing::info!(%node, agent = identity.agent_id, incarnation = identity.incarnation, "agent started");
        Ok(Self { node, identity, core, session: state, tasks, data_dir })
    }

    /// Waits until a session stands and what the leader wants is under way.
    pub async fn wait_ready(&self) {
        let mut session = self.session.clone();
        let connected = |state: &SessionState| matches!(state, SessionState::Connected { .. });
        // An error means that the agent was shut down: it will never be ready.
        if session.wait_for(connected).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        let contents = self.core.ledger.read();
        let tasks = contents.tasks.iter().map(|(id, held)| (*id, held.record.status.clone())).collect();
        AgentStatus {
            node: self.node.clone(),
            agent_id: self.identity.agent_id.clone(),
            cluster: Arc::clone(&contents.cluster),
            fence: contents.fence,
            session: self.session.borrow().clone(),
            tasks,
            unacknowledged: self.core.reporter.unacknowledged(),
            runtimes: self.core.runtimes.offer().borrow().clone(),
            ledger_trouble: self.core.ledger.trouble(),
        }
    }

    /// Ends the agent. Its tasks go on: the next start takes them up.
    pub async fn shutdown(self) -> ShutdownReport {
        let report = self.tasks.shutdown(SHUTDOWN).await;
        self.core.ledger.flush().await;
        // Last: only now may another agent have the directory.
        drop(self.data_dir);
        report
    }
}

fn open_storage(
    config: &AgentConfig,
    clock: &Clock,
    rng: &mut Rng,
) -> Result<(Option<DataDir>, Identity, Ledger), StartError> {
    let Storage::Folder(path) = &config.storage else {
        return Ok((None, Identity::in_memory(&config.node, clock, rng), Ledger::in_memory()));
    };
    let (data_dir, identity) = DataDir::open(path, &config.node, clock, rng)?;
    let (ledger, damaged) = Ledger::open(data_dir.ledger());
    if let Some(damaged) = damaged {
        tracing::warn!(
            %damaged,
            "starting without it: what runs goes on and is taken up when a leader says what this node must run"
        );
    }
    Ok((Some(data_dir), identity, ledger))
}

fn build_runtimes(
    config: &AgentConfig,
    data_dir: Option<&DataDir>,
    clock: &Clock,
    tasks: &TaskGroup,
) -> Vec<Arc<dyn Runtime>> {
    let mut all: Vec<Arc<dyn Runtime>> = Vec::new();
    if let Some(docker) = &config.runtimes.docker {
        all.push(Arc::new(DockerRuntime::new(docker.clone(), clock.clone())));
    }
    if let (Some(process), Some(data_dir)) = (&config.runtimes.process, data_dir) {
        let group = tasks.child("shims");
        let (shim, logs) = (process.shim.clone(), process.logs);
        all.push(Arc::new(ProcessRuntime::new(data_dir.tasks(), shim, logs, clock.clone(), group)));
    }
    if let Some(store) = &config.runtimes.fake {
        all.push(Arc::new(FakeRuntime::new(store.clone(), clock.clone())));
    }
    all
}

fn spawn_loops(
    tasks: &TaskGroup,
    core: &Arc<Core>,
    worker: Arc<Worker>,
    machine: Arc<Machine>,
    session: Session,
) {
    let (owned, rng) = (Arc::clone(core), core.fork("ledger"));
    tasks.spawn(TaskKind::critical("ledger"), async move {
        owned.ledger.write(&owned.clock, rng).await;
        Ok::<_, Infallible>(())
    });
    let measuring = Arc::clone(&worker);
    tasks.spawn(TaskKind::critical("measure"), async move {
        machine.measure(&measuring).await;
        Ok::<_, Infallible>(())
    });
    tasks.spawn(TaskKind::critical("sweep"), async move {
        worker.sweep_when_needed().await;
        Ok::<_, Infallible>(())
    });
    let owned = Arc::clone(core);
    tasks.spawn(TaskKind::critical("session"), async move {
        // So that the first session tells the leader of all runtimes that answer.
        owned.runtimes.probe_once().await;
        let monitor = owned.runtimes.monitor(owned.fork("runtimes"));
        tokio::join!(monitor, session.run());
        Ok::<_, Infallible>(())
    });
}
