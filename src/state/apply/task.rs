//! Commands on tasks.

use std::{collections::BTreeSet, sync::Arc};

use quorate_model::{
    Explanation, Job, JobId, JobKind, JobSpec, JobVersion, Node, NodeId, NodeStatus, Revision, Slot, Task,
    TaskId, TaskState, TaskStatus,
};

use crate::{Change, Event, NewTasks, Object, Receipt, Rejection, Report, State, tables::event};

/// Creates tasks in slots that have no live one: two plans that cross must not fill a slot twice.
pub(super) fn create(
    state: &mut State,
    at: Revision,
    job: JobId,
    version: JobVersion,
    groups: &[NewTasks],
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let Some(record) = state.job(job).cloned() else {
        return Err(Rejection::Gone { what: "job", id: u64::from(job.0) });
    };
    if !record.specs.contains_key(&version) {
        return Err(Rejection::Gone { what: "job version", id: u64::from(version.0) });
    }
    if !record.status.wants_tasks() {
        let why = "tasks are created for active jobs only";
        return Err(Rejection::WrongJobStatus { id: job, status: record.status.as_str(), why });
    }
    let first = TaskId(state.meta.next_task);
    let mut count = 0;
    for group in groups {
        for offset in 0..group.count {
            let slot = Slot(group.first.0.saturating_add(offset));
            if state.tasks_of_slot(job, slot).any(|t| t.is_live()) {
                continue;
            }
            let task = new_task(state, at, job, version, slot, group);
            let task = state.put_task(task);
            events.push(event(at, Change::Created, Object::Task(task)));
            count += 1;
        }
    }
    Ok(Receipt::Tasks { first, count })
}

fn new_task(
    state: &mut State,
    at: Revision,
    job: JobId,
    version: JobVersion,
    slot: Slot,
    group: &NewTasks,
) -> Task {
    let id = TaskId(state.meta.next_task);
    state.meta.next_task += 1;
    let now = state.now();
    Task {
        id,
        job,
        version,
        slot,
        attempt: group.attempt,
        node: None,
        desired: TaskState::Running,
        restarts_asked: 0,
        not_before: group.not_before,
        status: TaskStatus::by_manager(TaskState::Pending, now),
        explanation: None,
        created: at,
        created_at: now,
        changed: at,
    }
}

/// Gives nodes to tasks. What does not fit any more, because the state moved since the plan, is refused one by one.
pub(super) fn assign(
    state: &mut State,
    at: Revision,
    placements: &[(TaskId, NodeId)],
    events: &mut Vec<Event>,
) -> Receipt {
    let mut refused = Vec::new();
    let mut changed = 0;
    for (id, node) in placements {
        let Some(task) = placeable(state, *id, *node) else {
            refused.push(*id);
            continue;
        };
        let status = TaskStatus::by_manager(TaskState::Assigned, state.now());
        let task = state.put_task(Task {
            node: Some(*node),
            status,
            explanation: None,
            changed: at,
            ..(*task).clone()
        });
        events.push(event(at, Change::Updated, Object::Task(task)));
        changed += 1;
    }
    Receipt::Changed { changed, refused }
}

/// The task when it still may go to the node: the check that makes optimistic plans safe (Nomad's plan applier).
fn placeable(state: &State, id: TaskId, node: NodeId) -> Option<Arc<Task>> {
    let task = state.task(id).filter(|t| t.is_unplaced())?;
    let node = state.node(node).filter(|n| n.takes_tasks())?;
    let spec = state.spec_of(task)?;
    let free = node.facts.allocatable().minus(state.usage(node.id));
    (spec.reserve().fits(free) && ports_free(state, node, spec) && below_most(state, node, task, spec))
        .then(|| task.clone())
}

fn ports_free(state: &State, node: &Node, spec: &JobSpec) -> bool {
    let wanted: BTreeSet<_> = spec.host_ports().collect();
    wanted.is_empty()
        || !state
            .tasks_on(node.id)
            .filter(|t| t.holds_resources())
            .filter_map(|t| state.spec_of(t))
            .any(|other| other.host_ports().any(|port| wanted.contains(&port)))
}

fn below_most(state: &State, node: &Node, task: &Task, spec: &JobSpec) -> bool {
    let most = spec.placement.max_per_node as usize;
    most == 0 || state.tasks_on(node.id).filter(|t| t.job == task.job && t.holds_resources()).count() < most
}

/// Raises the desired state. A task without a node ends at once: nobody else will report it.
pub(super) fn set_desired(
    state: &mut State,
    at: Revision,
    desired: TaskState,
    tasks: &[TaskId],
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    if !desired.may_be_desired() {
        let mut list = quorate_model::InvalidList::default();
        list.push("desired", format!("{desired} cannot be desired"));
        return Err(Rejection::Invalid(list));
    }
    let mut changed = 0;
    let mut refused = Vec::new();
    for id in tasks {
        let Some(old) = state.task(*id).filter(|t| t.desired < desired).cloned() else {
            refused.push(*id);
            continue;
        };
        let mut task = Task { desired, changed: at, ..(*old).clone() };
        if task.node.is_none() && desired >= TaskState::Shutdown && !task.status.state.is_terminal() {
            task.status = TaskStatus::by_manager(TaskState::Shutdown, state.now());
            task.explanation = None;
        }
        let task = state.put_task(task);
        events.push(event(at, Change::Updated, Object::Task(task)));
        changed += 1;
    }
    Ok(Receipt::Changed { changed, refused })
}

/// Keeps the scheduler's reasons with the tasks that wait.
pub(super) fn explain(
    state: &mut State,
    at: Revision,
    groups: &[(Arc<Explanation>, Vec<TaskId>)],
    events: &mut Vec<Event>,
) -> Receipt {
    let mut changed = 0;
    let mut refused = Vec::new();
    for (explanation, tasks) in groups {
        for id in tasks {
            let waiting =
                state.task(*id).filter(|t| t.is_unplaced() && t.explanation.as_ref() != Some(explanation));
            let Some(old) = waiting.cloned() else {
                refused.push(*id);
                continue;
            };
            let task = state.put_task(Task {
                explanation: Some(explanation.clone()),
                changed: at,
                ..(*old).clone()
            });
            events.push(event(at, Change::Updated, Object::Task(task)));
            changed += 1;
        }
    }
    Receipt::Changed { changed, refused }
}

/// Records what an agent saw. Words on foreign or forgotten tasks, older words and steps back are refused one by one.
pub(super) fn report(
    state: &mut State,
    at: Revision,
    node: NodeId,
    reports: &[Report],
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    if state.node(node).is_none() {
        return Err(Rejection::Gone { what: "node", id: u64::from(node.0) });
    }
    let mut changed = 0;
    let mut refused = Vec::new();
    for report in reports {
        let new = &report.status;
        let old = state.task(report.task).filter(|t| {
            t.node == Some(node)
                && new.state.may_be_reported()
                && new.state >= t.status.state
                && new.seq > t.status.seq
                && !t.status.state.is_terminal()
        });
        let Some(old) = old.cloned() else {
            refused.push(report.task);
            continue;
        };
        let status = new.clone().with_reason(&new.reason);
        write_status(state, at, &old, status, events);
        changed += 1;
    }
    Ok(Receipt::Changed { changed, refused })
}

/// Writes a status and counts an end in the task's job.
pub(super) fn write_status(
    state: &mut State,
    at: Revision,
    old: &Task,
    status: TaskStatus,
    events: &mut Vec<Event>,
) {
    let ended = !old.status.state.is_terminal() && status.state.is_terminal();
    let task = state.put_task(Task { status, changed: at, ..old.clone() });
    events.push(event(at, Change::Updated, Object::Task(task.clone())));
    if ended && let Some(job) = state.job(task.job).cloned() {
        count_end(state, at, &job, &task, events);
    }
}

fn count_end(state: &mut State, at: Revision, job: &Job, task: &Task, events: &mut Vec<Event>) {
    let batch = job.spec().is_some_and(|s| matches!(s.kind, JobKind::Batch { .. }));
    let done = batch && task.status.state == TaskState::Complete;
    let failed = task.status.state.is_failure();
    if !job.is_current(task.version) || (!done && !failed) {
        return;
    }
    let job = state.put_job(Job {
        succeeded: job.succeeded.saturating_add(u32::from(done)),
        failed: job.failed.saturating_add(u32::from(failed)),
        changed: job.changed.max(at),
        ..job.clone()
    });
    events.push(event(at, Change::Updated, Object::Job(job)));
}

/// Treats tasks as gone whose node is down.
pub(super) fn orphan(state: &mut State, at: Revision, tasks: &[TaskId], events: &mut Vec<Event>) -> Receipt {
    let mut changed = 0;
    let mut refused = Vec::new();
    for id in tasks {
        let lost = state.task(*id).filter(|t| {
            !t.status.state.is_terminal()
                && t.node.and_then(|n| state.node(n)).is_some_and(|n| n.status == NodeStatus::Down)
        });
        let Some(old) = lost.cloned() else {
            refused.push(*id);
            continue;
        };
        let status = TaskStatus { state: TaskState::Orphaned, at: state.now(), ..old.status.clone() }
            .with_reason("its node is lost for too long");
        write_status(state, at, &old, status, events);
        changed += 1;
    }
    Receipt::Changed { changed, refused }
}

/// Deletes tasks that ended.
pub(super) fn remove(state: &mut State, at: Revision, tasks: &[TaskId], events: &mut Vec<Event>) -> Receipt {
    let mut changed = 0;
    let mut refused = Vec::new();
    for id in tasks {
        let Some(task) = state.task(*id).filter(|t| t.status.state.is_terminal()).cloned() else {
            refused.push(*id);
            continue;
        };
        state.drop_task(&task);
        events.push(event(at, Change::Deleted, Object::Task(task)));
        changed += 1;
    }
    Receipt::Changed { changed, refused }
}

/// Notes that a user wants tasks restarted in place. What has no agent yet, or is to stop, is refused one by one.
pub(super) fn restart(state: &mut State, at: Revision, tasks: &[TaskId], events: &mut Vec<Event>) -> Receipt {
    let mut changed = 0;
    let mut refused = Vec::new();
    for id in tasks {
        let Some(old) = state.task(*id).filter(|t| t.node.is_some() && t.is_live()).cloned() else {
            refused.push(*id);
            continue;
        };
        let restarts_asked = old.restarts_asked.saturating_add(1);
        let task = state.put_task(Task { restarts_asked, changed: at, ..(*old).clone() });
        events.push(event(at, Change::Updated, Object::Task(task)));
        changed += 1;
    }
    Receipt::Changed { changed, refused }
}
