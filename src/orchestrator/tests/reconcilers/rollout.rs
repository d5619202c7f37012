//! Services: replacing the tasks of an old version.

use quorate_model::{JobId, JobSpec, Resources, TaskState};
use quorate_state::lab::with_image;

use crate::room::{Room, service};

fn second(replicas: u32) -> JobSpec {
    with_image(service(replicas), "app:2")
}

fn running(room: &Room, job: JobId, version: u32) -> usize {
    room.live(job)
        .into_values()
        .filter(|t| t.version.0 == version && t.status.state == TaskState::Running)
        .count()
}

#[test]
fn a_quarter_of_the_slots_is_replaced_at_a_time() {
    let (mut room, job) = Room::with(3, service(8));
    room.submit(second(8));
    let mut least = 8;
    let mut rounds = 0;
    while running(&room, job, 2) < 8 {
        room.settle();
        least = least.min(running(&room, job, 1) + running(&room, job, 2));
        room.obey();
        rounds += 1;
        assert!(rounds < 50, "the roll-out stands still");
    }
    assert_eq!(least, 6, "two of eight at a time, and never more");
    assert_eq!(room.slots(job), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_next_slot_waits_for_the_replacement_to_run() {
    let (mut room, job) = Room::with(2, service(2));
    room.submit(second(2));
    room.settle();
    assert_eq!((running(&room, job, 1), room.count(job, TaskState::Running)), (1, 2), "slot 0 stops");
    room.obey();
    room.settle();
    let new = room.live(job)[&0].clone();
    assert_eq!((new.version.0, new.status.state), (2, TaskState::Assigned));
    room.end(new.id, TaskState::Preparing);
    room.settle();
    assert_eq!(running(&room, job, 1), 1, "slot 1 keeps serving");
    room.converge();
    assert_eq!(running(&room, job, 2), 2);
}

#[test]
fn a_version_that_cannot_run_stops_its_own_roll_out() {
    let (mut room, job) = Room::with(2, service(4));
    room.submit(second(4));
    for _ in 0..10 {
        room.settle();
        let bad: Vec<_> =
            room.live(job).into_values().filter(|t| t.version.0 == 2 && t.node.is_some()).collect();
        bad.iter().for_each(|t| room.end(t.id, TaskState::Rejected));
        let stop: Vec<_> = room
            .lab
            .state
            .tasks_of(job)
            .filter(|t| t.desired == TaskState::Shutdown && !t.status.state.is_terminal())
            .map(|t| t.id)
            .collect();
        stop.iter().for_each(|id| room.end(*id, TaskState::Shutdown));
        room.lab.pass(std::time::Duration::from_secs(700));
    }
    assert_eq!(running(&room, job, 1), 3, "three of four still serve");
    room.submit(with_image(service(4), "app:3"));
    room.converge();
    assert_eq!(running(&room, job, 3), 4, "a version that runs goes through");
}

#[test]
fn a_slot_that_never_had_a_node_does_not_hold_up_the_roll_out() {
    let mut spec = service(3);
    spec.containers.values_mut().for_each(|c| c.reserve = Resources { cpu_millis: 1000, memory_bytes: 0 });
    let (mut room, job) = Room::with(2, spec.clone());
    assert_eq!(running(&room, job, 1), 2);
    room.submit(with_image(spec, "app:2"));
    room.converge();
    assert_eq!(running(&room, job, 2), 2);
}

#[test]
fn tasks_that_do_not_run_yet_are_replaced_in_one_step() {
    let mut room = Room::new(0);
    let job = room.submit(service(5));
    room.settle();
    room.submit(second(5));
    room.pass();
    let live = room.live(job);
    assert!(live.len() == 5 && live.values().all(|t| t.version.0 == 2 && t.attempt == 0), "{live:?}");
}

#[test]
fn labels_priority_and_scale_replace_nothing() {
    let (mut room, job) = Room::with(2, service(2));
    let before: Vec<_> = room.live(job).into_values().map(|t| t.id).collect();
    let mut spec = service(2);
    spec.priority = 90;
    spec.labels.insert("team".into(), "a".into());
    room.submit(spec);
    room.converge();
    assert_eq!(room.live(job).into_values().map(|t| t.id).collect::<Vec<_>>(), before);
}
