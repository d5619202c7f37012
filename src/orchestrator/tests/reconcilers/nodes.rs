//! Nodes: leases, returns, orphans.

use std::time::Duration;

use crate::room::{Room, service};
use quorate_model::{NodeStatus, TaskState};

#[test]
fn a_node_that_is_overdue_is_marked_down_once() {
    let mut room = Room::new(2);
    let [lost, heard] = room.nodes[..] else { panic!("two nodes") };
    room.overdue = vec![lost];
    room.pass();
    let record = room.lab.state.node(lost).unwrap();
    assert_eq!(record.status, NodeStatus::Down);
    assert_eq!(record.reason, "its agent was not heard for 5s");
    assert_eq!(room.lab.state.node(heard).unwrap().status, NodeStatus::Ready);
    assert_eq!(room.pass(), 0);
}

#[test]
fn tasks_of_a_node_that_stays_lost_count_as_gone() {
    let (mut room, job) = Room::with(1, service(2));
    let since = room.lab.now;
    room.judge(room.nodes[0], NodeStatus::Down);
    room.converge();
    let due = since.saturating_add(room.lab.state.settings().orphan_after);
    assert_eq!(room.outcome("nodes").wake_at, Some(due));
    room.lab.pass(due.since(since) - Duration::from_millis(1));
    room.converge();
    assert_eq!(room.count(job, TaskState::Orphaned), 0);
    room.lab.pass(Duration::from_millis(1));
    room.converge();
    assert_eq!(room.count(job, TaskState::Orphaned), 2);
    assert_eq!(room.outcome("nodes").wake_at, None);
}
