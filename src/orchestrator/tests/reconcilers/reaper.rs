//! The reaper: bounded history.

use std::time::Duration;

use quorate_model::{JobId, Settings, TaskState};
use quorate_state::Command;

use crate::room::{Room, service};

fn crash(room: &mut Room, job: JobId, times: u32) {
    for _ in 0..times {
        let task = room.live(job)[&0].id;
        room.end(task, TaskState::Failed);
        room.settle();
        room.lab.pass(Duration::from_secs(700));
        room.converge();
    }
}

fn keep(room: &mut Room, task_history: u32) {
    let settings = Settings { task_history, ..Settings::default() };
    room.lab.done(Command::UpdateSettings { settings }).unwrap();
}

#[test]
fn the_newest_ended_tasks_of_a_slot_are_kept() {
    let (mut room, job) = Room::with(1, service(1));
    keep(&mut room, 2);
    crash(&mut room, job, 5);
    let tasks: Vec<_> = room.lab.state.tasks_of(job).map(|t| (t.attempt, t.status.state)).collect();
    assert_eq!(tasks, [(3, TaskState::Failed), (4, TaskState::Failed), (5, TaskState::Running)]);
}

#[test]
fn without_history_the_row_of_failures_is_still_known() {
    let (mut room, job) = Room::with(1, service(1));
    keep(&mut room, 0);
    crash(&mut room, job, 3);
    assert_eq!(room.live(job)[&0].attempt, 3);
    assert_eq!(room.lab.state.tasks_of(job).count(), 1);
}

#[test]
fn a_given_up_slot_keeps_the_task_that_says_so() {
    let mut spec = service(1);
    spec.reschedule.attempts = Some(0);
    let (mut room, job) = Room::with(1, spec);
    keep(&mut room, 0);
    crash(&mut room, job, 1);
    room.wait_out();
    let tasks: Vec<_> = room.lab.state.tasks_of(job).map(|t| t.status.state).collect();
    assert_eq!(tasks, [TaskState::Failed], "or the reconciler would start it again, for ever");
}

#[test]
fn a_stopped_job_keeps_no_more_than_its_history() {
    let (mut room, job) = Room::with(1, service(3));
    keep(&mut room, 0);
    room.delete("web", false);
    room.converge();
    assert_eq!(room.lab.state.tasks_of(job).count(), 0);
}
