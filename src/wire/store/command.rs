//! Commands as payloads, one message per kind.

use prost::Message;
use quorate_model::{Name, Revision, TaskId};
use quorate_state::{Command, CommandKind, Halt};

use super::{bad, enums::number, pack::deltas};
use crate::generated::store as pb;

/// The encoded payload of a command; its kind stands beside it.
pub(super) fn encode(command: &Command) -> Vec<u8> {
    use Command as C;
    match command {
        C::ApplyJob { spec, expect } => {
            pb::ApplyJob { spec: Some((&**spec).into()), expect: revision(*expect) }.encode_to_vec()
        }
        C::ScaleJob { namespace, name, replicas, expect } => pb::ScaleJob {
            namespace: text(namespace),
            name: text(name),
            replicas: *replicas,
            expect: revision(*expect),
        }
        .encode_to_vec(),
        C::DeleteJob { namespace, name, purge, expect } => pb::DeleteJob {
            namespace: text(namespace),
            name: text(name),
            purge: *purge,
            expect: revision(*expect),
        }
        .encode_to_vec(),
        C::SetJobStatus { job, version, status } => {
            let status = number::<pb::JobStatus, _>(*status);
            pb::SetJobStatus { job: job.0, version: version.0, status }.encode_to_vec()
        }
        C::ForgetJob { job } => pb::ForgetJob { job: job.0 }.encode_to_vec(),
        C::CreateTasks { job, version, groups } => {
            let groups = groups.iter().map(Into::into).collect();
            pb::CreateTasks { job: job.0, version: version.0, groups }.encode_to_vec()
        }
        C::AssignTasks { placements } => {
            let nodes = placements.iter().map(|(_, node)| node.0).collect();
            let task_deltas = deltas(placements.iter().map(|(task, _)| *task));
            pb::AssignTasks { task_deltas, nodes }.encode_to_vec()
        }
        C::SetDesired { desired, tasks } => {
            pb::SetDesired { desired: desired.number().into(), task_deltas: packed(tasks) }.encode_to_vec()
        }
        C::ExplainTasks { groups } => {
            pb::ExplainTasks { groups: groups.iter().map(Into::into).collect() }.encode_to_vec()
        }
        C::ReportStatuses { node, reports } => {
            let reports = reports.iter().map(Into::into).collect();
            pb::ReportStatuses { node: node.0, reports }.encode_to_vec()
        }
        C::OrphanTasks { tasks } => pb::OrphanTasks { task_deltas: packed(tasks) }.encode_to_vec(),
        C::RemoveTasks { tasks } => pb::RemoveTasks { task_deltas: packed(tasks) }.encode_to_vec(),
        C::RestartTasks { tasks } => pb::RestartTasks { task_deltas: packed(tasks) }.encode_to_vec(),
        C::RegisterNode { name, agent, facts } => {
            let facts = Some((&**facts).into());
            pb::RegisterNode { name: text(name), agent: agent.clone(), facts }.encode_to_vec()
        }
        C::SetNodeStatus { node, status, reason } => {
            let status = number::<pb::NodeStatus, _>(*status);
            pb::SetNodeStatus { node: node.0, status, reason: reason.clone() }.encode_to_vec()
        }
        C::UpsertManager { manager } => pb::UpsertManager { manager: Some(manager.into()) }.encode_to_vec(),
        C::RemoveManager { id } => pb::RemoveManager { id: id.0 }.encode_to_vec(),
        C::UpdateSettings { settings } => {
            pb::UpdateSettings { settings: Some(settings.into()) }.encode_to_vec()
        }
        C::InitCluster { cluster, epoch } => {
            let cluster = cluster.as_u128().to_be_bytes().to_vec().into();
            pb::InitCluster { cluster, epoch: epoch.0 }.encode_to_vec()
        }
    }
}

/// Reads the payload of a command of that kind.
pub(super) fn decode(kind: CommandKind, payload: &[u8]) -> Result<Command, Halt> {
    match kind {
        CommandKind::ApplyJob => read::<pb::ApplyJob>(payload),
        CommandKind::ScaleJob => read::<pb::ScaleJob>(payload),
        CommandKind::DeleteJob => read::<pb::DeleteJob>(payload),
        CommandKind::SetJobStatus => read::<pb::SetJobStatus>(payload),
        CommandKind::ForgetJob => read::<pb::ForgetJob>(payload),
        CommandKind::CreateTasks => read::<pb::CreateTasks>(payload),
        CommandKind::AssignTasks => read::<pb::AssignTasks>(payload),
        CommandKind::SetDesired => read::<pb::SetDesired>(payload),
        CommandKind::ExplainTasks => read::<pb::ExplainTasks>(payload),
        CommandKind::ReportStatuses => read::<pb::ReportStatuses>(payload),
        CommandKind::OrphanTasks => read::<pb::OrphanTasks>(payload),
        CommandKind::RemoveTasks => read::<pb::RemoveTasks>(payload),
        CommandKind::RestartTasks => read::<pb::RestartTasks>(payload),
        CommandKind::RegisterNode => read::<pb::RegisterNode>(payload),
        CommandKind::SetNodeStatus => read::<pb::SetNodeStatus>(payload),
        CommandKind::UpsertManager => read::<pb::UpsertManager>(payload),
        CommandKind::RemoveManager => read::<pb::RemoveManager>(payload),
        CommandKind::UpdateSettings => read::<pb::UpdateSettings>(payload),
        CommandKind::InitCluster => read::<pb::InitCluster>(payload),
    }
}

fn read<P>(payload: &[u8]) -> Result<Command, Halt>
where
    P: Message + Default,
    Command: TryFrom<P, Error = Halt>,
{
    P::decode(payload).map_err(|error| bad("payload", error.to_string()))?.try_into()
}

fn text(name: &Name) -> String {
    name.as_str().to_owned()
}

fn revision(expect: Option<Revision>) -> Option<u64> {
    expect.map(|revision| revision.0)
}

fn packed(tasks: &[TaskId]) -> Vec<i64> {
    deltas(tasks.iter().copied())
}
