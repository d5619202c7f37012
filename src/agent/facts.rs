//! What the agent says of its machine.

use std::collections::BTreeMap;

use quorate_model::{NodeFacts, Resources, RuntimeKind};
use sysinfo::System;

use crate::config::AgentConfig;

/// The facts of this machine as `config` shapes them, with the runtimes that answer.
#[must_use]
pub(crate) fn gather(config: &AgentConfig, runtimes: BTreeMap<RuntimeKind, String>) -> NodeFacts {
    NodeFacts {
        hostname: System::host_name().unwrap_or_default(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        labels: config.labels.clone(),
        runtimes,
        capacity: config.capacity.unwrap_or_else(capacity),
        reserved: config.reserved,
        conditions: BTreeMap::new(),
    }
}

/// Processors and memory, of the container that the agent runs in if it runs in one.
fn capacity() -> Resources {
    let memory_bytes = System::new().map_or_else(
        |error| {
            tracing::error!(%error, "cannot read how much memory the machine has: configure the node's capacity");
            0
        },
        |mut system| {
            system.refresh_memory();
            let total = system.total_memory();
            let limit = system.cgroup_limits().map(|limits| limits.total_memory).filter(|limit| *limit > 0);
            limit.map_or(total, |limit| limit.min(total))
        },
    );
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    Resources { cpu_millis: cores.saturating_mul(1_000), memory_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_processors_and_memory() {
        let capacity = capacity();
        assert!(capacity.cpu_millis >= 1_000 && capacity.cpu_millis.is_multiple_of(1_000));
        assert!(capacity.memory_bytes > 64 << 20, "{capacity}");
    }
}
