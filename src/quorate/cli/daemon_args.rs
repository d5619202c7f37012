//! What may be typed to run a daemon.

use clap::{Args, Subcommand};

/// What can be done with a manager.
#[derive(Debug, Subcommand)]
pub(crate) enum ManagerVerb {
    /// Run a manager until SIGTERM or SIGINT
    Run(Box<ManagerRunArgs>),
}

/// What can be done with an agent.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Run an agent until SIGTERM or SIGINT; its tasks go on without it
    Run(Box<AgentRunArgs>),
    /// Run many agents with simulated tasks in one process, for load experiments
    #[command(hide = true)]
    Fleet(FleetArgs),
}

/// What is logged.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Level, or target=level pairs: info,quorate_raft=debug [default: info,openraft=off]
    #[arg(long = "log-level", value_name = "FILTER")]
    pub(crate) level: Option<String>,
    /// text, json or auto [default: auto]
    #[arg(long = "log-format", value_name = "FORMAT")]
    pub(crate) format: Option<String>,
}

/// `manager run`
#[derive(Debug, Args)]
pub(crate) struct ManagerRunArgs {
    /// Configuration file (TOML), repeatable; a later one overrides [default: /etc/quorate/manager.toml if there is one]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<String>,
    /// Name, unique among the managers
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Folder for log, vote and images; of this manager alone
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Where clients connect [default: 127.0.0.1:7420]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) api_listen: Option<String>,
    /// Where agents connect [default: 127.0.0.1:7421]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) agents_listen: Option<String>,
    /// Where the other managers connect [default: 127.0.0.1:7422]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) raft_listen: Option<String>,
    /// Where health checks and metrics are served [default: 127.0.0.1:7480]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) admin_listen: Option<String>,
    /// The managers that form a new cluster with their raft addresses, this one among them [default: this one alone]
    #[arg(long, value_name = "NAME=HOST:PORT,…")]
    pub(crate) managers: Option<String>,
    /// The log.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `agent run`
#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    /// Configuration file (TOML), repeatable; a later one overrides [default: /etc/quorate/agent.toml if there is one]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Vec<String>,
    /// Name of this node, unique in the cluster
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Folder for what the agent must not forget; of this agent alone
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Agent addresses of managers; the others are learned [default: 127.0.0.1:7421]
    #[arg(long, value_name = "HOST:PORT,…")]
    pub(crate) managers: Option<String>,
    /// Label of this node, repeatable
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// Runtimes to offer: docker, process, fake [default: docker,process]
    #[arg(long = "runtime", value_name = "NAME,…")]
    pub(crate) runtimes: Option<String>,
    /// The log.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// `agent fleet`
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// How many agents
    #[arg(long, default_value_t = 10)]
    pub(crate) count: u32,
    /// What their names begin with; a number follows
    #[arg(long, default_value = "sim-")]
    pub(crate) prefix: String,
    /// Agent addresses of managers
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', default_value = "127.0.0.1:7421")]
    pub(crate) managers: Vec<String>,
    /// Processors that each counts as having
    #[arg(long, default_value = "16")]
    pub(crate) cpu: String,
    /// Memory that each counts as having
    #[arg(long, default_value = "64GiB")]
    pub(crate) memory: String,
    /// The log.
    #[command(flatten)]
    pub(crate) log: LogArgs,
}
