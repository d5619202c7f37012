//! The long-running verbs: composition of a manager or an agent, and its end by a signal.

mod agent;
mod fleet;
mod manager;

use std::future::Future;
use std::io;

use quorate_base::TaskGroup;
use quorate_pki::Security;
use quorate_telemetry::logging::{self, LogConfig, LogHandle};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use agent::run as run_agent;
pub(crate) use fleet::run as run_fleet;
pub(crate) use manager::run as run_manager;

use crate::failure::Failure;

/// Sets up logging and tells what protects the traffic. The result changes what is logged.
fn begin(log: LogConfig, security: &Security) -> Result<LogHandle, Failure> {
    let handle = logging::init(log).map_err(|error| Failure::new(5, error.to_string()))?;
    if let Some(warning) = security.warning() {
        tracing::warn!("{warning}");
    }
    Ok(handle)
}

/// The root of a daemon's tasks; each failure is logged.
fn group(name: &str) -> TaskGroup {
    TaskGroup::new(name, logging::log_task_failure)
}

/// As many threads as the machine has processors.
fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(1, format!("cannot start the threads: {error}; raise the limit (ulimit -u)"))
    })
}

/// The two signals that end a daemon, caught from the moment of [`Signals::new`] on.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(1, format!("cannot wait for signals: {error}"));
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    /// Waits for one of them: its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Waits until `work` is done, or for another signal: who asks twice does not want to wait.
    async fn or_again<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            again = self.next() => {
                tracing::warn!("{again} again: ending at once");
                None
            }
        }
    }
}
