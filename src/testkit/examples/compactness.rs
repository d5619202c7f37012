//! Prints what tasks cost: `cargo run --release -p quorate-testkit --example compactness`.
//!
//! Log: bytes of the entries that create and assign the tasks (bound: 64 KiB per thousand). Memory: growth of the
//! process's resident set while a state gets the tasks, each running with a container id of 64 characters
//! (bound: 1 KiB per task; small numbers drown in the allocator's pages).

use std::{error::Error, fs, sync::Arc};

use quorate_model::{JobKind, NodeId, Resources, Slot, TaskId, TaskState, TaskStatus};
use quorate_state::{
    Actor, Command, Envelope, NewTasks, Report,
    lab::{self, Lab},
};
use quorate_wire::store::encode_batch;

const NODES: u32 = 100;
const LOG_BOUND: usize = 64 << 10;
const MEMORY_BOUND: u64 = 1 << 10;

/// Resident set of this process, in bytes.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("VmRSS without a number")?.parse()?;
    Ok(kib << 10)
}

fn bytes(lab: &Lab, command: &Command) -> usize {
    let envelope = Envelope {
        proposed_at: lab.now,
        fence: Some(lab.at.term),
        actor: Actor::User(Arc::from("lab")),
        request: None,
        trace: None,
        command: command.clone(),
    };
    encode_batch(&[envelope]).len()
}

/// Lets every task run with a container id, in reports of a thousand per node.
fn run_all(lab: &mut Lab, tasks: u32) -> Result<(), Box<dyn Error>> {
    for node in 0..NODES {
        let ids: Vec<TaskId> = lab.state.tasks_on(NodeId(node)).map(|t| t.id).collect();
        for part in ids.chunks(1_000) {
            let report = |task: &TaskId| Report {
                task: *task,
                status: TaskStatus {
                    seq: 4,
                    running_since: Some(lab.now),
                    instance: Arc::from(format!("{:064x}", task.0)),
                    ..TaskStatus::by_manager(TaskState::Running, lab.now)
                },
            };
            let reports = part.iter().map(report).collect();
            lab.done(Command::ReportStatuses { node: NodeId(node), reports })?;
        }
    }
    assert_eq!(lab.state.tasks().filter(|t| t.status.state == TaskState::Running).count(), tasks as usize);
    Ok(())
}

fn measure(tasks: u32) -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new();
    for node in 0..NODES {
        lab.node(node, Resources { cpu_millis: 1_000_000_000, memory_bytes: 1 << 50 })?;
    }
    let job = lab.job(lab::spec("web", JobKind::Service { replicas: tasks })?)?;
    let version = lab.job_record(job)?.version;
    let before = resident()?;
    let groups = vec![NewTasks { first: Slot(0), count: tasks, attempt: 0, not_before: Default::default() }];
    let create = Command::CreateTasks { job, version, groups };
    let mut log = bytes(&lab, &create);
    lab.done(create)?;
    let ids: Vec<TaskId> = lab.state.unplaced().map(|t| t.id).collect();
    for part in ids.chunks(5_000) {
        let plan = quorate_scheduler::schedule(&lab.state, part, lab.now);
        let assign = Command::AssignTasks { placements: plan.placed };
        log += bytes(&lab, &assign);
        lab.done(assign)?;
    }
    drop(ids);
    run_all(&mut lab, tasks)?;
    let memory = resident()?.saturating_sub(before) / u64::from(tasks);
    let per_thousand = log * 1_000 / tasks as usize;
    println!("{tasks:>9} {log:>12} {per_thousand:>14} {memory:>16}");
    if tasks >= 1_000 && per_thousand > LOG_BOUND {
        return Err(format!("{per_thousand} bytes of log per thousand tasks are above {LOG_BOUND}").into());
    }
    if tasks >= 100_000 && memory > MEMORY_BOUND {
        return Err(format!("{memory} bytes of memory per task are above {MEMORY_BOUND}").into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:>9} {:>12} {:>14} {:>16}", "tasks", "log bytes", "log/1000 tasks", "memory/task");
    [1_000, 10_000, 100_000, 1_000_000].into_iter().try_for_each(measure)
}
