//! Managers and the cluster's settings.

use std::time::Duration;

use quorate_model::{ClusterVersion, Manager, RaftId, Revision, Settings, Strategy};
use quorate_state::Halt;

use super::{
    enums::{number, word},
    name,
    pack::millis,
};
use crate::generated::store as pb;

impl From<&Manager> for pb::Manager {
    fn from(value: &Manager) -> Self {
        Self {
            id: value.id.0,
            name: value.name.as_str().to_owned(),
            api_addr: value.api_addr.clone(),
            agent_addr: value.agent_addr.clone(),
            raft_addr: value.raft_addr.clone(),
            binary_version: value.binary_version.clone(),
            can_follow: value.can_follow.0,
            changed: value.changed.0,
        }
    }
}

impl TryFrom<pb::Manager> for Manager {
    type Error = Halt;

    fn try_from(value: pb::Manager) -> Result<Self, Halt> {
        Ok(Self {
            id: RaftId(value.id),
            name: name("name of a manager", &value.name)?,
            api_addr: value.api_addr,
            agent_addr: value.agent_addr,
            raft_addr: value.raft_addr,
            binary_version: value.binary_version,
            can_follow: ClusterVersion(value.can_follow),
            changed: Revision(value.changed),
        })
    }
}

impl From<&Settings> for pb::Settings {
    fn from(value: &Settings) -> Self {
        Self {
            strategy: number::<pb::Strategy, Strategy>(value.strategy),
            node_lease_ms: millis(value.node_lease),
            orphan_after_ms: millis(value.orphan_after),
            task_history: value.task_history,
            version: value.version.0,
        }
    }
}

impl TryFrom<pb::Settings> for Settings {
    type Error = Halt;

    fn try_from(value: pb::Settings) -> Result<Self, Halt> {
        Ok(Self {
            strategy: word::<pb::Strategy, _>("strategy", value.strategy)?,
            node_lease: Duration::from_millis(value.node_lease_ms),
            orphan_after: Duration::from_millis(value.orphan_after_ms),
            task_history: value.task_history,
            version: ClusterVersion(value.version),
        })
    }
}
