//! The agents' protocol: what agents say is checked, and what they are told says all that they need.

#[cfg(test)]
mod common;

use std::collections::BTreeMap;

use common::{
    story::{facts, rich_service, seen},
    values,
    world::World,
};
use proptest::{collection::btree_map, prelude::*};
use quorate_model::{JobVersion, NodeFacts, Slot, TaskId, TaskState, task::MAX_REASON};
use quorate_state::Report;
use quorate_wire::agent::{self, AssignedTask, Fence, Wanted, assignment, member_hash, set_hash};

proptest! {
    #[test]
    fn reports_arrive_as_they_were_sent(report in values::report()) {
        prop_assert_eq!(Report::try_from(agent::TaskStatus::from(&report)), Ok(report));
    }

    #[test]
    fn facts_arrive_as_they_were_sent(facts in values::facts()) {
        prop_assert_eq!(NodeFacts::try_from(agent::NodeFacts::from(&facts)), Ok(facts));
    }

    #[test]
    fn a_set_hash_follows_every_change_and_no_order(
        set in btree_map(any::<u64>(), (prop::sample::select(TaskState::ALL.to_vec()), 0..3_u32), 1..20)
    ) {
        let wanted = |(desired, restarts_asked)| Wanted { desired, restarts_asked };
        let pairs: Vec<(TaskId, Wanted)> = set.into_iter().map(|(id, pair)| (TaskId(id), wanted(pair))).collect();
        let hash = set_hash(pairs.iter().copied());
        prop_assert_eq!(set_hash(pairs.iter().rev().copied()), hash);
        let (id, first) = pairs[0];
        let without = hash.wrapping_sub(member_hash(id, first));
        prop_assert_eq!(set_hash(pairs[1..].iter().copied()), without);
        let desired = match first.desired {
            TaskState::Shutdown => TaskState::Running,
            _ => TaskState::Shutdown,
        };
        prop_assert_ne!(without.wrapping_add(member_hash(id, Wanted { desired, ..first })), hash);
        let restarts_asked = first.restarts_asked + 1;
        prop_assert_ne!(without.wrapping_add(member_hash(id, Wanted { restarts_asked, ..first })), hash);
    }
}

#[test]
fn a_set_hash_is_the_same_in_every_release() {
    assert_eq!(set_hash([]), 0);
    let wanted = Wanted { desired: TaskState::Running, restarts_asked: 0 };
    assert_eq!(member_hash(TaskId(1), wanted), 7_022_360_039_413_152_445);
}

#[test]
fn a_report_that_no_agent_may_make_is_refused() {
    let good = agent::TaskStatus::from(&Report { task: TaskId(4), status: seen(TaskState::Failed, 2) });
    for number in [0, 64, 192, 800, 832, 513, 70_000] {
        let error = Report::try_from(agent::TaskStatus { state: number, ..good.clone() }).unwrap_err();
        assert_eq!(error.0[0].path, "state", "{number}");
    }
    let long = agent::TaskStatus { instance: "x".repeat(256), ..good.clone() };
    assert_eq!(Report::try_from(long).unwrap_err().0[0].path, "instance");
    let wordy = agent::TaskStatus { reason: "ä".repeat(MAX_REASON), ..good };
    assert_eq!(Report::try_from(wordy).unwrap().status.reason.len(), MAX_REASON);
}

#[test]
fn facts_beyond_their_bounds_are_refused_and_runtimes_of_the_future_left_out() {
    let mut sent = agent::NodeFacts::from(&facts("a"));
    sent.runtimes.insert("firecracker".into(), "1".into());
    assert_eq!(NodeFacts::try_from(sent.clone()), Ok(facts("a")));
    sent.hostname = "x".repeat(256);
    sent.runtimes.insert("docker".into(), "x".repeat(256));
    let paths: Vec<_> = NodeFacts::try_from(sent).unwrap_err().0.into_iter().map(|v| v.path).collect();
    assert_eq!(paths, ["runtimes.docker", "hostname"]);
}

#[test]
fn an_assignment_says_what_to_run_and_what_is_known() {
    let mut world = World::with_nodes(1);
    let mut spec = rich_service();
    spec.placement.constraints.clear();
    let id = world.apply_job(spec.clone());
    world.create(id, 1, 2, 1);
    world.assign(&[(0, 0)]);
    world.report(0, 0, TaskState::Starting);
    let sent = assignment(&world.state, world.state.task(TaskId(0)).unwrap()).unwrap();
    let got = AssignedTask::try_from(sent.clone()).unwrap();
    assert_eq!((got.id, got.version, got.slot), (TaskId(0), JobVersion(1), Slot(2)));
    assert_eq!((got.namespace.as_str(), got.job.as_str()), ("shop", "web"));
    assert_eq!((got.desired, got.observed), (TaskState::Running, TaskState::Starting));
    assert!(got.observed_seq > 0);
    let workload = got.workload.unwrap();
    assert_eq!((&workload.containers, &workload.volumes), (&spec.containers, &spec.volumes));
    assert_eq!((&workload.ports, workload.restart), (&spec.ports, spec.restart));

    let change = agent::Assignment { spec: None, ..sent.clone() };
    assert_eq!(AssignedTask::try_from(change).unwrap().workload, None);
    let unknown = agent::Assignment { desired_state: 700, job: "A".into(), ..sent };
    let paths: Vec<_> = AssignedTask::try_from(unknown).unwrap_err().0.into_iter().map(|v| v.path).collect();
    assert_eq!(paths, ["job", "desiredState"]);
}

#[test]
fn fences_are_ordered_by_epoch_then_by_term() {
    let fence = |epoch, term| Fence { epoch, term };
    let order = [fence(0, 9), fence(1, 1), fence(1, 2), fence(2, 0)];
    assert!(order.is_sorted());
    assert!(fence(2, 0) > fence(1, 99));
    let newest: BTreeMap<Fence, ()> = order.into_iter().map(|fence| (fence, ())).collect();
    assert_eq!(newest.last_key_value().unwrap().0, &fence(2, 0));
}
