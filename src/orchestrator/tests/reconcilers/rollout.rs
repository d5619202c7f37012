//! Services: replacing the tasks of an old version.

use std::time::Duration;

use quorate_model::{JobId, JobSpec, Resources, Task, TaskState, TaskStatus};
use quorate_state::{Command, lab::with_image};

use crate::room::{Room, service};

/// How long a replacement must be up: the reconciler's constant.
const MIN_UP: Duration = Duration::from_secs(2);

fn second(replicas: u32) -> JobSpec {
    with_image(service(replicas), "app:2")
}

fn running(room: &Room, job: JobId, version: u32) -> usize {
    room.live(job).into_values().filter(|t| t.version.0 == version && t.is_up()).count()
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
        room.lab.pass(MIN_UP);
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
    assert_eq!(running(&room, job, 1), 1);
    let new = room.live(job)[&0].clone();
    assert_eq!((new.version.0, new.status.state), (2, TaskState::Assigned));
    room.end(new.id, TaskState::Preparing);
    room.settle();
    assert_eq!(running(&room, job, 1), 1, "slot 1 keeps serving");
    room.converge();
    assert_eq!(running(&room, job, 2), 2);
}

/// A room of two replicas where slot 0 was replaced and its new task has just begun to run.
fn half_way() -> (Room, JobId, Task) {
    let (mut room, job) = Room::with(2, service(2));
    room.submit(second(2));
    while running(&room, job, 2) == 0 {
        room.settle();
        room.obey();
    }
    let new = room.live(job)[&0].clone();
    (room, job, new)
}

#[test]
fn the_next_slot_waits_until_the_replacement_has_been_up_for_a_while() {
    let (mut room, job, new) = half_way();
    let since = new.status.running_since.unwrap();
    room.settle();
    assert_eq!(running(&room, job, 1), 1, "slot 1 keeps serving");
    assert_eq!(room.outcome("service").wake_at, Some(since.saturating_add(MIN_UP)));
    room.lab.pass(MIN_UP - Duration::from_millis(1));
    assert_eq!(room.commands("service"), []);
    room.lab.pass(Duration::from_millis(1));
    assert!(matches!(&room.commands("service")[..], [Command::SetDesired { tasks, .. }] if tasks.len() == 1));
    assert_eq!(room.outcome("service").wake_at, None, "nothing more is held up by time");
}

#[test]
fn a_version_that_starts_and_crashes_again_and_again_stops_its_own_roll_out() {
    let (mut room, job, new) = half_way();
    for _ in 0..5 {
        room.wait_for_restart(new.id);
        room.lab.pass(Duration::from_secs(10));
        room.settle();
        room.end(new.id, TaskState::Running);
        room.settle();
    }
    assert_eq!(running(&room, job, 1), 1, "slot 1 keeps serving");
    room.lab.pass(MIN_UP);
    room.converge();
    assert_eq!(running(&room, job, 2), 2, "it came up after all");
}

#[test]
fn an_old_version_that_crashes_again_and_again_is_replaced_in_one_step() {
    let (mut room, job) = Room::with(3, service(8));
    room.live(job).into_values().for_each(|t| room.wait_for_restart(t.id));
    room.submit(second(8));
    room.settle();
    let stopping = room.lab.state.tasks_of(job).filter(|t| t.desired == TaskState::Shutdown).count();
    assert_eq!(stopping, 8, "what serves nobody need not wait for its turn");
}

#[test]
fn a_beginning_in_the_far_future_holds_nothing_up() {
    let (mut room, job, new) = half_way();
    let ahead = room.lab.now.saturating_add(Duration::from_secs(3600));
    room.tell(new.id, TaskStatus { running_since: Some(ahead), ..new.status.clone() });
    assert_eq!(room.outcome("service").wake_at, None);
    room.converge();
    assert_eq!(running(&room, job, 2), 2);
}

#[test]
fn new_jobs_and_new_replicas_are_all_started_at_once() {
    let (mut room, job) = Room::with(3, service(2));
    room.scale(8);
    room.settle();
    assert_eq!(room.live(job).len(), 8);
    assert_eq!(room.outcome("service").wake_at, None);
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
