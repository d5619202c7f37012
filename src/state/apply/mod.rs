//! Applying commands: thin, deterministic, all or nothing per command.

mod cluster;
mod job;
mod node;
mod task;

use std::sync::Arc;

use quorate_model::{Job, Revision, TraceContext};

use crate::{Command, Envelope, Event, Position, Receipt, Rejection, State};

/// What one applied envelope gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The revision that the answer speaks of: of the first answer when this was a retry.
    pub revision: Revision,
    /// Whether the answer was remembered from an earlier try.
    pub replayed: bool,
    /// The answer.
    pub outcome: Result<Receipt, Rejection>,
    /// What changed.
    pub events: Vec<Event>,
}

/// Applies one envelope of the log entry at `at`.
///
/// The envelopes of one entry share its position. A refused command changes
/// nothing but the position, the replicated time and the memory of answers.
pub fn apply(state: &mut State, at: Position, envelope: &Envelope) -> Applied {
    state.meta.applied = at;
    state.meta.now = state.meta.now.max(envelope.proposed_at);
    if let Some(planned) = envelope.fence
        && planned != at.term
    {
        return refused(at.index, Rejection::StaleFence { planned, term: at.term });
    }
    if let Some(request) = &envelope.request {
        match state.replay(&envelope.actor, request) {
            None => {}
            Some(Err(rejection)) => return refused(at.index, rejection),
            Some(Ok(record)) => {
                return Applied {
                    revision: record.revision,
                    replayed: true,
                    outcome: record.answer.clone(),
                    events: Vec::new(),
                };
            }
        }
    }
    let mut events = Vec::new();
    let outcome = run(state, at.index, envelope, &mut events);
    if let Some(request) = &envelope.request {
        state.remember(&envelope.actor, request, at.index, &outcome);
    }
    Applied { revision: at.index, replayed: false, outcome, events }
}

/// An edit by a user: when, who, in which trace.
struct Edit {
    at: Revision,
    by: Arc<str>,
    trace: Option<TraceContext>,
}

impl Edit {
    fn of(at: Revision, envelope: &Envelope) -> Self {
        Self { at, by: envelope.actor.words(), trace: envelope.trace }
    }

    /// The job with the edit's marks.
    fn mark(&self, state: &State, job: Job) -> Job {
        let (edited_by, edited_at) = (self.by.clone(), state.now());
        Job { edited: self.at, edited_by, edited_at, trace: self.trace, ..job }
    }
}

fn refused(revision: Revision, rejection: Rejection) -> Applied {
    Applied { revision, replayed: false, outcome: Err(rejection), events: Vec::new() }
}

fn run(
    state: &mut State,
    at: Revision,
    envelope: &Envelope,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    match &envelope.command {
        Command::ApplyJob { spec, expect } => {
            job::apply_job(state, &Edit::of(at, envelope), spec, *expect, events)
        }
        Command::ScaleJob { namespace, name, replicas, expect } => {
            job::scale(state, &Edit::of(at, envelope), (namespace, name), *replicas, *expect, events)
        }
        Command::DeleteJob { namespace, name, purge, expect } => {
            job::delete(state, &Edit::of(at, envelope), (namespace, name), *purge, *expect, events)
        }
        Command::SetJobStatus { job, version, status } => {
            job::set_status(state, at, *job, *version, *status, events)
        }
        Command::ForgetJob { job } => job::forget(state, at, *job, events),
        Command::CreateTasks { job, version, groups } => {
            task::create(state, at, *job, *version, groups, events)
        }
        Command::AssignTasks { placements } => Ok(task::assign(state, at, placements, events)),
        Command::SetDesired { desired, tasks } => task::set_desired(state, at, *desired, tasks, events),
        Command::ExplainTasks { groups } => Ok(task::explain(state, at, groups, events)),
        Command::ReportStatuses { node, reports } => task::report(state, at, *node, reports, events),
        Command::OrphanTasks { tasks } => Ok(task::orphan(state, at, tasks, events)),
        Command::RemoveTasks { tasks } => Ok(task::remove(state, at, tasks, events)),
        Command::RestartTasks { tasks } => Ok(task::restart(state, at, tasks, events)),
        Command::RegisterNode { name, agent, facts } => node::register(state, at, name, agent, facts, events),
        Command::SetNodeStatus { node, status, reason } => {
            node::set_status(state, at, *node, *status, reason, events)
        }
        Command::UpsertManager { manager } => Ok(cluster::upsert_manager(state, at, manager, events)),
        Command::RemoveManager { id } => cluster::remove_manager(state, at, *id, events),
        Command::UpdateSettings { settings } => cluster::update_settings(state, at, settings, events),
        Command::InitCluster { cluster, epoch } => cluster::init(state, *cluster, *epoch),
    }
}
