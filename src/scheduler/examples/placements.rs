//! Prints placements per second at 1x, 10x and 100x nodes: `cargo run --release -p quorate-scheduler --example placements`.
//!
//! Each line is the median of five passes over one snapshot. `one job` is a single group of equal tasks, `many jobs`
//! is a group per task (the worst case: a scan per task), `constrained` adds a constraint that half the nodes meet, a
//! host port and a bound per node.

use std::{error::Error, time::Duration};

use quorate_base::time::{Clock, Timestamp};
use quorate_model::{Constraint, JobKind, JobSpec, Port, Resources, Slot, TaskId};
use quorate_scheduler::schedule;
use quorate_state::{
    Command, NewTasks,
    lab::{self, Lab},
};

const ROUNDS: usize = 5;

fn cluster(nodes: u32) -> Result<Lab, Box<dyn Error>> {
    let mut lab = Lab::new();
    for number in 0..nodes {
        let mut facts = lab::facts(Resources { cpu_millis: 64_000, memory_bytes: 256 << 30 });
        facts.labels.insert("zone".to_owned(), ["a", "b"][number as usize % 2].to_owned());
        lab.node_with(number, facts)?;
    }
    Ok(lab)
}

fn submit(lab: &mut Lab, spec: JobSpec, count: u32) -> Result<(), Box<dyn Error>> {
    let job = lab.job(spec)?;
    let version = lab.job_record(job)?.version;
    let groups = vec![NewTasks { first: Slot(0), count, attempt: 0, not_before: Timestamp::EPOCH }];
    lab.done(Command::CreateTasks { job, version, groups })?;
    Ok(())
}

fn constrained(mut spec: JobSpec, port: u16) -> Result<JobSpec, Box<dyn Error>> {
    spec.placement.constraints = vec![Constraint::parse("constraint", "node.labels.zone == a")?];
    spec.placement.max_per_node = 1000;
    spec.ports = [("http".parse()?, Port { container: 80, host: Some(port), udp: false })].into();
    Ok(spec)
}

fn measure(name: &str, nodes: u32, lab: &Lab) {
    let clock = Clock::system();
    let pending: Vec<TaskId> = lab.state.unplaced().map(|t| t.id).collect();
    let mut placed = 0;
    let mut spans: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = clock.monotonic();
            placed = schedule(&lab.state, &pending, lab.now).placed.len();
            clock.monotonic().since(start)
        })
        .collect();
    spans.sort_unstable();
    let median = spans[ROUNDS / 2];
    let rate = placed as f64 / median.as_secs_f64();
    println!(
        "{name:<24} {nodes:>7} {:>7} {placed:>7} {:>10.2} {rate:>12.0}",
        pending.len(),
        median.as_secs_f64() * 1e3
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<24} {:>7} {:>7} {:>7} {:>10} {:>12}", "case", "nodes", "tasks", "placed", "ms", "placed/s");
    for nodes in [100, 1_000, 10_000, 100_000] {
        let empty = cluster(nodes)?;
        for tasks in [1_000, 10_000] {
            let mut lab = empty.clone();
            submit(&mut lab, lab::spec("web", JobKind::Service { replicas: tasks })?, tasks)?;
            measure("one job", nodes, &lab);
        }
        let mut lab = empty.clone();
        for job in 0..1_000 {
            submit(&mut lab, lab::spec(&format!("j{job}"), JobKind::Service { replicas: 1 })?, 1)?;
        }
        measure("many jobs", nodes, &lab);
        let mut lab = empty.clone();
        submit(&mut lab, constrained(lab::spec("web", JobKind::Service { replicas: 1_000 })?, 8080)?, 1_000)?;
        measure("constrained, one job", nodes, &lab);
        let mut lab = empty.clone();
        for job in 0..100 {
            let spec = lab::spec(&format!("j{job}"), JobKind::Service { replicas: 10 })?;
            submit(&mut lab, constrained(spec, 8000 + job)?, 10)?;
        }
        measure("constrained, 100 jobs", nodes, &lab);
    }
    Ok(())
}
