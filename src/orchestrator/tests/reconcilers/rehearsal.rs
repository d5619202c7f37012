//! A rehearsal tells what then happens.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use quorate_model::{JobId, JobSpec, NodeId, TaskState};
use quorate_orchestrator::{Rehearsal, SlotPlan, rehearse};
use quorate_state::{State, lab};

use crate::room::{Room, batch, service};

fn plan(room: &Room, spec: &JobSpec) -> Rehearsal {
    rehearse(&room.lab.state, Arc::new(spec.clone()), room.lab.now).unwrap()
}

/// Where the live tasks of a job are, by slot.
fn places(state: &State, job: JobId) -> BTreeMap<u32, Option<NodeId>> {
    state.tasks_of(job).filter(|t| t.is_live()).map(|t| (t.slot.0, t.node)).collect()
}

#[test]
fn a_rehearsal_writes_nothing_and_tells_each_slot() {
    let (room, job) = Room::with(3, service(3));
    let before = places(&room.lab.state, job);
    let same = plan(&room, &service(3));
    assert!(same.unchanged && same.settled && same.slots.iter().all(|s| s.before == s.after));

    let more = plan(&room, &service(5));
    let (kept, new): (Vec<SlotPlan>, Vec<SlotPlan>) = more.slots.iter().partition(|s| s.before.is_some());
    assert_eq!((kept.len(), new.len()), (3, 2));
    assert!(new.iter().all(|s| more.state.task(s.after.unwrap()).unwrap().node.is_some()));

    let less = plan(&room, &service(1));
    assert_eq!(less.slots.iter().filter(|s| s.after.is_none()).count(), 2);

    let other = plan(&room, &lab::with_image(service(3), "app:2"));
    assert!(other.settled && other.slots.iter().all(|s| s.before.is_some() && s.before != s.after));
    assert_eq!(places(&room.lab.state, job), before, "the real state is as it was");
}

#[test]
fn what_does_not_fit_says_why() {
    let room = Room::new(1);
    let told = plan(&room, &service(15));
    assert!(told.settled, "ten fit");
    let waiting: Vec<_> = told.state.tasks_of(told.job).filter(|t| t.is_unplaced()).collect();
    assert_eq!((told.slots.len(), waiting.len()), (15, 5));
    assert!(waiting.iter().all(|t| t.explanation.is_some()));
}

#[test]
fn a_refusal_is_that_of_the_submission() {
    let (room, _) = Room::with(1, service(1));
    let mut other = batch(2, 1);
    other.name = "web".parse().unwrap();
    let planned = rehearse(&room.lab.state, Arc::new(other.clone()), room.lab.now).unwrap_err();
    let mut twin = room.lab.clone();
    let done = twin.apply(quorate_state::Command::ApplyJob { spec: Arc::new(other), expect: None });
    assert_eq!(done.outcome.unwrap_err(), planned);
}

proptest! {
    #[test]
    fn what_is_planned_is_what_happens(
        nodes in 1..5_u32,
        (old, new) in (0..14_u32, 0..14_u32),
        (image, neighbours) in (0..2_u8, 0..9_u32),
    ) {
        let (mut room, _) = Room::with(nodes, service(old));
        let mut neighbour = service(neighbours);
        neighbour.name = "db".parse().unwrap();
        room.submit(neighbour);
        room.converge();
        let spec = lab::with_image(service(new), if image == 0 { "app:1" } else { "app:2" });
        let told = plan(&room, &spec);
        prop_assert!(told.settled);
        let job = room.submit(spec);
        room.converge();
        prop_assert_eq!(job, told.job);
        prop_assert_eq!(places(&room.lab.state, job), places(&told.state, job));
        let after = |state: &State| state.tasks_of(job).filter(|t| t.status.state == TaskState::Running).count();
        prop_assert_eq!(after(&room.lab.state), after(&told.state));
    }
}
