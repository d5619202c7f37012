//! Stopping and purging.

use quorate_model::{JobStatus, NodeStatus, TaskState};

use crate::room::{Room, service};

#[test]
fn a_stopped_job_shuts_its_tasks_down_and_keeps_its_record() {
    let (mut room, job) = Room::with(2, service(3));
    room.delete("web", false);
    room.converge();
    assert_eq!(room.count(job, TaskState::Shutdown), 3);
    assert_eq!(room.lab.job_record(job).unwrap().status, JobStatus::Stopped);
}

#[test]
fn a_purged_job_is_forgotten_when_its_last_task_stopped() {
    let (mut room, job) = Room::with(2, service(3));
    room.delete("web", true);
    room.settle();
    assert!(room.lab.state.job(job).is_some(), "its tasks still stop");
    room.converge();
    assert!(room.lab.state.job(job).is_none() && room.lab.state.task_count() == 0);
}

#[test]
fn a_stopped_job_can_be_purged_later() {
    let (mut room, job) = Room::with(1, service(2));
    room.delete("web", false);
    room.converge();
    room.delete("web", true);
    room.converge();
    assert!(room.lab.state.job(job).is_none());
}

#[test]
fn a_purged_job_waits_for_a_lost_node_until_its_tasks_count_as_gone() {
    let (mut room, job) = Room::with(1, service(1));
    room.judge(room.nodes[0], NodeStatus::Down);
    room.delete("web", true);
    room.converge();
    assert!(room.lab.state.job(job).is_some(), "it may still run there");
    room.lab.pass(room.lab.state.settings().orphan_after);
    room.converge();
    assert!(room.lab.state.job(job).is_none());
}
