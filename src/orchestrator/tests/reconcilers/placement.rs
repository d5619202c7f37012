//! Placement: batches, reasons, waking.

use quorate_model::{Resources, TaskState};
use quorate_orchestrator::MAX_PLACED;
use quorate_state::Command;

use crate::room::{Room, service};

#[test]
fn placements_come_in_bounded_commands() {
    let mut room = Room::new(0);
    let capacity = Resources { cpu_millis: 1_000_000, memory_bytes: 1 << 45 };
    for node in 100..103 {
        room.lab.node(node, capacity).unwrap();
    }
    let job = room.submit(service(12_000));
    room.commands("service").into_iter().for_each(|c| room.run(c));
    assert_eq!(room.live(job).len(), 12_000, "two commands created them");
    let sizes: Vec<usize> = room
        .commands("placement")
        .into_iter()
        .map(|command| match command {
            Command::AssignTasks { placements } => placements.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [MAX_PLACED, MAX_PLACED, 2_000]);
    room.settle();
    assert_eq!(room.count(job, TaskState::Assigned), 12_000);
}

#[test]
fn a_reason_is_written_once_and_again_when_it_changes() {
    let mut room = Room::new(1);
    let job = room.submit(service(11));
    room.converge();
    let waiting = room.live(job).into_values().find(|t| t.node.is_none()).unwrap();
    assert_eq!(waiting.explanation.unwrap().to_string(), "1 of 1 node: need 0.1 CPU, best free 0");
    assert!(room.commands("placement").is_empty(), "no churn in the log");
    room.lab.node(9, Resources { cpu_millis: 50, memory_bytes: 1 << 30 }).unwrap();
    room.settle();
    let waiting = room.live(job).into_values().find(|t| t.node.is_none()).unwrap();
    assert_eq!(waiting.explanation.unwrap().to_string(), "2 of 2 nodes: need 0.1 CPU, best free 0.05");
    room.lab.node(10, Resources { cpu_millis: 500, memory_bytes: 1 << 30 }).unwrap();
    room.converge();
    assert_eq!(room.count(job, TaskState::Running), 11);
    assert!(room.lab.state.tasks().all(|t| t.explanation.is_none()));
}
