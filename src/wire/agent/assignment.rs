//! What an agent must run.

use std::{collections::BTreeMap, sync::Arc};

use quorate_model::{
    ContainerSpec, InvalidList, JobSpec, JobVersion, Name, Port, RestartCondition, RestartPolicy, Slot, Task,
    TaskId, TaskState, TraceContext, Volume,
};
use quorate_state::State;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    common::{by_text, containers, ports, restart, volumes},
    generated::agent as pb,
};

/// The part of a job's specification that an agent needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Containers by name.
    pub containers: BTreeMap<Name, ContainerSpec>,
    /// Volumes by name.
    pub volumes: BTreeMap<Name, Volume>,
    /// Ports by name.
    pub ports: BTreeMap<Name, Port>,
    /// Restarts in place.
    pub restart: RestartPolicy,
}

/// A task as an agent receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedTask {
    /// Which task.
    pub id: TaskId,
    /// Namespace of its job.
    pub namespace: Name,
    /// Name of its job.
    pub job: Name,
    /// Version of its job.
    pub version: JobVersion,
    /// Which replica.
    pub slot: Slot,
    /// What the leader wants.
    pub desired: TaskState,
    /// What to run; `None` when only the desired state changed.
    pub workload: Option<Arc<Workload>>,
    /// Newest state that the managers know.
    pub observed: TaskState,
    /// Number of the newest report that the managers know.
    pub observed_seq: u64,
    /// How often a user asked for a restart in place.
    pub restarts_asked: u32,
    /// Trace that the job's last edit belongs to.
    pub trace: Option<TraceContext>,
}

/// A task for its agent, with what it runs; `None` when its job is gone, which no task outlives.
#[must_use]
pub fn assignment(state: &State, task: &Task) -> Option<pb::Assignment> {
    let job = state.job(task.job)?;
    let spec = state.spec_of(task)?;
    Some(pb::Assignment {
        task_id: task.id.0,
        namespace: job.namespace.as_str().to_owned(),
        job: job.name.as_str().to_owned(),
        job_version: task.version.0,
        slot: task.slot.0,
        desired_state: task.desired.number().into(),
        spec: Some((&**spec).into()),
        observed_state: task.status.state.number().into(),
        observed_seq: task.status.seq,
        restarts_asked: task.restarts_asked,
        traceparent: job.trace.map(|trace| trace.to_string()).unwrap_or_default(),
    })
}

impl From<&JobSpec> for pb::TaskSpec {
    fn from(value: &JobSpec) -> Self {
        Self {
            containers: by_text(&value.containers),
            volumes: by_text(&value.volumes),
            ports: by_text(&value.ports),
            restart: Some((&value.restart).into()),
        }
    }
}

impl TryFrom<pb::TaskSpec> for Workload {
    type Error = InvalidList;

    fn try_from(value: pb::TaskSpec) -> Result<Self, InvalidList> {
        let mut out = InvalidList::default();
        let workload = Self {
            containers: containers(value.containers, &mut out),
            volumes: volumes(value.volumes, &mut out),
            ports: ports(value.ports, &mut out),
            restart: restart(value.restart, RestartCondition::Any, &mut out),
        };
        out.into_result().map(|()| workload)
    }
}

impl TryFrom<pb::Assignment> for AssignedTask {
    type Error = InvalidList;

    fn try_from(value: pb::Assignment) -> Result<Self, InvalidList> {
        let mut out = InvalidList::default();
        let namespace = Name::parse("namespace", &value.namespace).map_err(|i| out.0.push(i)).ok();
        let job = Name::parse("job", &value.job).map_err(|i| out.0.push(i)).ok();
        let desired = state("desiredState", value.desired_state, &mut out);
        let observed = state("observedState", value.observed_state, &mut out);
        let workload = value.spec.map(Workload::try_from).transpose();
        let workload = workload.map_err(|list| out.0.extend(list.0)).ok().flatten();
        let (Some(namespace), Some(job), Some(desired), Some(observed), []) =
            (namespace, job, desired, observed, out.0.as_slice())
        else {
            return Err(out);
        };
        Ok(Self {
            id: TaskId(value.task_id),
            namespace,
            job,
            version: JobVersion(value.job_version),
            slot: Slot(value.slot),
            desired,
            workload: workload.map(Arc::new),
            observed,
            observed_seq: value.observed_seq,
            restarts_asked: value.restarts_asked,
            trace: TraceContext::parse(&value.traceparent),
        })
    }
}

fn state(path: &str, number: u32, out: &mut InvalidList) -> Option<TaskState> {
    let state = u16::try_from(number).ok().and_then(TaskState::from_number);
    if state.is_none() {
        out.push(path, format!("{number} is a state that this agent does not know: upgrade it"));
    }
    state
}

/// What the leader wants of a task, as far as it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Desired state.
    pub desired: TaskState,
    /// How often a user asked for a restart in place.
    pub restarts_asked: u32,
}

impl Wanted {
    /// What is wanted of the task.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self { desired: task.desired, restarts_asked: task.restarts_asked }
    }
}

/// Hash of a set of tasks with what is wanted of them: the wrapping sum over its [`member_hash`]es, so that the order
/// does not matter and a change costs no more than what changed.
pub fn set_hash(members: impl IntoIterator<Item = (TaskId, Wanted)>) -> u64 {
    members.into_iter().map(|(id, wanted)| member_hash(id, wanted)).fold(0, u64::wrapping_add)
}

/// One task's share of a [`set_hash`]: add it when the task comes, subtract it when it goes (wrapping).
#[must_use]
pub fn member_hash(id: TaskId, wanted: Wanted) -> u64 {
    let mut bytes = [0_u8; 14];
    let (first, rest) = bytes.split_at_mut(8);
    let (second, third) = rest.split_at_mut(2);
    first.copy_from_slice(&id.0.to_le_bytes());
    second.copy_from_slice(&wanted.desired.number().to_le_bytes());
    third.copy_from_slice(&wanted.restarts_asked.to_le_bytes());
    xxh3_64(&bytes)
}
