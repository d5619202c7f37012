//! The scheduler against a brute-force reading of its rules.

#![cfg(test)]

use std::{cmp::Reverse, collections::BTreeSet};

use proptest::{prelude::*, strategy::Strategy as Generator};
use quorate_base::time::Timestamp;
use quorate_model::{
    Constraint, Explanation, Filter, JobKind, JobSpec, Node, NodeFacts, NodeId, NodeStatus, Port, Resources,
    RuntimeKind, Slot, Strategy, Task, TaskId,
};
use quorate_scheduler::schedule;
use quorate_state::{
    Command, NewTasks, Receipt, State,
    lab::{self, Lab},
};

#[derive(Debug, Clone)]
struct NodeCase {
    cpu: u64,
    memory: u64,
    zone: bool,
    docker: bool,
    down: bool,
}

#[derive(Debug, Clone)]
struct JobCase {
    cpu: u64,
    memory: u64,
    tasks: u32,
    priority: u8,
    zone: Option<bool>,
    port: Option<u16>,
    max_per_node: u32,
    binpack: bool,
}

fn node_case() -> impl Generator<Value = NodeCase> {
    (0..5_u64, 0..5_u64, any::<bool>(), prop::bool::weighted(0.8), prop::bool::weighted(0.15))
        .prop_map(|(cpu, memory, zone, docker, down)| NodeCase { cpu, memory, zone, docker, down })
}

fn job_case() -> impl Generator<Value = JobCase> {
    (
        (0..4_u64, 0..4_u64, 1..8_u32, 1..4_u8),
        (any::<Option<bool>>(), prop::option::weighted(0.3, 1..3_u16), 0..3_u32, any::<bool>()),
    )
        .prop_map(|((cpu, memory, tasks, priority), (zone, port, max_per_node, binpack))| JobCase {
            cpu,
            memory,
            tasks,
            priority,
            zone,
            port,
            max_per_node,
            binpack,
        })
}

fn amount(cpu: u64, memory: u64) -> Resources {
    Resources { cpu_millis: cpu * 250, memory_bytes: memory << 28 }
}

fn add_node(lab: &mut Lab, number: u32, case: &NodeCase) {
    let mut facts: NodeFacts = lab::facts(amount(case.cpu, case.memory));
    facts.labels.insert("zone".into(), if case.zone { "a" } else { "b" }.into());
    if !case.docker {
        facts.runtimes.remove(&RuntimeKind::Docker);
    }
    let node = lab.node_with(number, facts).unwrap();
    if case.down {
        lab.done(Command::SetNodeStatus { node, status: NodeStatus::Down, reason: "lost".into() }).unwrap();
    }
}

fn add_job(lab: &mut Lab, number: usize, case: &JobCase) {
    let mut spec: JobSpec =
        lab::spec(&format!("j{number}"), JobKind::Service { replicas: case.tasks }).unwrap();
    spec.priority = case.priority;
    spec.containers.values_mut().for_each(|c| c.reserve = amount(case.cpu, case.memory));
    spec.placement.max_per_node = case.max_per_node;
    spec.placement.strategy = case.binpack.then_some(Strategy::Binpack);
    if let Some(zone) = case.zone {
        let text = format!("node.labels.zone {} a", if zone { "==" } else { "!=" });
        spec.placement.constraints = vec![Constraint::parse("c", &text).unwrap()];
    }
    if let Some(port) = case.port {
        spec.ports = [("p".parse().unwrap(), Port { container: 80, host: Some(port), udp: false })].into();
    }
    let job = lab.job(spec).unwrap();
    let version = lab.job_record(job).unwrap().version;
    let groups =
        vec![NewTasks { first: Slot(0), count: case.tasks, attempt: 0, not_before: Timestamp::EPOCH }];
    lab.done(Command::CreateTasks { job, version, groups }).unwrap();
}

fn pending(state: &State) -> Vec<TaskId> {
    state.unplaced().map(|t| t.id).collect()
}

/// The first filter that the node fails, by recounting every task of the cluster.
fn first_failing(state: &State, task: &Task, node: &Node) -> Option<Filter> {
    let spec = state.spec_of(task).unwrap();
    let here: Vec<_> = state.tasks().filter(|t| t.node == Some(node.id) && t.holds_resources()).collect();
    let used = here.iter().fold(Resources::default(), |sum, t| sum.plus(state.spec_of(t).unwrap().reserve()));
    let ports: BTreeSet<_> = here.iter().flat_map(|t| state.spec_of(t).unwrap().host_ports()).collect();
    let free = node.facts.allocatable().minus(used);
    let reserve = spec.reserve();
    let most = spec.placement.max_per_node as usize;
    if node.status == NodeStatus::Down {
        Some(Filter::Ready)
    } else if !node.facts.runtimes.contains_key(&RuntimeKind::Docker) {
        Some(Filter::Runtime)
    } else if !spec.placement.constraints.iter().all(|c| c.holds(node)) {
        Some(Filter::Constraint)
    } else if reserve.cpu_millis > free.cpu_millis {
        Some(Filter::Cpu)
    } else if reserve.memory_bytes > free.memory_bytes {
        Some(Filter::Memory)
    } else if spec.host_ports().any(|port| ports.contains(&port)) {
        Some(Filter::Port)
    } else if most > 0 && here.iter().filter(|t| t.job == task.job).count() >= most {
        Some(Filter::MaxPerNode)
    } else {
        None
    }
}

/// Smaller is better, as the documentation of the strategies says.
fn score(state: &State, task: &Task, node: &Node) -> (i64, i64, i64, NodeId) {
    let here: Vec<_> = state.tasks().filter(|t| t.node == Some(node.id) && t.holds_resources()).collect();
    let used = here.iter().fold(Resources::default(), |sum, t| sum.plus(state.spec_of(t).unwrap().reserve()));
    let capacity = node.facts.allocatable();
    let part = |used: u64, of: u64| (used << 20).checked_div(of).unwrap_or(1 << 20) as i64;
    let load = part(used.cpu_millis, capacity.cpu_millis)
        .max(part(used.memory_bytes >> 10, capacity.memory_bytes >> 10));
    let same = here.iter().filter(|t| t.job == task.job).count() as i64;
    let all = here.len() as i64;
    match state.spec_of(task).unwrap().placement.strategy.unwrap_or_default() {
        Strategy::Spread => (same, load, all, node.id),
        Strategy::Binpack => (-load, -all, 0, node.id),
    }
}

/// Places one task after the other by looking at every node.
fn oracle(lab: &mut Lab) -> (Vec<(TaskId, NodeId)>, BTreeSet<TaskId>) {
    let mut tasks: Vec<_> = lab.state.unplaced().cloned().collect();
    tasks.sort_by_key(|t| (Reverse(lab.state.spec_of(t).unwrap().priority), t.job, t.id));
    let (mut placed, mut left) = (Vec::new(), BTreeSet::new());
    for task in tasks {
        let best = lab
            .state
            .nodes()
            .filter(|node| first_failing(&lab.state, &task, node).is_none())
            .min_by_key(|node| score(&lab.state, &task, node))
            .map(|node| node.id);
        match best {
            Some(node) => {
                lab.done(Command::AssignTasks { placements: vec![(task.id, node)] }).unwrap();
                placed.push((task.id, node));
            }
            None => {
                left.insert(task.id);
            }
        }
    }
    (placed, left)
}

fn counted(state: &State, task: &Task) -> Vec<(Filter, u32)> {
    let mut counts = std::collections::BTreeMap::new();
    for node in state.nodes() {
        *counts.entry(first_failing(state, task, node).unwrap()).or_default() += 1;
    }
    counts.into_iter().collect()
}

fn said(explanation: &Explanation) -> Vec<(Filter, u32)> {
    explanation.reasons.iter().map(|r| (r.filter, r.nodes)).collect()
}

proptest! {
    #[test]
    fn plans_are_those_of_the_brute_force_reading(
        nodes in prop::collection::vec(node_case(), 0..7),
        first in prop::collection::vec(job_case(), 0..3),
        second in prop::collection::vec(job_case(), 1..5),
    ) {
        let mut lab = Lab::new();
        for (number, case) in (1..).zip(&nodes) {
            add_node(&mut lab, number, case);
        }
        // Two rounds, so that the second meets a cluster that is partly full.
        for (round, jobs) in [first, second].iter().enumerate() {
            for (number, case) in jobs.iter().enumerate() {
                add_job(&mut lab, round * 10 + number, case);
            }
            let plan = schedule(&lab.state, &pending(&lab.state), lab.now);
            prop_assert_eq!(&plan, &schedule(&lab.state, &pending(&lab.state), lab.now), "deterministic");
            let mut reversed = pending(&lab.state);
            reversed.reverse();
            prop_assert_eq!(&plan, &schedule(&lab.state, &reversed, lab.now), "whatever the order asked");
            let receipt = lab.clone().done(Command::AssignTasks { placements: plan.placed.clone() }).unwrap();
            let all = u32::try_from(plan.placed.len()).unwrap();
            prop_assert_eq!(receipt, Receipt::Changed { changed: all, refused: vec![] }, "apply agrees");
            let (placed, left) = oracle(&mut lab);
            prop_assert_eq!(&plan.placed, &placed);
            let unplaced: BTreeSet<_> = plan.unplaced.iter().flat_map(|(_, tasks)| tasks.clone()).collect();
            prop_assert_eq!(unplaced, left);
            for (why, tasks) in &plan.unplaced {
                for id in tasks {
                    let task = lab.state.task(*id).unwrap();
                    prop_assert_eq!(said(why), counted(&lab.state, task));
                    prop_assert_eq!(why.total as usize, nodes.len());
                }
            }
        }
    }

    #[test]
    fn equal_nodes_differ_by_one_task_at_most(nodes in 1..20_u32, tasks in 1..60_u32) {
        let mut lab = Lab::new();
        for number in 0..nodes {
            lab.node(number, amount(40, 40)).unwrap();
        }
        let job = JobCase {
            cpu: 1, memory: 1, tasks, priority: 1, zone: None, port: None, max_per_node: 0, binpack: false,
        };
        add_job(&mut lab, 0, &job);
        let plan = schedule(&lab.state, &pending(&lab.state), lab.now);
        let count = |node: NodeId| plan.placed.iter().filter(|(_, n)| *n == node).count();
        let counts: Vec<usize> = lab.state.nodes().map(|n| count(n.id)).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        prop_assert_eq!(plan.placed.len(), (tasks as usize).min(nodes as usize * 40));
    }
}
