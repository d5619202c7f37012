//! What holds after any sequence of commands.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quorate_model::{JobId, NodeId, Task, TaskId};
use quorate_state::{Applied, Change, Command, Envelope, Event, Object, Receipt, Record, State, lab::Lab};

use crate::{
    script::{envelope, named},
    truth,
};

/// One object of the state, for comparing before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Job(JobId),
    Task(TaskId),
    Node(NodeId),
}

fn objects(state: &State) -> BTreeMap<Key, Object> {
    let jobs = state.jobs().map(|j| (Key::Job(j.id), Object::Job(j.clone())));
    let tasks = state.tasks().map(|t| (Key::Task(t.id), Object::Task(t.clone())));
    let nodes = state.nodes().map(|n| (Key::Node(n.id), Object::Node(n.clone())));
    jobs.chain(tasks).chain(nodes).collect()
}

fn key(event: &Event) -> Key {
    match &event.object {
        Object::Job(job) => Key::Job(job.id),
        Object::Task(task) => Key::Task(task.id),
        Object::Node(node) => Key::Node(node.id),
        Object::Manager(_) | Object::Settings(_) => panic!("the script has no such command"),
    }
}

/// Replaying the events over the old objects gives the new ones, and no event is empty.
fn check_events(before: &State, after: &State, applied: &Applied) {
    let mut replayed = objects(before);
    for event in &applied.events {
        assert_eq!(event.revision, after.applied().index);
        match event.change {
            Change::Created => assert!(replayed.insert(key(event), event.object.clone()).is_none()),
            Change::Updated => {
                let old = replayed.insert(key(event), event.object.clone());
                assert!(old.is_some_and(|old| old != event.object), "an update without a change: {event:?}");
            }
            Change::Deleted => assert!(replayed.remove(&key(event)).is_some()),
        }
    }
    assert_eq!(replayed, objects(after), "the events tell all that changed");
}

/// A task's desired and observed states grow, its node is set once, the rest of it never changes.
fn check_task(old: &Task, new: &Task) {
    assert!(new.status.state >= old.status.state && new.desired >= old.desired, "{old:?} -> {new:?}");
    assert!(!old.status.state.is_terminal() || new.status == old.status, "resurrected: {old:?} -> {new:?}");
    assert!(old.node.is_none() || new.node == old.node, "moved: {old:?} -> {new:?}");
    let fixed = |t: &Task| (t.job, t.version, t.slot, t.attempt, t.not_before, t.created);
    assert_eq!(fixed(old), fixed(new));
}

fn check_answer(command: &Command, before: &State, applied: &Applied) {
    let Ok(Receipt::Changed { refused, .. }) = &applied.outcome else { return };
    assert!(applied.replayed || refused.iter().all(|id| named(command).contains(id)));
    if let (Command::AssignTasks { placements }, false) = (command, applied.replayed) {
        let done = placements.iter().filter(|(id, _)| !refused.contains(id));
        let mut rooms: BTreeMap<NodeId, _> = BTreeMap::new();
        for (id, node) in done {
            let record = before.node(*node).unwrap();
            let room =
                rooms.entry(*node).or_insert_with(|| record.facts.allocatable().minus(before.usage(*node)));
            let reserve = before.spec_of(before.task(*id).unwrap()).unwrap().reserve();
            assert!(reserve.fits(*room), "{node} is over its capacity");
            *room = room.minus(reserve);
        }
    }
}

/// The memory of answers, and the counter of those: a refusal is remembered, too.
fn is_memory(record: &Record) -> bool {
    matches!(record, Record::Meta(_) | Record::Request(_))
}

fn step(lab: &mut Lab, envelope: &Envelope) {
    let before = lab.state.clone();
    let old_records = truth::records(&before);
    let mut twin = lab.clone();
    let applied = lab.push(envelope);
    assert_eq!(twin.push(envelope), applied, "the same entry gives the same answer");
    let records = truth::records(&lab.state);
    assert_eq!(truth::records(&twin.state), records, "and the same state");
    if applied.outcome.is_err() || applied.replayed {
        let objects = |all: Vec<Record>| all.into_iter().filter(|r| !is_memory(r)).collect::<Vec<_>>();
        assert_eq!(objects(records), objects(old_records), "refused or replayed: no object changed");
    }
    assert!(lab.state.now() >= before.now());
    check_events(&before, &lab.state, &applied);
    check_answer(&envelope.command, &before, &applied);
    for old in before.tasks() {
        if let Some(new) = lab.state.task(old.id) {
            check_task(old, new);
        }
    }
    truth::check_indexes(&lab.state);
}

proptest! {
    #[test]
    fn any_script_keeps_the_state_true(script in prop::collection::vec(envelope(), 1..120)) {
        let mut lab = Lab::new();
        for envelope in &script {
            step(&mut lab, envelope);
        }
        let rebuilt = truth::rebuilt(&lab.state);
        prop_assert_eq!(rebuilt.records().collect::<Vec<Record>>(), lab.state.records().collect::<Vec<_>>());
        truth::check_indexes(&rebuilt);
        prop_assert!(lab.state.request_count() <= 6);
    }
}
