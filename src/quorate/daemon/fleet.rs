//! `agent fleet`: many agents without machines, for load experiments.

use quorate_agent::fleet::{FakeFleet, FleetConfig};
use quorate_base::Clock;
use quorate_model::{Invalid, Resources, quantity};
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
    let config = config(args, security.unwrap_or_default())?;
    begin(LogConfig { filter, format, identity: Identity::Anonymous }, &config.security)?;
    runtime()?.block_on(serve(&config))
}

fn config(args: &FleetArgs, security: Security) -> Result<FleetConfig, Failure> {
    let invalid = |error: Invalid| Failure::new(5, error.to_string());
    Ok(FleetConfig {
        count: args.count,
        prefix: args.prefix.clone(),
        managers: args.managers.clone(),
        security,
        capacity: Resources {
            cpu_millis: quantity::parse_cpu("--cpu", &args.cpu).map_err(invalid)?,
            memory_bytes: quantity::parse_memory("--memory", &args.memory).map_err(invalid)?,
        },
        labels: [("fleet".to_owned(), args.prefix.trim_end_matches('-').to_owned())].into(),
    })
}

async fn serve(config: &FleetConfig) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let tasks = group("fleet");
    let started = FakeFleet::start(config, &Clock::system(), &tasks).await;
    let fleet = started.map_err(|error| Failure::new(1, error.to_string()))?;
    tokio::select! {
        signal = signals.next() => tracing::info!(signal, "asked to stop"),
        failure = tasks.failed() => return Err(Failure::new(1, format!("the fleet stopped: {failure}"))),
    }
    signals.or_again(fleet.shutdown()).await;
    Ok(())
}
