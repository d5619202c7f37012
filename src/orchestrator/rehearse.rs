//! What applying a job would do: the reconcilers run on a copy of the state until they are quiet.
//!
//! Agents obey at once in the copy: what is asked to stop ends, what got a node runs. A roll-out goes through its
//! rounds like that, without their waits.

use std::{collections::BTreeMap, sync::Arc};

use quorate_base::time::Timestamp;
use quorate_model::{JobId, JobSpec, NodeStatus, Slot, Task, TaskId, TaskState, TaskStatus, Term};
use quorate_state::{Actor, Command, Envelope, Position, Receipt, Rejection, Report, State, apply};

use crate::{Tick, bounds::MAX_LISTED, registry, rollout::MIN_UP};

/// More rounds than any roll-out needs.
const MOST_ROUNDS: usize = 4096;

/// What would become of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotPlan {
    /// Which slot.
    pub slot: Slot,
    /// The task that lives there now.
    pub before: Option<TaskId>,
    /// The task that would live there, in [`Rehearsal::state`].
    pub after: Option<TaskId>,
}

/// The end of a rehearsal.
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// The copy of the state.
    pub state: State,
    /// The job in it.
    pub job: JobId,
    /// Whether the job would be as it is.
    pub unchanged: bool,
    /// The slots that have or would have a task, in order.
    pub slots: Vec<SlotPlan>,
    /// Whether it came to rest; else it was cut off.
    pub settled: bool,
}

/// Rehearses the submission of `spec` at the moment `now`.
///
/// # Errors
/// The refusal that the submission would meet.
pub fn rehearse(view: &State, spec: Arc<JobSpec>, now: Timestamp) -> Result<Rehearsal, Rejection> {
    let mut stage = Stage { state: view.clone(), at: view.applied(), now: now.max(view.now()), moved: false };
    let receipt = stage.run(Command::ApplyJob { spec, expect: None })?;
    let Receipt::Job { id, unchanged, .. } = receipt else {
        return Err(Rejection::Gone { what: "job", id: 0 });
    };
    let mut settled = false;
    for _ in 0..MOST_ROUNDS {
        if !stage.round(id) {
            settled = true;
            break;
        }
    }
    let slots = slots(view, &stage.state, id);
    Ok(Rehearsal { state: stage.state, job: id, unchanged, slots, settled })
}

/// The copy, with the position that drives it.
struct Stage {
    state: State,
    at: Position,
    now: Timestamp,
    moved: bool,
}

impl Stage {
    fn run(&mut self, command: Command) -> Result<Receipt, Rejection> {
        self.at = Position { term: Term(self.at.term.0.max(1)), index: self.at.index.next() };
        let envelope = Envelope {
            proposed_at: self.now,
            fence: None,
            actor: Actor::User(Arc::from("plan")),
            request: None,
            trace: None,
            command,
        };
        let applied = apply(&mut self.state, self.at, &envelope);
        self.moved |= !applied.events.is_empty();
        applied.outcome
    }

    /// One pass of all reconcilers, or when they are quiet, one step of the agents. Whether anything changed.
    fn round(&mut self, job: JobId) -> bool {
        self.moved = false;
        let tick = Tick { now: self.now, overdue: &[] };
        let plans: Vec<Command> =
            registry().iter().flat_map(|one| one.reconcile(&self.state, &tick).commands).collect();
        for command in plans {
            // What the plan of the same pass outran is planned anew in the next one.
            let _refused = self.run(command);
        }
        if !self.moved {
            self.obey(job);
        }
        self.moved
    }

    /// The agents that are heard do what is wanted of the job's tasks.
    fn obey(&mut self, job: JobId) {
        let mut reports: BTreeMap<_, Vec<Report>> = BTreeMap::new();
        for task in self.state.tasks_of(job) {
            let heard =
                task.node.and_then(|id| self.state.node(id)).filter(|n| n.status == NodeStatus::Ready);
            if let (Some(node), Some(status)) = (heard, self.obedient(task)) {
                reports.entry(node.id).or_default().push(Report { task: task.id, status });
            }
        }
        for (node, reports) in reports {
            for part in reports.chunks(MAX_LISTED) {
                let _refused = self.run(Command::ReportStatuses { node, reports: part.to_vec() });
            }
        }
    }

    /// What the agent would say of a task, if anything new.
    fn obedient(&self, task: &Task) -> Option<TaskStatus> {
        let state = task.status.state;
        let next = if state.is_terminal() {
            return None;
        } else if task.desired >= TaskState::Shutdown {
            TaskState::Shutdown
        } else if state < TaskState::Running {
            TaskState::Running
        } else {
            return None;
        };
        // Up for long enough, so that a roll-out goes on.
        let since = self.now.saturating_sub(MIN_UP * 2);
        let running_since = (next == TaskState::Running).then_some(since);
        let status = TaskStatus::by_manager(next, self.now);
        Some(TaskStatus { seq: task.status.seq.saturating_add(1), running_since, ..status })
    }
}

/// The slots before and after.
fn slots(before: &State, after: &State, job: JobId) -> Vec<SlotPlan> {
    let mut slots: BTreeMap<Slot, SlotPlan> = BTreeMap::new();
    let empty = |slot| SlotPlan { slot, before: None, after: None };
    for task in before.tasks_of(job).filter(|t| t.is_live()) {
        slots.entry(task.slot).or_insert_with(|| empty(task.slot)).before = Some(task.id);
    }
    for task in after.tasks_of(job).filter(|t| t.is_live()) {
        slots.entry(task.slot).or_insert_with(|| empty(task.slot)).after = Some(task.id);
    }
    slots.into_values().collect()
}
