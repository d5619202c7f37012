//! The state machine: tables per command, and what must hold after any of them.

#![cfg(test)]

mod cluster;
mod jobs;
mod nodes;
mod properties;
mod requests;
mod script;
mod tasks;
mod truth;

use quorate_model::{JobId, JobKind, JobSpec, Name, Slot, TaskId, TaskState};
use quorate_state::{
    Applied, Command, NewTasks, Receipt, Rejection,
    lab::{self, Lab},
};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn service(replicas: u32) -> JobSpec {
    lab::spec("web", JobKind::Service { replicas }).unwrap()
}

fn batch(completions: u32) -> JobSpec {
    lab::spec("import", JobKind::Batch { completions, parallelism: 2 }).unwrap()
}

/// Creates tasks of the job's newest version in its first slots.
fn create(lab: &mut Lab, job: JobId, count: u32) -> Applied {
    let version = lab.job_record(job).unwrap().version;
    let groups = vec![NewTasks { first: Slot(0), count, attempt: 0, not_before: lab.now }];
    lab.apply(Command::CreateTasks { job, version, groups })
}

/// A one-node cluster with a service of which one task runs.
fn running() -> (Lab, JobId, TaskId) {
    let mut lab = Lab::new();
    let node = lab.node(1, quorate_model::Resources { cpu_millis: 1000, memory_bytes: 1 << 30 }).unwrap();
    let job = lab.job(service(1)).unwrap();
    create(&mut lab, job, 1);
    let task = lab.state.tasks().next().unwrap().id;
    lab.done(Command::AssignTasks { placements: vec![(task, node)] }).unwrap();
    lab.report(task, TaskState::Running).unwrap();
    (lab, job, task)
}

/// The refusal of a command that must be refused; it must leave every record as it was.
fn refusal(lab: &mut Lab, command: Command) -> Rejection {
    let before = truth::records(&lab.state);
    let applied = lab.apply(command);
    assert_eq!(truth::records(&lab.state), before, "a refused command changes nothing");
    assert!(applied.events.is_empty());
    applied.outcome.unwrap_err()
}

fn changed(applied: &Applied) -> (u32, Vec<TaskId>) {
    match applied.outcome.as_ref().unwrap() {
        Receipt::Changed { changed, refused } => (*changed, refused.clone()),
        other => panic!("{other:?}"),
    }
}
