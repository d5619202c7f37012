//! Batches: lanes, completions, retries.

use std::time::Duration;

use quorate_model::{JobId, JobStatus, NodeStatus, TaskState};
use quorate_state::lab::with_image;

use crate::room::{Room, batch};

fn status(room: &Room, job: JobId) -> JobStatus {
    room.lab.job_record(job).unwrap().status
}

fn finish_one(room: &mut Room, job: JobId, state: TaskState) {
    let task = room.live(job).into_values().find(|t| t.node.is_some()).unwrap().id;
    room.end(task, state);
    room.converge();
}

#[test]
fn lanes_run_until_enough_have_succeeded() {
    let (mut room, job) = Room::with(2, batch(5, 2));
    let mut most = 0;
    for done in 1..=5 {
        most = most.max(room.live(job).len());
        assert_eq!(room.live(job).len(), 2.min(6 - done), "never more than are still needed");
        finish_one(&mut room, job, TaskState::Complete);
    }
    assert_eq!((most, status(&room, job)), (2, JobStatus::Complete));
    assert_eq!(room.lab.job_record(job).unwrap().succeeded, 5);
    assert!(room.live(job).is_empty());
}

#[test]
fn a_failed_run_is_tried_again_with_back_off() {
    let (mut room, job) = Room::with(1, batch(1, 1));
    finish_one(&mut room, job, TaskState::Failed);
    let next = room.live(job)[&0].clone();
    assert_eq!((next.attempt, next.node), (1, None));
    room.lab.pass(Duration::from_secs(5));
    room.converge();
    finish_one(&mut room, job, TaskState::Complete);
    assert_eq!(status(&room, job), JobStatus::Complete);
}

#[test]
fn a_batch_fails_when_its_attempts_are_used_up_in_every_lane() {
    let mut spec = batch(4, 2);
    spec.reschedule.attempts = Some(0);
    let (mut room, job) = Room::with(1, spec.clone());
    finish_one(&mut room, job, TaskState::Failed);
    assert_eq!((status(&room, job), room.live(job).len()), (JobStatus::Active, 1), "the other lane goes on");
    finish_one(&mut room, job, TaskState::Failed);
    assert_eq!(status(&room, job), JobStatus::Failed);
    room.submit(with_image(spec, "app:2"));
    room.converge();
    assert_eq!(
        (status(&room, job), room.live(job).len()),
        (JobStatus::Active, 2),
        "a mended one starts afresh"
    );
}

#[test]
fn a_lost_node_costs_no_attempt() {
    let mut spec = batch(1, 1);
    spec.reschedule.attempts = Some(0);
    let (mut room, job) = Room::with(2, spec);
    let node = room.live(job)[&0].node.unwrap();
    room.judge(node, NodeStatus::Down);
    room.converge();
    let next = room.live(job)[&0].clone();
    assert!(next.node.is_some_and(|n| n != node) && next.attempt == 0, "{next:?}");
}

#[test]
fn less_parallelism_stops_the_surplus_and_closes_its_lanes() {
    let (mut room, job) = Room::with(1, batch(10, 4));
    room.submit(batch(10, 1));
    room.converge();
    assert_eq!(room.slots(job), [0]);
    assert!(room.lab.state.tasks_of(job).all(|t| t.slot.0 == 0), "lanes beyond the width keep no history");
}

#[test]
fn a_new_image_stops_old_runs_and_counts_afresh() {
    let (mut room, job) = Room::with(1, batch(3, 1));
    finish_one(&mut room, job, TaskState::Complete);
    room.submit(with_image(batch(3, 1), "app:2"));
    room.converge();
    assert_eq!(room.lab.job_record(job).unwrap().succeeded, 0);
    assert_eq!(room.live(job)[&0].version.0, 2);
}
