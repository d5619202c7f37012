//! What the scheduler decides, case by case.

#![cfg(test)]

use std::{collections::BTreeMap, time::Duration};

use quorate_base::time::Timestamp;
use quorate_model::{
    Constraint, JobId, JobKind, JobSpec, NodeCondition, NodeFacts, NodeId, NodeStatus, Port, Resources,
    RuntimeKind, Slot, Strategy, TaskId,
};
use quorate_scheduler::{Scheduled, schedule};
use quorate_state::{
    Command, NewTasks,
    lab::{Lab, facts, spec},
};

fn room(cpu_millis: u64, mebibytes: u64) -> Resources {
    Resources { cpu_millis, memory_bytes: mebibytes << 20 }
}

fn service(name: &str, reserve: Resources) -> JobSpec {
    let mut spec = spec(name, JobKind::Service { replicas: 1 }).unwrap();
    spec.containers.values_mut().for_each(|c| c.reserve = reserve);
    spec
}

fn publish(mut spec: JobSpec, host: u16) -> JobSpec {
    spec.ports = [("http".parse().unwrap(), Port { container: 80, host: Some(host), udp: false })].into();
    spec
}

fn constrain(mut spec: JobSpec, text: &str) -> JobSpec {
    spec.placement.constraints = vec![Constraint::parse("c", text).unwrap()];
    spec
}

/// Submits the job and creates `count` tasks in its first slots.
fn submit(lab: &mut Lab, spec: JobSpec, count: u32) -> JobId {
    let job = lab.job(spec).unwrap();
    create(lab, job, 0, count, Timestamp::EPOCH);
    job
}

fn create(lab: &mut Lab, job: JobId, first: u32, count: u32, not_before: Timestamp) {
    let version = lab.job_record(job).unwrap().version;
    let groups = vec![NewTasks { first: Slot(first), count, attempt: 0, not_before }];
    lab.done(Command::CreateTasks { job, version, groups }).unwrap();
}

fn plan(lab: &Lab) -> Scheduled {
    let pending: Vec<TaskId> = lab.state.unplaced().map(|t| t.id).collect();
    schedule(&lab.state, &pending, lab.now)
}

/// Applies the plan; every placement must still fit.
fn settle(lab: &mut Lab) {
    let placements = plan(lab).placed;
    let count = u32::try_from(placements.len()).unwrap();
    let receipt = lab.done(Command::AssignTasks { placements }).unwrap();
    assert_eq!(receipt, quorate_state::Receipt::Changed { changed: count, refused: vec![] });
}

/// Tasks of a job per node.
fn copies(lab: &Lab, job: JobId) -> BTreeMap<NodeId, usize> {
    let mut found = BTreeMap::new();
    for node in lab.state.tasks_of(job).filter_map(|t| t.node) {
        *found.entry(node).or_default() += 1;
    }
    found
}

fn reasons(lab: &Lab) -> Vec<String> {
    plan(lab).unplaced.iter().map(|(why, _)| why.to_string()).collect()
}

fn three_nodes() -> (Lab, [NodeId; 3]) {
    let mut lab = Lab::new();
    let nodes = [1, 2, 3].map(|n| lab.node(n, room(1000, 1024)).unwrap());
    (lab, nodes)
}

#[test]
fn spread_evens_out_the_tasks_of_a_job() {
    let (mut lab, nodes) = three_nodes();
    let web = submit(&mut lab, service("web", room(100, 64)), 7);
    settle(&mut lab);
    assert_eq!(copies(&lab, web), [(nodes[0], 3), (nodes[1], 2), (nodes[2], 2)].into());
    create(&mut lab, web, 7, 2, Timestamp::EPOCH);
    settle(&mut lab);
    assert_eq!(copies(&lab, web).into_values().collect::<Vec<_>>(), [3, 3, 3], "it counts what is there");
}

#[test]
fn among_equals_the_least_loaded_node_wins_and_then_the_lowest_number() {
    let (mut lab, nodes) = three_nodes();
    submit(&mut lab, service("heavy", room(500, 64)), 1);
    settle(&mut lab);
    submit(&mut lab, service("light", room(100, 64)), 1);
    settle(&mut lab);
    let third = submit(&mut lab, service("third", room(100, 64)), 1);
    settle(&mut lab);
    assert_eq!(copies(&lab, third), [(nodes[2], 1)].into());
}

#[test]
fn jobs_that_reserve_nothing_spread_as_well() {
    let (mut lab, nodes) = three_nodes();
    let jobs = ["a", "b", "c"].map(|name| submit(&mut lab, service(name, room(0, 0)), 1));
    settle(&mut lab);
    let homes = jobs.map(|job| *copies(&lab, job).keys().next().unwrap());
    assert_eq!(homes, nodes);
}

#[test]
fn binpack_fills_the_fullest_node_that_fits() {
    let (mut lab, nodes) = three_nodes();
    submit(&mut lab, service("first", room(500, 64)), 1);
    settle(&mut lab);
    let mut spec = service("packed", room(250, 64));
    spec.placement.strategy = Some(Strategy::Binpack);
    let packed = submit(&mut lab, spec, 3);
    settle(&mut lab);
    assert_eq!(copies(&lab, packed), [(nodes[0], 2), (nodes[1], 1)].into());
}

#[test]
fn higher_priority_is_served_first_and_then_the_older() {
    let mut lab = Lab::new();
    lab.node(1, room(250, 1024)).unwrap();
    let old = submit(&mut lab, service("old", room(100, 1)), 1);
    let young = submit(&mut lab, service("young", room(100, 1)), 1);
    let mut urgent = service("urgent", room(100, 1));
    urgent.priority = 90;
    let urgent = submit(&mut lab, urgent, 1);
    settle(&mut lab);
    assert_eq!([urgent, old, young].map(|job| copies(&lab, job).len()), [1, 1, 0]);
}

#[test]
fn a_host_port_is_given_once_per_node() {
    let (mut lab, _) = three_nodes();
    let web = submit(&mut lab, publish(service("web", room(0, 0)), 8080), 2);
    settle(&mut lab);
    let other = submit(&mut lab, publish(service("other", room(0, 0)), 8080), 2);
    settle(&mut lab);
    assert_eq!((copies(&lab, web).len(), copies(&lab, other).len()), (2, 1));
    assert_eq!(reasons(&lab), ["3 of 3 nodes: port 8080 is taken"]);
    let mut udp = publish(service("dns", room(0, 0)), 8080);
    udp.ports.values_mut().for_each(|p| p.udp = true);
    let dns = submit(&mut lab, udp, 3);
    settle(&mut lab);
    assert_eq!(copies(&lab, dns).len(), 3, "UDP and TCP do not meet");
}

#[test]
fn the_most_tasks_per_node_are_kept_over_passes() {
    let (mut lab, _) = three_nodes();
    let mut spec = service("web", room(0, 0));
    spec.placement.max_per_node = 1;
    let web = submit(&mut lab, spec, 2);
    settle(&mut lab);
    create(&mut lab, web, 2, 2, Timestamp::EPOCH);
    settle(&mut lab);
    assert_eq!(copies(&lab, web).into_values().collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(reasons(&lab), ["3 of 3 nodes: runs 1 task of this job already (maxPerNode 1)"]);
}

#[test]
fn a_task_that_must_wait_is_passed_over_until_its_time() {
    let (mut lab, _) = three_nodes();
    let job = lab.job(service("web", room(100, 64))).unwrap();
    let due = lab.now.saturating_add(Duration::from_secs(5));
    create(&mut lab, job, 0, 1, due);
    assert_eq!(plan(&lab), Scheduled::default());
    lab.pass(Duration::from_secs(5));
    assert_eq!(plan(&lab).placed.len(), 1);
}

#[test]
fn tasks_that_have_a_node_or_ended_are_passed_over() {
    let (mut lab, _) = three_nodes();
    submit(&mut lab, service("web", room(100, 64)), 1);
    settle(&mut lab);
    let placed: Vec<TaskId> = lab.state.tasks().map(|t| t.id).collect();
    assert_eq!(schedule(&lab.state, &placed, lab.now), Scheduled::default());
    assert_eq!(schedule(&lab.state, &[TaskId(77)], lab.now), Scheduled::default());
}

#[test]
fn explanations_count_each_node_for_its_first_failing_filter() {
    let mut lab = Lab::new();
    let zone = |zone: &str, facts: NodeFacts| NodeFacts {
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..facts
    };
    let big = room(4000, 4096);
    let down = lab.node_with(1, zone("a", facts(big))).unwrap();
    let mut bare = zone("a", facts(big));
    bare.runtimes.remove(&RuntimeKind::Docker);
    lab.node_with(2, bare).unwrap();
    lab.node_with(3, zone("b", facts(big))).unwrap();
    lab.node_with(4, zone("a", facts(room(600, 4096)))).unwrap();
    lab.node_with(5, zone("a", facts(room(400, 4096)))).unwrap();
    lab.node_with(6, zone("a", facts(room(4000, 512)))).unwrap();
    lab.done(Command::SetNodeStatus { node: down, status: NodeStatus::Down, reason: "lost".into() }).unwrap();
    submit(&mut lab, constrain(service("web", room(1000, 1024)), "node.labels.zone == a"), 2);
    assert_eq!(
        reasons(&lab),
        ["1 of 6 nodes: is down; \
          1 of 6 nodes: lacks the docker runtime; \
          1 of 6 nodes: node.labels.zone == a does not hold; \
          2 of 6 nodes: need 1 CPU, best free 0.6; \
          1 of 6 nodes: need 1GiB of memory, best free 512MiB"]
    );
    let plan = plan(&lab);
    assert_eq!(plan.unplaced[0].1.len(), 2, "equal tasks share their reason");
}

#[test]
fn an_empty_cluster_says_so() {
    let mut lab = Lab::new();
    submit(&mut lab, service("web", room(0, 0)), 1);
    assert_eq!(reasons(&lab), ["no node has joined the cluster"]);
}

#[test]
fn a_down_node_gets_nothing() {
    let (mut lab, nodes) = three_nodes();
    lab.done(Command::SetNodeStatus { node: nodes[0], status: NodeStatus::Down, reason: "lost".into() })
        .unwrap();
    let web = submit(&mut lab, service("web", room(100, 64)), 4);
    settle(&mut lab);
    assert_eq!(copies(&lab, web), [(nodes[1], 2), (nodes[2], 2)].into());
}

#[test]
fn a_node_under_pressure_gets_nothing_new_and_says_why() {
    let mut lab = Lab::new();
    let calm = lab.node(1, room(4000, 4096)).unwrap();
    let mut short = facts(room(4000, 4096));
    short.conditions.insert(NodeCondition::DiskPressure, "95 % of the disk is used".to_owned());
    lab.node_with(2, short).unwrap();
    let web = submit(&mut lab, service("web", room(3000, 64)), 2);
    settle(&mut lab);
    assert_eq!(copies(&lab, web), [(calm, 1)].into());
    assert_eq!(
        reasons(&lab),
        ["1 of 2 nodes: takes no new tasks under disk-pressure: 95 % of the disk is used; \
          1 of 2 nodes: need 3 CPU, best free 1"]
    );
}

#[test]
fn what_does_not_fit_leaves_room_for_what_does() {
    let mut lab = Lab::new();
    lab.node(1, room(500, 1024)).unwrap();
    let big = submit(&mut lab, service("big", room(800, 64)), 1);
    let small = submit(&mut lab, service("small", room(400, 64)), 1);
    settle(&mut lab);
    assert_eq!((copies(&lab, big).len(), copies(&lab, small).len()), (0, 1));
    assert_eq!(reasons(&lab), ["1 of 1 node: need 0.8 CPU, best free 0.1"], "as things stand after the plan");
}
