//! What an agent writes down of its tasks, in the protocol's own words.

use super::{AssignedTask, Workload};
use crate::{common::by_text, generated::agent as pb};

impl From<&Workload> for pb::TaskSpec {
    fn from(value: &Workload) -> Self {
        Self {
            containers: by_text(&value.containers),
            volumes: by_text(&value.volumes),
            ports: by_text(&value.ports),
            restart: Some((&value.restart).into()),
        }
    }
}

impl From<&AssignedTask> for pb::Assignment {
    fn from(value: &AssignedTask) -> Self {
        Self {
            task_id: value.id.0,
            namespace: value.namespace.to_string(),
            job: value.job.to_string(),
            job_version: value.version.0,
            slot: value.slot.0,
            desired_state: value.desired.number().into(),
            spec: value.workload.as_deref().map(Into::into),
            observed_state: value.observed.number().into(),
            observed_seq: value.observed_seq,
            restarts_asked: value.restarts_asked,
            traceparent: value.trace.map(|trace| trace.to_string()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_model::{
        ContainerSpec, JobVersion, Mount, Name, Port, RestartPolicy, RuntimeKind, Slot, TaskId, TaskState,
        TraceContext, Volume,
    };
    use std::collections::BTreeMap;

    #[test]
    fn an_assignment_reads_back() {
        let name = |text: &str| Name::parse("name", text).unwrap();
        let mount = Mount { volume: name("data"), target: "/data".to_owned(), read_only: true };
        let container = ContainerSpec {
            runtime: RuntimeKind::Docker,
            image: Some("busybox:1".to_owned()),
            args: vec!["httpd".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            mounts: vec![mount],
            ..ContainerSpec::default()
        };
        let workload = Workload {
            containers: BTreeMap::from([(name("main"), container)]),
            volumes: BTreeMap::from([(name("data"), Volume::Named { source: "data".to_owned() })]),
            ports: BTreeMap::from([(name("http"), Port { container: 80, host: Some(8080), udp: false })]),
            restart: RestartPolicy { attempts: 0, ..RestartPolicy::default() },
        };
        let task = AssignedTask {
            id: TaskId(7),
            namespace: name("default"),
            job: name("web"),
            version: JobVersion(3),
            slot: Slot(2),
            desired: TaskState::Running,
            workload: Some(workload.into()),
            observed: TaskState::Assigned,
            observed_seq: 9,
            restarts_asked: 2,
            trace: TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        };
        assert_eq!(AssignedTask::try_from(pb::Assignment::from(&task)), Ok(task));
    }
}
