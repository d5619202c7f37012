//! Objects of the state as clients see them.

use quorate_model::{
    Explanation, Filter, Job, JobKind, JobStatus, Manager, Node, NodeStatus, RaftId, Task, TaskEvent,
    TaskState,
};
use quorate_state::State;

use super::token::etag;
use crate::{common::timestamp, generated::api as pb};

/// A job with the counts of its tasks.
#[must_use]
pub fn job(state: &State, job: &Job) -> pb::Job {
    pb::Job {
        namespace: job.namespace.as_str().to_owned(),
        name: job.name.as_str().to_owned(),
        version: job.version.0,
        status: job_status(job.status).into(),
        spec: job.spec().map(|spec| (&**spec).into()),
        counts: Some(counts(state, job)),
        etag: etag(job.edited),
        revision: job.changed.0,
        create_time: Some(timestamp(job.created_at)),
        update_time: Some(timestamp(job.changed_at)),
        converged: is_converged(state, job),
        edited_by: job.edited_by.to_string(),
        edit_time: Some(timestamp(job.edited_at)),
        edit_revision: job.edited.0,
    }
}

/// How far a job is.
#[must_use]
pub fn job_status(status: JobStatus) -> pb::JobStatus {
    match status {
        JobStatus::Active => pb::JobStatus::Active,
        JobStatus::Complete => pb::JobStatus::Complete,
        JobStatus::Failed => pb::JobStatus::Failed,
        JobStatus::Stopped => pb::JobStatus::Stopped,
        JobStatus::Purging => pb::JobStatus::Purging,
    }
}

/// What the leader thinks of a node.
#[must_use]
pub fn node_status(status: NodeStatus) -> pb::NodeStatus {
    match status {
        NodeStatus::Ready => pb::NodeStatus::Ready,
        NodeStatus::Down => pb::NodeStatus::Down,
    }
}

/// Tasks that should live at once by now.
fn desired(job: &Job) -> u32 {
    match job.spec().map(|spec| spec.kind) {
        Some(JobKind::Service { replicas }) if job.status.wants_tasks() => replicas,
        Some(JobKind::Batch { completions, parallelism }) if job.status.wants_tasks() => {
            completions.saturating_sub(job.succeeded).min(parallelism)
        }
        _ => 0,
    }
}

fn counts(state: &State, job: &Job) -> pb::TaskCounts {
    let mut counts = pb::TaskCounts {
        desired: desired(job),
        succeeded: job.succeeded,
        failed: job.failed,
        given_up: state.given_up(job),
        ..pb::TaskCounts::default()
    };
    for task in state.tasks_of(job.id).filter(|t| !t.status.state.is_terminal()) {
        let place = if !task.is_live() {
            &mut counts.stopping
        } else if task.is_unplaced() {
            &mut counts.pending
        } else if !task.is_up() {
            &mut counts.starting
        } else if job.is_current(task.version) {
            &mut counts.running
        } else {
            &mut counts.outdated
        };
        *place += 1;
    }
    counts
}

/// Whether everything that the newest version wants holds.
///
/// An active service has exactly one running task of the newest make in each slot, and no replica was given up; a job
/// that ended or was stopped has none. Tasks on nodes that are down do not count either way: nobody can wait for them.
#[must_use]
pub fn is_converged(state: &State, job: &Job) -> bool {
    let on_down_node =
        |t: &Task| t.node.and_then(|n| state.node(n)).is_some_and(|n| n.status == NodeStatus::Down);
    let mut alive = state.tasks_of(job.id).filter(|t| !t.status.state.is_terminal() && !on_down_node(t));
    let kind = job.spec().map(|spec| spec.kind);
    match (job.status, kind) {
        (JobStatus::Active, Some(JobKind::Service { replicas })) => {
            // Ordered by slot, so a second task of one breaks the row. Slots may have gaps: scaling down closes any.
            let mut last = None;
            let mut count = 0;
            let good = alive.all(|t| {
                count += 1;
                t.is_up() && t.is_live() && job.is_current(t.version) && last.replace(t.slot) < Some(t.slot)
            });
            good && count == replicas && state.given_up(job) == 0
        }
        (JobStatus::Active, _) => false,
        (JobStatus::Complete | JobStatus::Failed | JobStatus::Stopped | JobStatus::Purging, _) => {
            alive.next().is_none()
        }
    }
}

/// A task with the names of its job and node.
#[must_use]
pub fn task(state: &State, task: &Task) -> pb::Task {
    let job = state.job(task.job);
    let node = task.node.and_then(|id| state.node(id));
    pb::Task {
        id: task.id.to_string(),
        namespace: job.map_or_else(String::new, |job| job.namespace.as_str().to_owned()),
        job: job.map_or_else(String::new, |job| job.name.as_str().to_owned()),
        job_version: task.version.0,
        slot: task.slot.0,
        node: node.map_or_else(String::new, |node| node.name.as_str().to_owned()),
        desired_state: task_state(task.desired).into(),
        state: task_state(task.status.state).into(),
        reason: task.status.reason.to_string(),
        exit_code: task.status.exit_code,
        restarts: task.status.restarts,
        attempt: task.attempt,
        instance: task.status.instance.to_string(),
        placement_failure: task.explanation.as_deref().filter(|_| task.is_unplaced()).map(failure),
        create_time: Some(timestamp(task.created_at)),
        state_time: Some(timestamp(task.status.at)),
        running_since: task.status.running_since.map(timestamp),
        revision: task.changed.0,
        not_before: Some(task.not_before).filter(|at| at.as_millis() > 0).map(timestamp),
        events: task.status.events.iter().map(event).collect(),
        restarts_asked: task.restarts_asked,
        node_down: node.is_some_and(|node| node.status == NodeStatus::Down),
    }
}

fn event(event: &TaskEvent) -> pb::TaskEvent {
    pb::TaskEvent {
        // The numbers of the API are those of the model.
        kind: i32::from(event.kind.number()),
        time: Some(timestamp(event.at)),
        code: event.code,
        detail: event.detail.as_deref().unwrap_or_default().to_owned(),
    }
}

/// A state of a task. The numbers of the API are those of the model, but that its zero means "unset".
#[must_use]
pub fn task_state(state: TaskState) -> pb::TaskState {
    match state {
        TaskState::New => pb::TaskState::New,
        TaskState::Pending => pb::TaskState::Pending,
        TaskState::Assigned => pb::TaskState::Assigned,
        TaskState::Accepted => pb::TaskState::Accepted,
        TaskState::Preparing => pb::TaskState::Preparing,
        TaskState::Ready => pb::TaskState::Ready,
        TaskState::Starting => pb::TaskState::Starting,
        TaskState::Running => pb::TaskState::Running,
        TaskState::Complete => pb::TaskState::Complete,
        TaskState::Shutdown => pb::TaskState::Shutdown,
        TaskState::Failed => pb::TaskState::Failed,
        TaskState::Rejected => pb::TaskState::Rejected,
        TaskState::Remove => pb::TaskState::Remove,
        TaskState::Orphaned => pb::TaskState::Orphaned,
    }
}

/// Why no node takes a task.
#[must_use]
pub fn failure(explanation: &Explanation) -> pb::PlacementFailure {
    let reasons = explanation.reasons.iter().map(|reason| pb::PlacementReason {
        filter: filter(reason.filter).to_owned(),
        nodes: reason.nodes,
        detail: reason.detail.clone(),
    });
    pb::PlacementFailure {
        nodes_evaluated: explanation.total,
        reasons: reasons.collect(),
        summary: explanation.to_string(),
    }
}

fn filter(filter: Filter) -> &'static str {
    match filter {
        Filter::Ready => "ready",
        Filter::Runtime => "runtime",
        Filter::Constraint => "constraint",
        Filter::Cpu => "cpu",
        Filter::Memory => "memory",
        Filter::Port => "port",
        Filter::MaxPerNode => "max-per-node",
        Filter::Pressure => "pressure",
    }
}

/// A node with what its tasks take. What only the leader's memory knows (`last_heard`, `orphans`) is left out.
#[must_use]
pub fn node(state: &State, node: &Node) -> pb::Node {
    let facts = &node.facts;
    let runtimes = facts.runtimes.iter();
    pb::Node {
        name: node.name.as_str().to_owned(),
        status: node_status(node.status).into(),
        reason: node.reason.clone(),
        eligible: node.eligible,
        hostname: facts.hostname.clone(),
        os: facts.os.clone(),
        arch: facts.arch.clone(),
        agent_version: facts.agent_version.clone(),
        labels: facts.labels.clone(),
        runtimes: runtimes.map(|(kind, version)| (kind.as_str().to_owned(), version.clone())).collect(),
        capacity: Some(facts.capacity.into()),
        allocatable: Some(facts.allocatable().into()),
        reserved: Some(state.usage(node.id).into()),
        tasks: state.living(node.id),
        status_time: Some(timestamp(node.status_since)),
        revision: node.changed.0,
        conditions: facts
            .conditions
            .iter()
            .map(|(kind, text)| pb::NodeCondition { kind: kind.as_str().to_owned(), message: text.clone() })
            .collect(),
        last_heard: None,
        orphans: 0,
    }
}

/// A manager; its part in Raft is not in the state, the caller knows it.
#[must_use]
pub fn manager(
    manager: &Manager,
    role: pb::ManagerRole,
    leader: bool,
    matched_index: Option<u64>,
) -> pb::Manager {
    pb::Manager {
        name: manager.name.as_str().to_owned(),
        raft_id: raft_id(manager.id),
        api_address: manager.api_addr.clone(),
        agent_address: manager.agent_addr.clone(),
        raft_address: manager.raft_addr.clone(),
        binary_version: manager.binary_version.clone(),
        role: role.into(),
        leader,
        matched_index,
    }
}

/// A Raft id as users see it: 16 hexadecimal digits.
#[must_use]
pub fn raft_id(id: RaftId) -> String {
    format!("{:016x}", id.0)
}
