//! Services: filling slots, scaling, losing nodes.

use quorate_model::{NodeStatus, TaskState};

use crate::room::{Room, service};

#[test]
fn each_replica_gets_a_slot_and_runs() {
    let (room, job) = Room::with(3, service(5));
    assert_eq!(room.slots(job), [0, 1, 2, 3, 4]);
    assert_eq!(room.count(job, TaskState::Running), 5);
}

#[test]
fn a_service_of_a_thousand_is_one_small_command() {
    let mut room = Room::new(1);
    room.submit(service(1000));
    let commands = room.commands("service");
    let [quorate_state::Command::CreateTasks { groups, .. }] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((groups.len(), groups[0].count), (1, 1000));
}

#[test]
fn scaling_up_fills_the_lowest_missing_slots() {
    let (mut room, job) = Room::with(3, service(4));
    let victim = room.live(job)[&1].id;
    room.lab
        .done(quorate_state::Command::SetDesired { desired: TaskState::Remove, tasks: vec![victim] })
        .unwrap();
    room.scale(5);
    room.settle();
    assert_eq!(room.slots(job), [0, 2, 3, 4, 5], "slot 1 still stops: two must not run in it at once");
    room.converge();
    room.scale(6);
    room.converge();
    assert_eq!(room.slots(job), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn scaling_replaces_nothing() {
    let (mut room, job) = Room::with(3, service(3));
    let before: Vec<_> = room.live(job).into_values().map(|t| t.id).collect();
    room.scale(6);
    room.converge();
    room.scale(3);
    room.converge();
    let after: Vec<_> = room.live(job).into_values().map(|t| t.id).collect();
    assert_eq!(before, after);
}

#[test]
fn scaling_down_takes_the_unplaced_then_the_not_running_first() {
    let mut room = Room::new(1);
    let job = room.submit(service(12));
    room.settle();
    // Ten fit; let all but slot 0 run.
    let first = room.live(job)[&0].id;
    for task in room.live(job).into_values().filter(|t| t.node.is_some() && t.id != first) {
        room.end(task.id, TaskState::Running);
    }
    room.scale(9);
    room.settle();
    assert_eq!(room.slots(job), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn scaling_down_keeps_the_nodes_even() {
    let mut room = Room::new(2);
    let job = room.submit(service(3));
    room.converge();
    let nodes = room.nodes.clone();
    let on = |room: &Room, node| room.live(job).into_values().filter(|t| t.node == Some(node)).count();
    assert_eq!((on(&room, nodes[0]), on(&room, nodes[1])), (2, 1));
    room.scale(2);
    room.converge();
    assert_eq!((on(&room, nodes[0]), on(&room, nodes[1])), (1, 1), "the crowded node gives one up");
    assert_eq!(room.slots(job), [0, 1]);
}

#[test]
fn a_closed_slot_is_forgotten_with_its_history() {
    let (mut room, job) = Room::with(2, service(3));
    room.scale(1);
    room.converge();
    assert_eq!(room.lab.state.tasks_of(job).count(), 1);
    room.scale(0);
    room.converge();
    assert_eq!(room.lab.state.task_count(), 0);
}

#[test]
fn tasks_of_a_lost_node_are_replaced_at_once_and_without_blame() {
    let (mut room, job) = Room::with(2, service(2));
    let lost = room.live(job)[&0].clone();
    room.judge(lost.node.unwrap(), NodeStatus::Down);
    room.pass();
    let new = room.live(job)[&0].clone();
    assert!(new.id != lost.id && new.attempt == 0 && new.not_before <= room.lab.now, "{new:?}");
    assert_eq!(room.lab.state.task(lost.id).unwrap().desired, TaskState::Shutdown);
    room.converge();
    assert_ne!(room.live(job)[&0].node, lost.node);
    room.judge(lost.node.unwrap(), NodeStatus::Ready);
    room.converge();
    assert_eq!(room.live(job)[&0].id, new.id, "its return moves nothing back");
    assert_eq!(room.lab.state.task(lost.id).unwrap().status.state, TaskState::Shutdown);
}

#[test]
fn a_replacement_that_was_lost_with_its_leader_is_made_by_the_next_one() {
    let (mut room, job) = Room::with(2, service(1));
    let lost = room.live(job)[&0].clone();
    room.judge(lost.node.unwrap(), NodeStatus::Down);
    let commands = room.commands("service");
    room.run(commands[0].clone());
    assert!(room.live(job).is_empty(), "the old leader got no further");
    room.converge();
    assert_eq!(room.live(job)[&0].status.state, TaskState::Running);
}
