//! Tasks, their statuses and the reasons why they wait.

use std::sync::Arc;

use quorate_model::{
    Explanation, Filter, JobId, JobVersion, NodeId, Reason, Revision, Slot, Task, TaskEvent, TaskEventKind,
    TaskId, TaskStatus,
};
use quorate_state::Halt;

use super::{
    bad,
    enums::{number, task_state, word},
    pack::{all, moment},
    required,
};
use crate::generated::store as pb;

impl From<&TaskStatus> for pb::TaskStatus {
    fn from(value: &TaskStatus) -> Self {
        Self {
            state: value.state.number().into(),
            seq: value.seq,
            at_ms: value.at.as_millis(),
            running_since_ms: value.running_since.map(|at| at.as_millis()),
            exit_code: value.exit_code,
            restarts: value.restarts,
            instance: value.instance.to_string(),
            reason: value.reason.to_string(),
            events: value.events.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::TaskStatus> for TaskStatus {
    type Error = Halt;

    fn try_from(value: pb::TaskStatus) -> Result<Self, Halt> {
        Ok(Self {
            state: task_state(value.state)?,
            seq: value.seq,
            at: moment(value.at_ms),
            running_since: value.running_since_ms.map(moment),
            exit_code: value.exit_code,
            restarts: value.restarts,
            instance: value.instance.into(),
            reason: value.reason.into(),
            events: all(value.events)?.into(),
        })
    }
}

impl From<&TaskEvent> for pb::TaskEvent {
    fn from(value: &TaskEvent) -> Self {
        Self {
            kind: value.kind.number().into(),
            at_ms: value.at.as_millis(),
            code: value.code,
            detail: value.detail.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl TryFrom<pb::TaskEvent> for TaskEvent {
    type Error = Halt;

    fn try_from(value: pb::TaskEvent) -> Result<Self, Halt> {
        let kind = TaskEventKind::from_number(value.kind)
            .ok_or_else(|| bad("event of a task", format!("{} is unknown", value.kind)))?;
        let detail = Some(value.detail).filter(|text| !text.is_empty()).map(Into::into);
        Ok(Self { kind, at: moment(value.at_ms), code: value.code, detail })
    }
}

impl From<&Reason> for pb::Reason {
    fn from(value: &Reason) -> Self {
        Self {
            filter: number::<pb::Filter, Filter>(value.filter),
            nodes: value.nodes,
            detail: value.detail.clone(),
        }
    }
}

impl TryFrom<pb::Reason> for Reason {
    type Error = Halt;

    fn try_from(value: pb::Reason) -> Result<Self, Halt> {
        let filter = word::<pb::Filter, _>("filter", value.filter)?;
        Ok(Self { filter, nodes: value.nodes, detail: value.detail })
    }
}

impl From<&Explanation> for pb::Explanation {
    fn from(value: &Explanation) -> Self {
        Self { total: value.total, reasons: value.reasons.iter().map(Into::into).collect() }
    }
}

impl TryFrom<pb::Explanation> for Explanation {
    type Error = Halt;

    fn try_from(value: pb::Explanation) -> Result<Self, Halt> {
        Ok(Self { total: value.total, reasons: all(value.reasons)? })
    }
}

impl From<&Task> for pb::Task {
    fn from(value: &Task) -> Self {
        Self {
            id: value.id.0,
            job: value.job.0,
            version: value.version.0,
            slot: value.slot.0,
            attempt: value.attempt,
            node: value.node.map(|node| node.0),
            desired: value.desired.number().into(),
            not_before_ms: value.not_before.as_millis(),
            status: Some((&value.status).into()),
            explanation: value.explanation.as_deref().map(Into::into),
            created: value.created.0,
            created_at_ms: value.created_at.as_millis(),
            changed: value.changed.0,
            restarts_asked: value.restarts_asked,
        }
    }
}

impl TryFrom<pb::Task> for Task {
    type Error = Halt;

    fn try_from(value: pb::Task) -> Result<Self, Halt> {
        Ok(Self {
            id: TaskId(value.id),
            job: JobId(value.job),
            version: JobVersion(value.version),
            slot: Slot(value.slot),
            attempt: value.attempt,
            node: value.node.map(NodeId),
            desired: task_state(value.desired)?,
            restarts_asked: value.restarts_asked,
            not_before: moment(value.not_before_ms),
            status: required("status of a task", value.status)?.try_into()?,
            explanation: value.explanation.map(|e| e.try_into().map(Arc::new)).transpose()?,
            created: Revision(value.created),
            created_at: moment(value.created_at_ms),
            changed: Revision(value.changed),
        })
    }
}
