//! What an agent is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use quorate_model::{InvalidList, Name, NodeFacts, Resources, RuntimeKind};
use quorate_pki::{EndpointError, Profile, Security};
use thiserror::Error;

use crate::runtime::fake::FakeStore;

/// The most tasks that one agent takes; what is beyond is rejected with a reason. Bounds its memory.
pub const MAX_TASKS: usize = 10_000;

/// Where an agent keeps what it must not forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In this folder, created if missing, for one agent at a time.
    Folder(PathBuf),
    /// Nowhere: a restart forgets it. For load experiments; without the process runtime.
    Memory,
}

/// How the process runtime starts the supervisor of a process: `program args… FOLDER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimCommand {
    /// The executable: `quorate` itself, outside tests.
    pub program: PathBuf,
    /// Its arguments before the folder.
    pub args: Vec<String>,
}

impl ShimCommand {
    /// This executable with the subcommand `agent-shim`.
    ///
    /// # Errors
    /// When the operating system does not say where the executable is.
    pub fn current_exe() -> std::io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, args: vec!["agent-shim".to_owned()] })
    }
}

/// Bounds of the output files of a process, per stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Most bytes of one file.
    pub file_bytes: u64,
    /// Files kept, the one being written included; at least 1.
    pub files: u32,
}

impl Default for LogLimits {
    /// Three files of 10 MiB.
    fn default() -> Self {
        Self { file_bytes: 10 << 20, files: 3 }
    }
}

/// The process runtime's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Its supervisor.
    pub shim: ShimCommand,
    /// Bounds of output files.
    pub logs: LogLimits,
}

/// The Docker runtime's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DockerConfig {
    /// Path of the engine's socket; `None` = `DOCKER_HOST` or the usual place.
    pub socket: Option<PathBuf>,
    /// Bounds of what the engine keeps of a container's output.
    pub logs: LogLimits,
    /// Logins to registries, in the form of Docker's `config.json`; `None` = the usual file, if it exists.
    pub auth_file: Option<PathBuf>,
}

/// The runtimes that the agent offers.
#[derive(Debug, Clone, Default)]
pub struct RuntimeConfig {
    /// Docker; offered while the engine answers.
    pub docker: Option<DockerConfig>,
    /// Processes.
    pub process: Option<ProcessConfig>,
    /// Simulation, on that machine.
    pub fake: Option<FakeStore>,
}

impl RuntimeConfig {
    /// Which are wanted.
    #[must_use]
    pub fn wanted(&self) -> Vec<RuntimeKind> {
        let wanted = [
            (RuntimeKind::Docker, self.docker.is_some()),
            (RuntimeKind::Process, self.process.is_some()),
            (RuntimeKind::Fake, self.fake.is_some()),
        ];
        wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(kind, _)| kind).collect()
    }
}

/// What an agent is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The node's name, unique in the cluster.
    pub node: Name,
    /// Where it keeps its ledger.
    pub storage: Storage,
    /// The operator's labels.
    pub labels: BTreeMap<String, String>,
    /// Agent addresses of managers, `HOST:PORT`; one that answers is enough, the others are learned.
    pub managers: Vec<String>,
    /// What protects its traffic.
    pub security: Security,
    /// What is kept back from tasks.
    pub reserved: Resources,
    /// What the machine counts as having; `None` = what it has.
    pub capacity: Option<Resources>,
    /// The runtimes it offers.
    pub runtimes: RuntimeConfig,
    /// How long a container that no task has is left alone.
    pub orphan_grace: Duration,
    /// When disk and memory count as short; `None` = never (simulated machines).
    pub pressure: Option<Pressure>,
}

/// How long a container that no task has is left alone, unless configured otherwise.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(60);

/// When a machine counts as short of disk or memory: it then takes no new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// Used share of a file system from which it is short, in percent.
    pub disk_used_percent: u8,
    /// Free bytes of a file system below which it is short.
    pub disk_free_bytes: u64,
    /// Share of memory that is available below which it is short, in percent.
    pub memory_available_percent: u8,
}

impl Default for Pressure {
    /// 90 % used or less than 2 GiB free; less than 5 % of memory available.
    fn default() -> Self {
        Self { disk_used_percent: 90, disk_free_bytes: 2 << 30, memory_available_percent: 5 }
    }
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Nobody to dial.
    #[error("no manager is given: name at least one agent address, like 127.0.0.1:7421")]
    NoManager,
    /// An address that cannot be dialled.
    #[error(transparent)]
    Manager(#[from] EndpointError),
    /// A node that can run nothing.
    #[error("no runtime is wanted: choose at least one of docker, process")]
    NoRuntime,
    /// Labels and the like that the managers would refuse.
    #[error("{0}")]
    Facts(InvalidList),
    /// Nothing would be left for tasks.
    #[error("reserved ({reserved}) does not fit into the machine's capacity ({capacity}): reserve less")]
    Reserved {
        /// As configured.
        reserved: Resources,
        /// What there is.
        capacity: Resources,
    },
    /// Processes need folders.
    #[error("the process runtime needs a data directory: configure one")]
    ProcessWithoutFolder,
    /// Would keep nothing.
    #[error("log files must be at least 1, with at least 1 byte each")]
    LogLimits,
}

impl AgentConfig {
    /// Checks all that can be checked before anything is opened. `facts` are those of the machine.
    ///
    /// # Errors
    /// The first thing that cannot work.
    pub fn validate(&self, facts: &NodeFacts) -> Result<(), ConfigError> {
        if self.managers.is_empty() {
            return Err(ConfigError::NoManager);
        }
        for manager in &self.managers {
            self.security.endpoint(Profile::Agent, manager)?;
        }
        if self.runtimes.wanted().is_empty() {
            return Err(ConfigError::NoRuntime);
        }
        facts.validate().map_err(ConfigError::Facts)?;
        if !self.reserved.fits(facts.capacity) {
            return Err(ConfigError::Reserved { reserved: self.reserved, capacity: facts.capacity });
        }
        if self.runtimes.process.is_some() && self.storage == Storage::Memory {
            return Err(ConfigError::ProcessWithoutFolder);
        }
        let process = self.runtimes.process.as_ref().map(|process| process.logs);
        let docker = self.runtimes.docker.as_ref().map(|docker| docker.logs);
        if process.into_iter().chain(docker).any(|logs| logs.files == 0 || logs.file_bytes == 0) {
            return Err(ConfigError::LogLimits);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AgentConfig {
        AgentConfig {
            node: Name::parse("node", "n1").unwrap(),
            storage: Storage::Memory,
            labels: BTreeMap::new(),
            managers: vec!["127.0.0.1:7421".to_owned()],
            security: Security::default(),
            reserved: Resources::default(),
            capacity: None,
            runtimes: RuntimeConfig { fake: Some(FakeStore::new()), ..RuntimeConfig::default() },
            orphan_grace: ORPHAN_GRACE,
            pressure: None,
        }
    }

    fn facts(config: &AgentConfig) -> NodeFacts {
        let capacity = Resources { cpu_millis: 1_000, memory_bytes: 1 << 30 };
        NodeFacts { labels: config.labels.clone(), capacity, ..NodeFacts::default() }
    }

    fn refusal(change: impl FnOnce(&mut AgentConfig)) -> String {
        let mut config = config();
        change(&mut config);
        config.validate(&facts(&config)).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        let good = config();
        assert_eq!(good.validate(&facts(&good)), Ok(()));
        assert!(refusal(|c| c.managers.clear()).contains("name at least one agent address"));
        assert!(refusal(|c| c.managers = vec!["nowhere".to_owned()]).contains("\"nowhere\" is invalid"));
        assert!(refusal(|c| c.managers = vec!["192.0.2.1:7421".to_owned()]).contains("plain text"));
        assert!(
            refusal(|c| c.runtimes = RuntimeConfig::default()).contains("at least one of docker, process")
        );
        assert!(
            refusal(|c| drop(c.labels.insert("a b".to_owned(), String::new())))
                .contains("\"a b\" is no label key")
        );
        let most = Resources { cpu_millis: 2_000, memory_bytes: 0 };
        assert!(refusal(|c| c.reserved = most).contains("reserve less"));
        let shim = ShimCommand { program: "quorate".into(), args: Vec::new() };
        let process = |logs| Some(ProcessConfig { shim: shim.clone(), logs });
        let message = refusal(|c| c.runtimes.process = process(LogLimits::default()));
        assert!(message.contains("needs a data directory"));
        let message = refusal(|c| {
            c.storage = Storage::Folder("/nowhere".into());
            c.runtimes.process = process(LogLimits { file_bytes: 1, files: 0 });
        });
        assert!(message.contains("at least 1"));
    }
}
