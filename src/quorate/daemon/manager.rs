//! `manager run`

use quorate_base::Clock;
use quorate_manager::Manager;
use quorate_pki::Security;

use super::{Signals, begin, group, runtime};
use crate::cli::args::ManagerRunArgs;
use crate::config;
use crate::failure::Failure;

/// Runs a manager until a signal (success) or until it cannot go on.
pub(crate) fn run(args: &ManagerRunArgs, security: Option<Security>) -> Result<(), Failure> {
    let mut loaded = config::manager::load(args, std::env::vars(), security)?;
    loaded.config.log = Some(begin(loaded.log, &loaded.config.security)?);
    runtime()?.block_on(serve(loaded.config))
}

async fn serve(config: quorate_manager::ManagerConfig) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let name = config.name.clone();
    let started = Manager::start(config, Clock::system(), group("manager")).await;
    let manager =
        started.map_err(|error| Failure::new(1, format!("manager {name} does not start: {error}")))?;
    tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "asked to stop");
            if let Some(report) = signals.or_again(manager.shutdown()).await && !report.is_clean() {
                tracing::warn!(aborted = ?report.aborted, stuck = ?report.stuck, "not everything ended in time");
            }
            Ok(())
        }
        reason = manager.failed() => {
            tracing::error!(reason, "the manager cannot go on");
            Err(Failure::new(1, format!("manager {name} stopped: {reason}")))
        }
    }
}
