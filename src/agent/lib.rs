//! The agent: runs the tasks of one machine, with or without managers.
//!
//! [`Agent::start`] opens the data directory, takes up what runs, and keeps one session with the leader. The parts, in
//! the order in which an assignment passes them: `session` (the stream to the leader) → `worker` (the set of tasks) →
//! `ledger` (what survives a restart) → `runner` (one per task) ⇄ [`step`] (pure) ⇄ [`runtime`] (docker, process, fake)
//! → `reporter` (newest statuses until they are acknowledged) → `session`.

mod agent;
pub mod config;
mod data_dir;
mod durable;
mod facts;
pub mod fleet;
mod ledger;
mod machine;
mod relay;
mod reporter;
mod runner;
pub mod runtime;
mod session;
pub mod step;
mod worker;

pub use agent::{Agent, AgentStatus, StartError};
pub use config::{AgentConfig, ConfigError};
pub use data_dir::{DataDirError, Identity};
pub use runtime::shim::shim_main;
pub use session::SessionState;
