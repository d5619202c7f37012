//! What payloads say, as commands.

use std::sync::Arc;

use quorate_model::{Epoch, Explanation, JobId, JobVersion, NodeId, RaftId, Revision, Slot, TaskId};
use quorate_state::{Command, Halt, NewTasks, Report};

use super::{
    bad,
    enums::{task_state, word},
    name,
    pack::{all, cluster, deltas, ids, moment},
    required,
};
use crate::generated::store as pb;

/// A command on which nothing but the ids of tasks need reading.
macro_rules! from_tasks {
    ($($name:ident),+) => {$(
        impl TryFrom<pb::$name> for Command {
            type Error = Halt;

            fn try_from(value: pb::$name) -> Result<Self, Halt> {
                Ok(Self::$name { tasks: ids(value.task_deltas).collect() })
            }
        }
    )+};
}

from_tasks!(OrphanTasks, RemoveTasks, RestartTasks);

impl TryFrom<pb::ApplyJob> for Command {
    type Error = Halt;

    fn try_from(value: pb::ApplyJob) -> Result<Self, Halt> {
        let spec = Arc::new(required("specification", value.spec)?.try_into()?);
        Ok(Self::ApplyJob { spec, expect: value.expect.map(Revision) })
    }
}

impl TryFrom<pb::ScaleJob> for Command {
    type Error = Halt;

    fn try_from(value: pb::ScaleJob) -> Result<Self, Halt> {
        Ok(Self::ScaleJob {
            namespace: name("namespace", &value.namespace)?,
            name: name("name of a job", &value.name)?,
            replicas: value.replicas,
            expect: value.expect.map(Revision),
        })
    }
}

impl TryFrom<pb::DeleteJob> for Command {
    type Error = Halt;

    fn try_from(value: pb::DeleteJob) -> Result<Self, Halt> {
        Ok(Self::DeleteJob {
            namespace: name("namespace", &value.namespace)?,
            name: name("name of a job", &value.name)?,
            purge: value.purge,
            expect: value.expect.map(Revision),
        })
    }
}

impl TryFrom<pb::SetJobStatus> for Command {
    type Error = Halt;

    fn try_from(value: pb::SetJobStatus) -> Result<Self, Halt> {
        let status = word::<pb::JobStatus, _>("job status", value.status)?;
        Ok(Self::SetJobStatus { job: JobId(value.job), version: JobVersion(value.version), status })
    }
}

impl TryFrom<pb::ForgetJob> for Command {
    type Error = Halt;

    fn try_from(value: pb::ForgetJob) -> Result<Self, Halt> {
        Ok(Self::ForgetJob { job: JobId(value.job) })
    }
}

impl From<&NewTasks> for pb::NewTasks {
    fn from(value: &NewTasks) -> Self {
        Self {
            first: value.first.0,
            count: value.count,
            attempt: value.attempt,
            not_before_ms: value.not_before.as_millis(),
        }
    }
}

impl From<pb::NewTasks> for NewTasks {
    fn from(value: pb::NewTasks) -> Self {
        Self {
            first: Slot(value.first),
            count: value.count,
            attempt: value.attempt,
            not_before: moment(value.not_before_ms),
        }
    }
}

impl TryFrom<pb::CreateTasks> for Command {
    type Error = Halt;

    fn try_from(value: pb::CreateTasks) -> Result<Self, Halt> {
        Ok(Self::CreateTasks {
            job: JobId(value.job),
            version: JobVersion(value.version),
            groups: value.groups.into_iter().map(Into::into).collect(),
        })
    }
}

impl TryFrom<pb::AssignTasks> for Command {
    type Error = Halt;

    fn try_from(value: pb::AssignTasks) -> Result<Self, Halt> {
        let (tasks, nodes) = (value.task_deltas.len(), value.nodes.len());
        if tasks != nodes {
            return Err(bad("placements", format!("name {tasks} tasks but {nodes} nodes")));
        }
        let nodes = value.nodes.into_iter().map(NodeId);
        Ok(Self::AssignTasks { placements: ids(value.task_deltas).zip(nodes).collect() })
    }
}

impl TryFrom<pb::SetDesired> for Command {
    type Error = Halt;

    fn try_from(value: pb::SetDesired) -> Result<Self, Halt> {
        let desired = task_state(value.desired)?;
        Ok(Self::SetDesired { desired, tasks: ids(value.task_deltas).collect() })
    }
}

impl From<&(Arc<Explanation>, Vec<TaskId>)> for pb::ExplainedTasks {
    fn from((explanation, tasks): &(Arc<Explanation>, Vec<TaskId>)) -> Self {
        Self { explanation: Some((&**explanation).into()), task_deltas: deltas(tasks.iter().copied()) }
    }
}

impl TryFrom<pb::ExplainTasks> for Command {
    type Error = Halt;

    fn try_from(value: pb::ExplainTasks) -> Result<Self, Halt> {
        let group = |group: pb::ExplainedTasks| {
            let explanation = required("explanation", group.explanation)?.try_into()?;
            Ok((Arc::new(explanation), ids(group.task_deltas).collect()))
        };
        let groups = value.groups.into_iter().map(group).collect::<Result<_, Halt>>()?;
        Ok(Self::ExplainTasks { groups })
    }
}

impl From<&Report> for pb::Report {
    fn from(value: &Report) -> Self {
        Self { task: value.task.0, status: Some((&value.status).into()) }
    }
}

impl TryFrom<pb::Report> for Report {
    type Error = Halt;

    fn try_from(value: pb::Report) -> Result<Self, Halt> {
        Ok(Self {
            task: TaskId(value.task),
            status: required("status of a report", value.status)?.try_into()?,
        })
    }
}

impl TryFrom<pb::ReportStatuses> for Command {
    type Error = Halt;

    fn try_from(value: pb::ReportStatuses) -> Result<Self, Halt> {
        Ok(Self::ReportStatuses { node: NodeId(value.node), reports: all(value.reports)? })
    }
}

impl TryFrom<pb::RegisterNode> for Command {
    type Error = Halt;

    fn try_from(value: pb::RegisterNode) -> Result<Self, Halt> {
        Ok(Self::RegisterNode {
            name: name("name of a node", &value.name)?,
            agent: value.agent,
            facts: Arc::new(required("facts of a node", value.facts)?.try_into()?),
        })
    }
}

impl TryFrom<pb::SetNodeStatus> for Command {
    type Error = Halt;

    fn try_from(value: pb::SetNodeStatus) -> Result<Self, Halt> {
        let status = word::<pb::NodeStatus, _>("node status", value.status)?;
        Ok(Self::SetNodeStatus { node: NodeId(value.node), status, reason: value.reason })
    }
}

impl TryFrom<pb::UpsertManager> for Command {
    type Error = Halt;

    fn try_from(value: pb::UpsertManager) -> Result<Self, Halt> {
        Ok(Self::UpsertManager { manager: required("manager", value.manager)?.try_into()? })
    }
}

impl TryFrom<pb::RemoveManager> for Command {
    type Error = Halt;

    fn try_from(value: pb::RemoveManager) -> Result<Self, Halt> {
        Ok(Self::RemoveManager { id: RaftId(value.id) })
    }
}

impl TryFrom<pb::UpdateSettings> for Command {
    type Error = Halt;

    fn try_from(value: pb::UpdateSettings) -> Result<Self, Halt> {
        Ok(Self::UpdateSettings { settings: required("settings", value.settings)?.try_into()? })
    }
}

impl TryFrom<pb::InitCluster> for Command {
    type Error = Halt;

    fn try_from(value: pb::InitCluster) -> Result<Self, Halt> {
        Ok(Self::InitCluster { cluster: cluster(&value.cluster)?, epoch: Epoch(value.epoch) })
    }
}
