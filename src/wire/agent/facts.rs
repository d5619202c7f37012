//! What agents say: facts of their machines, statuses of their tasks.

use std::sync::Arc;

use quorate_model::{
    InvalidList, NodeCondition, NodeFacts, RuntimeKind, TaskEvent, TaskEventKind, TaskId, TaskState,
    TaskStatus,
    task::{MAX_DETAIL, MAX_EVENTS, MAX_REASON, cut},
};
use quorate_state::Report;

use crate::{
    common::{moment, timestamp},
    generated::agent as pb,
};

/// Most bytes of the name of what runs a task, or of a runtime's version.
const MAX_TEXT: usize = 255;

impl From<&NodeFacts> for pb::NodeFacts {
    fn from(value: &NodeFacts) -> Self {
        let runtimes = value.runtimes.iter();
        Self {
            hostname: value.hostname.clone(),
            os: value.os.clone(),
            arch: value.arch.clone(),
            agent_version: value.agent_version.clone(),
            labels: value.labels.clone(),
            runtimes: runtimes.map(|(kind, version)| (kind.as_str().to_owned(), version.clone())).collect(),
            capacity: Some(value.capacity.into()),
            reserved: Some(value.reserved.into()),
            conditions: value
                .conditions
                .iter()
                .map(|(kind, text)| (kind.as_str().to_owned(), text.clone()))
                .collect(),
        }
    }
}

impl TryFrom<pb::NodeFacts> for NodeFacts {
    type Error = InvalidList;

    /// Converts and checks. A runtime or condition that only newer managers know is left out: nothing hangs on it here.
    fn try_from(value: pb::NodeFacts) -> Result<Self, InvalidList> {
        let mut out = InvalidList::default();
        let runtimes: Vec<(RuntimeKind, String)> = value
            .runtimes
            .into_iter()
            .filter_map(|(word, version)| Some((RuntimeKind::from_word(&word)?, version)))
            .collect();
        for (kind, version) in &runtimes {
            if version.len() > MAX_TEXT {
                out.push(format!("runtimes.{}", kind.as_str()), format!("longer than {MAX_TEXT} bytes"));
            }
        }
        let facts = Self {
            hostname: value.hostname,
            os: value.os,
            arch: value.arch,
            agent_version: value.agent_version,
            labels: value.labels,
            runtimes: runtimes.into_iter().collect(),
            capacity: value.capacity.unwrap_or_default().into(),
            reserved: value.reserved.unwrap_or_default().into(),
            conditions: value
                .conditions
                .into_iter()
                .filter_map(|(word, text)| Some((NodeCondition::from_word(&word)?, text)))
                .collect(),
        };
        if let Err(list) = facts.validate() {
            out.0.extend(list.0);
        }
        out.into_result().map(|()| facts)
    }
}

impl From<&Report> for pb::TaskStatus {
    fn from(value: &Report) -> Self {
        let status = &value.status;
        Self {
            task_id: value.task.0,
            state: status.state.number().into(),
            seq: status.seq,
            time: Some(timestamp(status.at)),
            running_since: status.running_since.map(timestamp),
            exit_code: status.exit_code,
            restarts: status.restarts,
            instance: status.instance.to_string(),
            reason: status.reason.to_string(),
            events: status.events.iter().map(Into::into).collect(),
        }
    }
}

impl From<&TaskEvent> for pb::TaskEvent {
    fn from(value: &TaskEvent) -> Self {
        Self {
            kind: value.kind.number().into(),
            time: Some(timestamp(value.at)),
            code: value.code,
            detail: value.detail.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

/// The newest events of a history; kinds that only newer managers know are left out.
fn events(sent: Vec<pb::TaskEvent>) -> Arc<[TaskEvent]> {
    let from = sent.len().saturating_sub(MAX_EVENTS);
    let known = sent.into_iter().skip(from).filter_map(|event| {
        let detail = Some(cut(&event.detail, MAX_DETAIL)).filter(|text| !text.is_empty());
        Some(TaskEvent {
            kind: TaskEventKind::from_number(event.kind)?,
            at: event.time.as_ref().map(moment).unwrap_or_default(),
            code: event.code,
            detail: detail.map(Into::into),
        })
    });
    known.collect()
}

impl TryFrom<pb::TaskStatus> for Report {
    type Error = InvalidList;

    /// Converts and checks; a long reason is cut.
    fn try_from(value: pb::TaskStatus) -> Result<Self, InvalidList> {
        let mut out = InvalidList::default();
        let known = u16::try_from(value.state).ok().and_then(TaskState::from_number);
        let state = known.filter(|state| state.may_be_reported());
        if state.is_none() {
            out.push("state", format!("{} is no state that an agent may report", value.state));
        }
        if value.instance.len() > MAX_TEXT {
            out.push("instance", format!("longer than {MAX_TEXT} bytes"));
        }
        let (Some(state), []) = (state, out.0.as_slice()) else { return Err(out) };
        let status = TaskStatus {
            state,
            seq: value.seq,
            at: value.time.as_ref().map(moment).unwrap_or_default(),
            running_since: value.running_since.as_ref().map(moment),
            exit_code: value.exit_code,
            restarts: value.restarts,
            instance: value.instance.into(),
            reason: cut(&value.reason, MAX_REASON).into(),
            events: events(value.events),
        };
        Ok(Self { task: TaskId(value.task_id), status })
    }
}
