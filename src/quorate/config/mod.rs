//! Configuration of the daemons: files, then the environment, then flags; a later one overrides.
//!
//! Files are TOML. An environment variable is the prefix and the path with `__` for each dot:
//! `QUORATE_MANAGER_RAFT__HEARTBEAT=50ms` is `raft.heartbeat`. Lists are separated by commas there, tables are
//! `key=value` pairs. Tables of free keys (labels, managers) are merged key by key.

pub(crate) mod agent;
mod layers;
pub(crate) mod manager;

use std::net::SocketAddr;
use std::path::Path;

use quorate_telemetry::logging::{Format, Identity, LogConfig};

use crate::document::Node;
use crate::document::fields;
use layers::Layers;

/// Settings of the log: `log.level`, `log.format`.
const LOG_KEYS: [&str; 2] = ["log.level", "log.format"];

/// What is logged unless told. The consensus library reports each missed heartbeat of each dead peer, at a rate that
/// fills disks; what matters of it our own crates say.
const LOG_FILTER: &str = "info,openraft=off";

/// Reads the log's settings.
fn log(layers: &mut Layers, identity: Identity) -> LogConfig {
    let filter = layers.get("log.level", fields::text).unwrap_or_else(|| LOG_FILTER.to_owned());
    let format = layers
        .get("log.format", |node| fields::text(node)?.parse::<Format>().map_err(|error| error.to_string()))
        .unwrap_or_default();
    LogConfig { filter, format, identity }
}

/// `-c` as given, or the usual file where there is one.
fn files(given: &[String], usual: &str) -> Vec<String> {
    if given.is_empty() && Path::new(usual).is_file() { vec![usual.to_owned()] } else { given.to_vec() }
}

/// An address to listen on.
fn socket(node: &Node) -> Result<SocketAddr, String> {
    let text = fields::text(node)?;
    text.parse()
        .map_err(|_| format!("{text:?} is no address to listen on: write IP:PORT, like 127.0.0.1:7420"))
}

/// An address that others dial.
fn host_port(node: &Node) -> Result<String, String> {
    let text = fields::text(node)?;
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port != 0 => Ok(text),
        _ => Err(format!("{text:?} is no address: write HOST:PORT, like 10.0.0.1:7420")),
    }
}
