//! Many agents in one process, on simulated machines: load for the managers.

use std::collections::BTreeMap;

use futures::future::join_all;
use quorate_base::{Clock, TaskGroup};
use quorate_model::{Invalid, Name, Resources, TaskState};
use quorate_pki::Security;
use thiserror::Error;

use crate::agent::{Agent, AgentStatus, StartError};
use crate::config::{AgentConfig, ORPHAN_GRACE, RuntimeConfig, Storage};
use crate::runtime::fake::FakeStore;

/// What a fleet is made of.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// How many agents.
    pub count: u32,
    /// Their nodes are named by this and a number from 1 up.
    pub prefix: String,
    /// Agent addresses of managers.
    pub managers: Vec<String>,
    /// What protects the traffic.
    pub security: Security,
    /// What each node counts as having.
    pub capacity: Resources,
    /// Labels of each node.
    pub labels: BTreeMap<String, String>,
}

/// Why a fleet does not start.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The prefix makes no names of nodes.
    #[error("fleet prefix: {0}")]
    Name(#[from] Invalid),
    /// One of its agents does not start.
    #[error("agent {node} of the fleet does not start: {source}")]
    Start {
        /// Which.
        node: Name,
        /// Why.
        source: StartError,
    },
}

/// Agents that keep real sessions and run simulated containers. They keep nothing on disk.
#[derive(Debug)]
pub struct FakeFleet {
    agents: Vec<(Agent, FakeStore)>,
}

impl FakeFleet {
    /// Starts all agents; their sessions come in the background.
    ///
    /// # Errors
    /// [`FleetError`]; what was started ends with `tasks`.
    pub async fn start(config: &FleetConfig, clock: &Clock, tasks: &TaskGroup) -> Result<Self, FleetError> {
        let mut agents = Vec::new();
        for number in 1..=config.count {
            let node = Name::parse("prefix", &format!("{}{number}", config.prefix))?;
            let store = FakeStore::new();
            let group = tasks.child(node.as_str());
            let agent = Agent::start(member(config, node.clone(), &store), clock.clone(), group).await;
            let agent = agent.map_err(|source| FleetError::Start { node, source })?;
            agents.push((agent, store));
        }
        Ok(Self { agents })
    }

    /// Waits until each agent has a session and its complete set.
    pub async fn wait_ready(&self) {
        join_all(self.agents.iter().map(|(agent, _)| agent.wait_ready())).await;
    }

    /// How each agent stands.
    #[must_use]
    pub fn statuses(&self) -> Vec<AgentStatus> {
        self.agents.iter().map(|(agent, _)| agent.status()).collect()
    }

    /// Tasks that run, on all agents.
    #[must_use]
    pub fn running(&self) -> usize {
        let running = |status: AgentStatus| {
            status.tasks.iter().filter(|(_, task)| task.state == TaskState::Running).count()
        };
        self.statuses().into_iter().map(running).sum()
    }

    /// The simulated machines, for faults.
    pub fn machines(&self) -> impl Iterator<Item = &FakeStore> {
        self.agents.iter().map(|(_, store)| store)
    }

    /// Ends all agents, and with them all that they simulate.
    pub async fn shutdown(self) {
        join_all(self.agents.into_iter().map(|(agent, _)| agent.shutdown())).await;
    }
}

fn member(config: &FleetConfig, node: Name, store: &FakeStore) -> AgentConfig {
    AgentConfig {
        node,
        storage: Storage::Memory,
        labels: config.labels.clone(),
        managers: config.managers.clone(),
        security: config.security.clone(),
        reserved: Resources::default(),
        capacity: Some(config.capacity),
        runtimes: RuntimeConfig { fake: Some(store.clone()), ..RuntimeConfig::default() },
        orphan_grace: ORPHAN_GRACE,
        pressure: None,
    }
}
