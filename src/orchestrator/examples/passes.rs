//! Prints what a pass over a settled cluster costs, reconciler by reconciler, at 1x to 1000x tasks:
//! `cargo run --release -p quorate-orchestrator --example passes`.
//!
//! Each figure is the median of five passes, in milliseconds. A pass runs after every change, so this is what
//! an idle task costs the leader.

use std::{error::Error, time::Duration};

use quorate_base::time::{Clock, Timestamp};
use quorate_model::{JobKind, NodeId, Resources, Slot, TaskId, TaskState, TaskStatus};
use quorate_orchestrator::{Reconciler, Tick, registry};
use quorate_state::{
    Command, NewTasks, Report,
    lab::{self, Lab},
};

const NODES: u32 = 1_000;
const JOBS: u32 = 100;
const ROUNDS: usize = 5;

/// A cluster in which `tasks` tasks of a hundred services run.
fn settled(tasks: u32) -> Result<Lab, Box<dyn Error>> {
    let mut lab = Lab::new();
    for node in 0..NODES {
        lab.node(node, Resources { cpu_millis: 1_000_000, memory_bytes: 1 << 45 })?;
    }
    let replicas = tasks / JOBS;
    for number in 0..JOBS {
        let job = lab.job(lab::spec(&format!("j{number}"), JobKind::Service { replicas })?)?;
        let version = lab.job_record(job)?.version;
        let groups =
            vec![NewTasks { first: Slot(0), count: replicas, attempt: 0, not_before: Timestamp::EPOCH }];
        lab.done(Command::CreateTasks { job, version, groups })?;
    }
    let waiting: Vec<TaskId> = lab.state.unplaced().map(|t| t.id).collect();
    let placements: Vec<_> =
        waiting.iter().zip(0..).map(|(task, n): (_, u32)| (*task, NodeId(n % NODES))).collect();
    lab.done(Command::AssignTasks { placements })?;
    for node in (0..NODES).map(NodeId) {
        let status = TaskStatus { seq: 1, ..TaskStatus::by_manager(TaskState::Running, lab.now) };
        let report = |t: TaskId| Report { task: t, status: status.clone() };
        let reports = lab.state.tasks_on(node).map(|t| report(t.id)).collect();
        lab.done(Command::ReportStatuses { node, reports })?;
    }
    Ok(lab)
}

fn median(reconciler: &dyn Reconciler, lab: &Lab) -> Result<Duration, Box<dyn Error>> {
    let clock = Clock::system();
    let mut spans = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = clock.monotonic();
        let outcome = reconciler.reconcile(&lab.state, &Tick { now: lab.now, overdue: &[] });
        spans.push(clock.monotonic().since(start));
        if !outcome.commands.is_empty() {
            return Err(format!("{} is not settled: {:?}", reconciler.name(), outcome.commands).into());
        }
    }
    spans.sort_unstable();
    Ok(spans[ROUNDS / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<_> = registry().iter().map(|r| format!("{:>10}", r.name())).collect();
    println!("{:>9} {}", "tasks", names.join(" "));
    for tasks in [1_000, 10_000, 100_000, 1_000_000] {
        let lab = settled(tasks)?;
        let mut line = format!("{tasks:>9}");
        for reconciler in registry() {
            let span = median(reconciler.as_ref(), &lab)?;
            line += &format!(" {:>10.3}", span.as_secs_f64() * 1e3);
        }
        println!("{line}");
    }
    Ok(())
}
