//! Configuration of an agent.

use std::path::PathBuf;

use quorate_agent::config::{
    AgentConfig, DockerConfig, LogLimits, ORPHAN_GRACE, Pressure, ProcessConfig, RuntimeConfig, ShimCommand,
    Storage,
};
use quorate_agent::runtime::fake::FakeStore;
use quorate_model::{Name, Resources, RuntimeKind};
use quorate_pki::Security;
use quorate_telemetry::logging::{Identity, LogConfig};

use super::layers::{Layers, Schema, list, number};
use super::{LOG_KEYS, files, log};
use crate::cli::args::AgentRunArgs;
use crate::document::Problems;
use crate::document::fields;

/// Read when no file is given.
const USUAL: &str = "/etc/quorate/agent.toml";

const SCHEMA: Schema = Schema {
    prefix: "QUORATE_AGENT_",
    keys: &[
        "node.name",
        "node.data_dir",
        "node.reserved.cpu",
        "node.reserved.memory",
        "node.capacity.cpu",
        "node.capacity.memory",
        "managers",
        "runtimes",
        "docker.socket",
        "docker.auth_file",
        "orphan_grace",
        "pressure.disk_used_percent",
        "pressure.disk_free",
        "pressure.memory_available_percent",
        "logs.max_size",
        "logs.max_files",
        LOG_KEYS[0],
        LOG_KEYS[1],
        "tls.mode",
    ],
    tables: &["node.labels"],
};

/// An agent as its operator wants it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// For the agent.
    pub(crate) config: AgentConfig,
    /// For its log.
    pub(crate) log: LogConfig,
}

/// Reads the files, the environment and the flags.
///
/// # Errors
/// Everything that is wrong, each with where it comes from.
pub(crate) fn load(
    args: &AgentRunArgs,
    environment: impl IntoIterator<Item = (String, String)>,
    security: Option<Security>,
    shim: ShimCommand,
) -> Result<Loaded, Problems> {
    let mut layers = Layers::new(SCHEMA);
    layers.files(&files(&args.config, USUAL));
    layers.environment(environment);
    layers.flag("--name", "node.name", args.name.as_ref());
    layers.flag("--data-dir", "node.data_dir", args.data_dir.as_ref());
    layers.flag("--managers", "managers", args.managers.as_ref());
    for label in &args.labels {
        layers.flag("--label", "node.labels", Some(label));
    }
    layers.flag("--runtime", "runtimes", args.runtimes.as_ref());
    layers.flag("--log-level", "log.level", args.log.level.as_ref());
    layers.flag("--log-format", "log.format", args.log.format.as_ref());
    layers.flag("--security", "tls.mode", security);
    let loaded = read(&mut layers, shim);
    layers.finish(loaded)
}

fn read(layers: &mut Layers, shim: ShimCommand) -> Option<Loaded> {
    let name = layers.require("node.name", "--name", |node| {
        Name::parse("", &fields::text(node)?).map_err(|invalid| invalid.reason)
    });
    let data_dir = layers.require("node.data_dir", "--data-dir", fields::text).map(PathBuf::from);
    let managers = layers.get("managers", list).unwrap_or_else(|| vec!["127.0.0.1:7421".to_owned()]);
    let labels = layers.table("node.labels", |_, node| fields::spelt(node));
    let reserved = resources(layers, "node.reserved");
    let reserved = Resources {
        cpu_millis: reserved.0.unwrap_or_default(),
        memory_bytes: reserved.1.unwrap_or_default(),
    };
    let capacity = capacity(layers);
    let security = layers
        .get("tls.mode", |node| fields::text(node)?.parse().map_err(|error| format!("{error}")))
        .unwrap_or_default();
    let runtimes = runtimes(layers, shim);
    let orphan_grace = layers.get("orphan_grace", fields::duration).unwrap_or(ORPHAN_GRACE);
    let pressure = pressure(layers);
    // A machine that is only simulated is never short of anything.
    let measured = runtimes.docker.is_some() || runtimes.process.is_some();
    let identity = Identity::Node(name.as_ref().map(ToString::to_string).unwrap_or_default());
    let log = log(layers, identity);
    let config = AgentConfig {
        node: name?,
        storage: Storage::Folder(data_dir?),
        labels: labels.into_iter().collect(),
        managers,
        security,
        reserved,
        capacity,
        pressure: measured.then_some(pressure),
        runtimes,
        orphan_grace,
    };
    Some(Loaded { config, log })
}

fn resources(layers: &mut Layers, table: &str) -> (Option<u64>, Option<u64>) {
    let cpu = layers.get(&format!("{table}.cpu"), fields::cpu);
    let memory = layers.get(&format!("{table}.memory"), fields::memory);
    (cpu, memory)
}

/// Both or neither: half a machine cannot be measured.
fn capacity(layers: &mut Layers) -> Option<Resources> {
    match resources(layers, "node.capacity") {
        (Some(cpu_millis), Some(memory_bytes)) => Some(Resources { cpu_millis, memory_bytes }),
        (Some(_), None) => {
            layers.refuse("node.capacity.cpu", "give node.capacity.memory, too");
            None
        }
        (None, Some(_)) => {
            layers.refuse("node.capacity.memory", "give node.capacity.cpu, too");
            None
        }
        (None, None) => None,
    }
}

fn pressure(layers: &mut Layers) -> Pressure {
    let usual = Pressure::default();
    let mut percent = |key: &str, usual: u8| {
        let given = layers.get(key, |node| number(node, 0, 100));
        given.and_then(|percent| u8::try_from(percent).ok()).unwrap_or(usual)
    };
    Pressure {
        disk_used_percent: percent("pressure.disk_used_percent", usual.disk_used_percent),
        memory_available_percent: percent(
            "pressure.memory_available_percent",
            usual.memory_available_percent,
        ),
        disk_free_bytes: layers.get("pressure.disk_free", fields::memory).unwrap_or(usual.disk_free_bytes),
    }
}

fn runtimes(layers: &mut Layers, shim: ShimCommand) -> RuntimeConfig {
    let wanted = layers.get("runtimes", |node| {
        let read = |word: &String| {
            RuntimeKind::from_word(word)
                .ok_or_else(|| format!("{word:?} is unknown; use docker, process or fake"))
        };
        list(node)?.iter().map(read).collect::<Result<Vec<_>, _>>()
    });
    let wanted = wanted.unwrap_or_else(|| vec![RuntimeKind::Docker, RuntimeKind::Process]);
    let socket = layers.get("docker.socket", fields::text).map(PathBuf::from);
    let auth_file = layers.get("docker.auth_file", fields::text).map(PathBuf::from);
    let mut logs = LogLimits::default();
    logs.file_bytes = layers.get("logs.max_size", fields::memory).unwrap_or(logs.file_bytes);
    let most = layers.get("logs.max_files", |node| number(node, 1, 1_000));
    logs.files = most.and_then(|files| u32::try_from(files).ok()).unwrap_or(logs.files);
    let has = |kind| wanted.contains(&kind);
    RuntimeConfig {
        docker: has(RuntimeKind::Docker).then_some(DockerConfig { socket, logs, auth_file }),
        process: has(RuntimeKind::Process).then_some(ProcessConfig { shim, logs }),
        fake: has(RuntimeKind::Fake).then(FakeStore::new),
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
