//! `agent run`

use quorate_agent::config::ShimCommand;
use quorate_agent::{Agent, AgentConfig};
use quorate_base::Clock;
use quorate_pki::Security;

use super::{Signals, begin, group, runtime};
use crate::cli::args::AgentRunArgs;
use crate::config;
use crate::failure::Failure;

/// Runs an agent until a signal (success) or until it cannot go on. Its tasks outlive it.
pub(crate) fn run(args: &AgentRunArgs, security: Option<Security>) -> Result<(), Failure> {
    let shim = ShimCommand::current_exe()
        .map_err(|error| Failure::new(1, format!("the path of this executable is not known: {error}")))?;
    let loaded = config::agent::load(args, std::env::vars(), security, shim)?;
    begin(loaded.log, &loaded.config.security)?;
    runtime()?.block_on(serve(loaded.config))
}

async fn serve(config: AgentConfig) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let (name, tasks) = (config.node.clone(), group("agent"));
    let started = Agent::start(config, Clock::system(), tasks.clone()).await;
    let agent = started.map_err(|error| Failure::new(1, format!("agent {name} does not start: {error}")))?;
    tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "asked to stop; tasks go on");
            if let Some(report) = signals.or_again(agent.shutdown()).await && !report.is_clean() {
                tracing::warn!(aborted = ?report.aborted, stuck = ?report.stuck, "not everything ended in time");
            }
            Ok(())
        }
        failure = tasks.failed() => {
            tracing::error!(%failure, "the agent cannot go on");
            Err(Failure::new(1, format!("agent {name} stopped: {failure}")))
        }
    }
}
