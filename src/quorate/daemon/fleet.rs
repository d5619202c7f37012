//! `agent fleet`: many agents without machines, for load experiments.

use quorate_agent::Agent;
use quorate_agent::config::{AgentConfig, RuntimeConfig, Storage};
use quorate_agent::runtime::fake::FakeStore;
use quorate_base::Clock;
use quorate_model::{Name, Resources};
use quorate_pki::Security;
use quorate_telemetry::logging::{Format, Identity, LogConfig};

use super::{Signals, begin, group, runtime};
use crate::cli::args::FleetArgs;
use crate::failure::Failure;

/// Runs the agents until a signal. Their tasks are simulated and end with them.
pub(crate) fn run(args: &FleetArgs, security: Option<Security>) -> Result<(), Failure> {
    let filter = args.log.level.clone().unwrap_or_else(|| "warn".to_owned());
    let format = match &args.log.format {
        Some(text) => text.parse::<Format>().map_err(|error| Failure::new(5, error.to_string()))?,
        None => Format::Auto,
    };
    let security = security.unwrap_or_default();
    begin(LogConfig { filter, format, identity: Identity::Anonymous }, &security)?;
    runtime()?.block_on(serve(args, security))
}

async fn serve(args: &FleetArgs, security: Security) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let tasks = group("fleet");
    let mut agents = Vec::new();
    for number in 1..=args.count {
        let config = member(args, number, security.clone())?;
        let name = config.node.clone();
        let started = Agent::start(config, Clock::system(), tasks.child(name.as_str())).await;
        agents
            .push(started.map_err(|error| Failure::new(1, format!("agent {name} does not start: {error}")))?);
    }
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "asked to stop"),
        failure = tasks.failed() => return Err(Failure::new(1, format!("the fleet stopped: {failure}"))),
    }
    signals
        .or_again(async {
            for agent in agents {
                agent.shutdown().await;
            }
        })
        .await;
    Ok(())
}

fn member(args: &FleetArgs, number: u32, security: Security) -> Result<AgentConfig, Failure> {
    let invalid = |error: quorate_model::Invalid| Failure::new(5, error.to_string());
    let node = Name::parse("--prefix", &format!("{}{number}", args.prefix)).map_err(invalid)?;
    let capacity = Resources {
        cpu_millis: quorate_model::quantity::parse_cpu("--cpu", &args.cpu).map_err(invalid)?,
        memory_bytes: quorate_model::quantity::parse_memory("--memory", &args.memory).map_err(invalid)?,
    };
    Ok(AgentConfig {
        node,
        storage: Storage::Memory,
        labels: [("fleet".to_owned(), args.prefix.trim_end_matches('-').to_owned())].into(),
        managers: args.managers.clone(),
        security,
        reserved: Resources::default(),
        capacity: Some(capacity),
        runtimes: RuntimeConfig { fake: Some(FakeStore::new()), ..RuntimeConfig::default() },
    })
}
