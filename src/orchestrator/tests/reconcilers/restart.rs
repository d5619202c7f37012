//! What follows on the end of a task.

use std::time::Duration;

use quorate_model::{JobSpec, RestartCondition, Task, TaskState};

use crate::room::{Room, service};

fn policy(condition: RestartCondition, attempts: Option<u32>) -> JobSpec {
    let mut spec = service(1);
    spec.restart.condition = condition;
    spec.reschedule.attempts = attempts;
    spec
}

/// Ends the only task and returns what lives in its slot afterwards.
fn after(spec: JobSpec, ran: Duration, state: TaskState) -> (Room, Option<Task>) {
    let (mut room, job) = Room::with(1, spec);
    let task = room.live(job)[&0].id;
    room.lab.pass(ran);
    room.end(task, state);
    room.settle();
    let next = room.live(job).remove(&0);
    (room, next)
}

#[test]
fn the_condition_decides_which_ends_are_answered() {
    use RestartCondition::{Any, Never, OnFailure};
    use TaskState::{Complete, Failed, Rejected, Shutdown};
    for (condition, end, replaced) in [
        (Any, Complete, true),
        (Any, Shutdown, true),
        (Any, Failed, true),
        (OnFailure, Complete, false),
        (OnFailure, Shutdown, false),
        (OnFailure, Failed, true),
        (OnFailure, Rejected, true),
        (Never, Complete, false),
        (Never, Failed, false),
    ] {
        let (_, next) = after(policy(condition, None), Duration::from_secs(1), end);
        assert_eq!(next.is_some(), replaced, "{condition:?} after {end}");
    }
}

#[test]
fn waits_double_and_a_long_run_starts_the_row_anew() {
    let (mut room, job) = Room::with(1, policy(RestartCondition::Any, None));
    for (attempt, wait) in [(1, 5), (2, 10), (3, 20)] {
        let task = room.live(job)[&0].id;
        room.end(task, TaskState::Failed);
        let ended = room.lab.now;
        room.settle();
        let next = room.live(job)[&0].clone();
        assert_eq!((next.attempt, next.not_before.since(ended)), (attempt, Duration::from_secs(wait)));
        assert_eq!(next.node, None, "it takes no room while it waits");
        assert_eq!(room.outcome("placement").wake_at, Some(next.not_before));
        room.lab.pass(Duration::from_secs(wait));
        room.converge();
        assert_eq!(room.live(job)[&0].status.state, TaskState::Running);
    }
    let task = room.live(job)[&0].id;
    room.lab.pass(Duration::from_secs(601));
    room.end(task, TaskState::Failed);
    room.settle();
    assert_eq!(room.live(job)[&0].attempt, 1);
}

#[test]
fn used_up_attempts_leave_the_slot_empty_until_a_new_version() {
    let (mut room, job) = Room::with(1, policy(RestartCondition::Any, Some(1)));
    for _ in 0..2 {
        let task = room.live(job)[&0].id;
        room.end(task, TaskState::Failed);
        room.settle();
        room.lab.pass(Duration::from_secs(60));
        room.converge();
    }
    assert!(room.live(job).is_empty());
    room.wait_out();
    assert!(room.live(job).is_empty(), "given up stays given up");
    room.submit(quorate_state::lab::with_image(policy(RestartCondition::Any, Some(1)), "app:2"));
    room.converge();
    assert_eq!(room.live(job)[&0].attempt, 0);
}

#[test]
fn an_agent_with_a_late_clock_cannot_make_a_tight_loop() {
    let (mut room, job) = Room::with(1, policy(RestartCondition::Any, None));
    let task = room.live(job)[&0].id;
    let leader = room.lab.now;
    room.lab.now = leader.saturating_sub(Duration::from_secs(3600));
    room.end(task, TaskState::Failed);
    room.lab.now = leader;
    room.settle();
    assert_eq!(room.live(job)[&0].not_before, leader.saturating_add(Duration::from_secs(5)));
}

#[test]
fn a_stopped_and_restarted_job_starts_afresh() {
    let (mut room, job) = Room::with(1, policy(RestartCondition::Any, None));
    let task = room.live(job)[&0].id;
    room.end(task, TaskState::Failed);
    room.settle();
    room.delete("web", false);
    room.converge();
    assert!(room.live(job).is_empty());
    room.submit(policy(RestartCondition::Any, None));
    room.converge();
    assert_eq!((room.live(job)[&0].attempt, room.live(job)[&0].status.state), (0, TaskState::Running));
}
