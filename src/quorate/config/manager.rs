//! Configuration of a manager.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use quorate_manager::{Address, ManagerConfig};
use quorate_model::{Name, Settings, Strategy};
use quorate_pki::Security;
use quorate_raft::{RaftConfig, Timers};
use quorate_telemetry::logging::{Identity, LogConfig};

use super::layers::{Layers, Schema, list, number};
use super::{LOG_KEYS, files, host_port, log, socket};
use crate::cli::args::ManagerRunArgs;
use crate::document::Problems;
use crate::document::fields;

/// Read when no file is given.
const USUAL: &str = "/etc/quorate/manager.toml";

const SCHEMA: Schema = Schema {
    prefix: "QUORATE_MANAGER_",
    keys: &[
        "node.name",
        "node.data_dir",
        "api.listen",
        "api.advertise",
        "agents.listen",
        "agents.advertise",
        "admin.listen",
        "raft.listen",
        "raft.advertise",
        "raft.heartbeat",
        "raft.election_timeout",
        "raft.snapshot_every",
        "scheduler.strategy",
        "nodes.lease",
        "nodes.orphan_after",
        "tasks.history",
        LOG_KEYS[0],
        LOG_KEYS[1],
        "tls.mode",
    ],
    tables: &["cluster.managers"],
};

/// A manager as its operator wants it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// For the manager.
    pub(crate) config: ManagerConfig,
    /// For its log.
    pub(crate) log: LogConfig,
}

/// Reads the files, the environment and the flags.
///
/// # Errors
/// Everything that is wrong, each with where it comes from.
pub(crate) fn load(
    args: &ManagerRunArgs,
    environment: impl IntoIterator<Item = (String, String)>,
    security: Option<Security>,
) -> Result<Loaded, Problems> {
    let mut layers = Layers::new(SCHEMA);
    layers.files(&files(&args.config, USUAL));
    layers.environment(environment);
    layers.flag("--name", "node.name", args.name.as_ref());
    layers.flag("--data-dir", "node.data_dir", args.data_dir.as_ref());
    layers.flag("--api-listen", "api.listen", args.api_listen.as_ref());
    layers.flag("--agents-listen", "agents.listen", args.agents_listen.as_ref());
    layers.flag("--raft-listen", "raft.listen", args.raft_listen.as_ref());
    layers.flag("--admin-listen", "admin.listen", args.admin_listen.as_ref());
    layers.flag("--managers", "cluster.managers", args.managers.as_ref());
    layers.flag("--log-level", "log.level", args.log.level.as_ref());
    layers.flag("--log-format", "log.format", args.log.format.as_ref());
    layers.flag("--security", "tls.mode", security);
    let loaded = read(&mut layers);
    layers.finish(loaded)
}

fn read(layers: &mut Layers) -> Option<Loaded> {
    let name = layers.require("node.name", "--name", |node| {
        Name::parse("", &fields::text(node)?).map_err(|invalid| invalid.reason)
    });
    let data_dir = layers.require("node.data_dir", "--data-dir", fields::text).map(PathBuf::from);
    let api = address(layers, "api", 7420);
    let agents = address(layers, "agents", 7421);
    let raft = address(layers, "raft", 7422);
    let admin = Address::at(layers.get("admin.listen", socket).unwrap_or_else(|| loopback(7480)));
    let consensus = consensus(layers);
    let settings = settings(layers);
    let security = layers
        .get("tls.mode", |node| fields::text(node)?.parse().map_err(|error| format!("{error}")))
        .unwrap_or_default();
    let identity = Identity::Manager(name.as_ref().map(ToString::to_string).unwrap_or_default());
    let log = log(layers, identity);
    let managers = managers(layers, name.as_ref()?, &raft)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let config = ManagerConfig {
        name: name?,
        data_dir: data_dir?,
        api,
        agents,
        raft,
        admin,
        managers,
        consensus,
        security,
        settings,
        resync: quorate_manager::RESYNC,
        version,
        log: None,
    };
    Some(Loaded { config, log })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn address(layers: &mut Layers, table: &str, port: u16) -> Address {
    let listen = layers.get(&format!("{table}.listen"), socket).unwrap_or_else(|| loopback(port));
    let path = format!("{table}.advertise");
    let advertise = layers.get(&path, host_port);
    if listen.ip().is_unspecified() && advertise.is_none() {
        let message =
            format!("{listen} is every address of this machine: say with {path} which one others dial");
        layers.refuse(&format!("{table}.listen"), &message);
    }
    Address { listen, advertise }
}

/// The managers that form the cluster; this one alone when none are given.
fn managers(layers: &mut Layers, name: &Name, raft: &Address) -> Option<BTreeMap<Name, String>> {
    let own = raft.told(raft.listen);
    let given = layers.table("cluster.managers", |key, node| {
        let name = Name::parse("", key).map_err(|invalid| invalid.reason)?;
        Ok((name, host_port(node)?))
    });
    if given.is_empty() {
        return Some([(name.clone(), own)].into());
    }
    let managers: BTreeMap<Name, String> = given.into_iter().map(|(_, manager)| manager).collect();
    let path = format!("cluster.managers.{name}");
    match managers.get(name) {
        None => {
            let known: Vec<&str> = managers.keys().map(Name::as_str).collect();
            let message = format!(
                "{name} is not among cluster.managers ({}): add it, or mend the name",
                known.join(", ")
            );
            layers.refuse("node.name", &message);
            None
        }
        Some(address) if *address != own => {
            let message = format!(
                "{address} is not where this manager is reached ({own}): make it agree with raft.listen or raft.advertise"
            );
            layers.refuse(&path, &message);
            None
        }
        Some(_) => Some(managers),
    }
}

fn consensus(layers: &mut Layers) -> RaftConfig {
    let mut out = RaftConfig::default();
    let mut timers = Timers::LAN;
    timers.heartbeat = layers.get("raft.heartbeat", fields::duration).unwrap_or(timers.heartbeat);
    let election = layers.get("raft.election_timeout", |node| {
        let spans: Vec<Duration> = list(node)?
            .iter()
            .map(|text| quorate_base::parse_duration(text).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        match spans[..] {
            [least, most] if least < most => Ok((least, most)),
            _ => Err("expected the least and the most, like [\"150ms\", \"300ms\"]".to_owned()),
        }
    });
    (timers.election_min, timers.election_max) =
        election.unwrap_or((timers.election_min, timers.election_max));
    if timers.heartbeat.is_zero() || timers.heartbeat * 2 > timers.election_min {
        let message = format!(
            "{} must be above zero and at most half of the least election timeout ({})",
            quorate_base::format_duration(timers.heartbeat),
            quorate_base::format_duration(timers.election_min)
        );
        layers.refuse("raft.heartbeat", &message);
    }
    out.timers = timers;
    let every = layers.get("raft.snapshot_every", |node| number(node, 100, 100_000_000));
    out.snapshot_every = every.unwrap_or(out.snapshot_every);
    out
}

fn settings(layers: &mut Layers) -> Settings {
    let mut out = Settings::default();
    let strategy = layers.get("scheduler.strategy", |node| {
        let word = fields::text(node)?;
        [Strategy::Spread, Strategy::Binpack]
            .into_iter()
            .find(|strategy| strategy.as_str() == word)
            .ok_or_else(|| format!("{word:?} is unknown; use spread or binpack"))
    });
    out.strategy = strategy.unwrap_or(out.strategy);
    out.node_lease = layers.get("nodes.lease", fields::duration).unwrap_or(out.node_lease);
    out.orphan_after = layers.get("nodes.orphan_after", fields::duration).unwrap_or(out.orphan_after);
    let history = layers.get("tasks.history", |node| number(node, 0, 100));
    out.task_history = history.and_then(|kept| u32::try_from(kept).ok()).unwrap_or(out.task_history);
    if let Err(invalid) = out.validate() {
        for one in invalid.0 {
            let path = match one.path.as_str() {
                "nodeLease" => "nodes.lease",
                "orphanAfter" => "nodes.orphan_after",
                _ => "tasks.history",
            };
            layers.refuse(path, &one.reason);
        }
    }
    out
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
