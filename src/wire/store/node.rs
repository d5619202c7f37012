//! Nodes and what their agents say of them.

use quorate_model::{Node, NodeCondition, NodeFacts, NodeId, NodeStatus, Revision};
use quorate_state::Halt;

use super::{
    bad,
    enums::{number, word},
    name,
    pack::moment,
    required,
};
use crate::generated::store as pb;

impl From<&NodeFacts> for pb::NodeFacts {
    fn from(value: &NodeFacts) -> Self {
        let runtime = |(kind, version): (_, &String)| pb::NodeRuntime {
            kind: number::<pb::RuntimeKind, _>(kind),
            version: version.clone(),
        };
        Self {
            hostname: value.hostname.clone(),
            os: value.os.clone(),
            arch: value.arch.clone(),
            agent_version: value.agent_version.clone(),
            labels: value.labels.clone(),
            runtimes: value.runtimes.iter().map(|(kind, version)| runtime((*kind, version))).collect(),
            capacity: Some(value.capacity.into()),
            reserved: Some(value.reserved.into()),
            conditions: value
                .conditions
                .iter()
                .map(|(kind, text)| pb::NodeCondition { kind: kind.number().into(), message: text.clone() })
                .collect(),
        }
    }
}

impl TryFrom<pb::NodeFacts> for NodeFacts {
    type Error = Halt;

    fn try_from(value: pb::NodeFacts) -> Result<Self, Halt> {
        let runtimes = value.runtimes.into_iter();
        Ok(Self {
            hostname: value.hostname,
            os: value.os,
            arch: value.arch,
            agent_version: value.agent_version,
            labels: value.labels,
            runtimes: runtimes
                .map(|r| Ok((word::<pb::RuntimeKind, _>("runtime", r.kind)?, r.version)))
                .collect::<Result<_, Halt>>()?,
            capacity: required("capacity", value.capacity)?.into(),
            reserved: required("reserved resources", value.reserved)?.into(),
            conditions: value
                .conditions
                .into_iter()
                .map(|c| {
                    let kind = NodeCondition::from_number(c.kind)
                        .ok_or_else(|| bad("condition of a node", format!("{} is unknown", c.kind)))?;
                    Ok((kind, c.message))
                })
                .collect::<Result<_, Halt>>()?,
        })
    }
}

impl From<&Node> for pb::Node {
    fn from(value: &Node) -> Self {
        Self {
            id: value.id.0,
            name: value.name.as_str().to_owned(),
            agent: value.agent.clone(),
            facts: Some((&value.facts).into()),
            status: number::<pb::NodeStatus, NodeStatus>(value.status),
            reason: value.reason.clone(),
            eligible: value.eligible,
            status_since_ms: value.status_since.as_millis(),
            created: value.created.0,
            changed: value.changed.0,
        }
    }
}

impl TryFrom<pb::Node> for Node {
    type Error = Halt;

    fn try_from(value: pb::Node) -> Result<Self, Halt> {
        Ok(Self {
            id: NodeId(value.id),
            name: name("name of a node", &value.name)?,
            agent: value.agent,
            facts: required("facts of a node", value.facts)?.try_into()?,
            status: word::<pb::NodeStatus, _>("node status", value.status)?,
            reason: value.reason,
            eligible: value.eligible,
            status_since: moment(value.status_since_ms),
            created: Revision(value.created),
            changed: Revision(value.changed),
        })
    }
}
