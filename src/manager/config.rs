//! What a manager needs to know to start.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use quorate_model::{Name, Settings};
use quorate_pki::Security;
use quorate_raft::RaftConfig;
use quorate_telemetry::logging::LogHandle;

/// Where a server listens, and what others are told to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Bound here; port 0 = any free one.
    pub listen: SocketAddr,
    /// Told to others, `host:port`; `None` = the bound address.
    pub advertise: Option<String>,
}

impl Address {
    /// Listens and is dialled at the same address.
    #[must_use]
    pub fn at(listen: SocketAddr) -> Self {
        Self { listen, advertise: None }
    }

    /// What others dial when `bound` is the address that was really bound.
    #[must_use]
    pub fn told(&self, bound: SocketAddr) -> String {
        self.advertise.clone().unwrap_or_else(|| bound.to_string())
    }
}

/// How often agents get their complete sets, unless configured otherwise.
pub const RESYNC: Duration = Duration::from_secs(300);

/// Everything that a manager is told by its operator.
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    /// Its name, unique among the managers.
    pub name: Name,
    /// Where it keeps log, vote and images.
    pub data_dir: PathBuf,
    /// For clients.
    pub api: Address,
    /// For agents.
    pub agents: Address,
    /// For the other managers.
    pub raft: Address,
    /// Plain HTTP for health checks and metrics.
    pub admin: Address,
    /// The managers that form a new cluster, by name, with their peer addresses; holds this one too.
    pub managers: BTreeMap<Name, String>,
    /// Consensus timers and sizes.
    pub consensus: RaftConfig,
    /// How it listens and dials.
    pub security: Security,
    /// Settings that a new cluster starts with; an existing one keeps its own.
    pub settings: Settings,
    /// How often an agent gets its complete set within a session, at the latest.
    pub resync: Duration,
    /// Version of this binary.
    pub version: String,
    /// Shows and changes what the process logs; `None` = not over the admin port.
    pub log: Option<LogHandle>,
}
