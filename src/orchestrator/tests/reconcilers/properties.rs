//! Random histories: every reconciler is idempotent, and the cluster always comes to rest where it should.

use std::time::Duration;

use proptest::prelude::*;
use quorate_model::{
    JobKind, JobSpec, JobStatus, Name, NodeStatus, RestartCondition, Settings, TaskId, TaskState,
};
use quorate_orchestrator::registry;
use quorate_state::{Command, lab};

use crate::room::Room;

const NODES: u32 = 4;

#[derive(Debug, Clone)]
enum Op {
    Service { job: u8, replicas: u32, image: u8 },
    Batch { job: u8, completions: u32, parallelism: u32 },
    Delete { job: u8, purge: bool },
    Node { node: u8, down: bool },
    End { pick: u8, state: u8 },
    Obey,
    Pass,
    OneReconciler { pick: u8 },
    Wait { seconds: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..3_u8, 0..12_u32, 0..3_u8).prop_map(|(job, replicas, image)| Op::Service { job, replicas, image }),
        1 => (0..2_u8, 1..6_u32, 1..4_u32)
            .prop_map(|(job, completions, parallelism)| Op::Batch { job, completions, parallelism }),
        1 => (0..5_u8, any::<bool>()).prop_map(|(job, purge)| Op::Delete { job, purge }),
        2 => (0..NODES as u8, any::<bool>()).prop_map(|(node, down)| Op::Node { node, down }),
        3 => (any::<u8>(), 0..4_u8).prop_map(|(pick, state)| Op::End { pick, state }),
        3 => Just(Op::Obey),
        4 => Just(Op::Pass),
        2 => any::<u8>().prop_map(|pick| Op::OneReconciler { pick }),
        1 => (1..900_u64).prop_map(|seconds| Op::Wait { seconds }),
    ]
}

fn service(job: u8, replicas: u32, image: u8) -> JobSpec {
    let spec = lab::spec(&format!("s{job}"), JobKind::Service { replicas }).unwrap();
    let mut spec = lab::with_image(spec, &format!("app:{image}"));
    // One service that restarts for ever, one that gives up, one that ends for good.
    match job {
        0 => {}
        1 => spec.reschedule.attempts = Some(2),
        _ => spec.restart.condition = RestartCondition::OnFailure,
    }
    spec
}

fn act(room: &mut Room, op: &Op) {
    match *op {
        Op::Service { job, replicas, image } => {
            room.lab.job(service(job, replicas, image)).ok();
        }
        Op::Batch { job, completions, parallelism } => {
            let kind = JobKind::Batch { completions, parallelism };
            room.lab.job(lab::spec(&format!("b{job}"), kind).unwrap()).ok();
        }
        Op::Delete { job, purge } => {
            let name: Name = ["s0", "s1", "s2", "b0", "b1"][usize::from(job)].parse().unwrap();
            let namespace = Name::default_namespace();
            room.lab.done(Command::DeleteJob { namespace, name, purge, expect: None }).ok();
        }
        Op::Node { node, down } => {
            let status = if down { NodeStatus::Down } else { NodeStatus::Ready };
            room.judge(room.nodes[usize::from(node)], status);
        }
        Op::End { pick, state } => end(room, pick, state),
        Op::Obey => {
            room.obey();
        }
        Op::Pass => {
            room.pass();
        }
        Op::OneReconciler { pick } => {
            let all = registry();
            let outcome = room.ask(all[usize::from(pick) % all.len()].as_ref());
            outcome.commands.into_iter().for_each(|c| room.run(c));
        }
        Op::Wait { seconds } => room.lab.pass(Duration::from_secs(seconds)),
    }
}

/// A task of a node that is heard ends by itself.
fn end(room: &mut Room, pick: u8, state: u8) {
    let ends = [TaskState::Complete, TaskState::Shutdown, TaskState::Failed, TaskState::Rejected];
    let view = &room.lab.state;
    let heard = |node| view.node(node).is_some_and(|n| n.status == NodeStatus::Ready);
    let living: Vec<TaskId> = view
        .tasks()
        .filter(|t| !t.status.state.is_terminal() && t.node.is_some_and(heard))
        .map(|t| t.id)
        .collect();
    if !living.is_empty() {
        room.end(living[usize::from(pick) % living.len()], ends[usize::from(state)]);
    }
}

/// What holds for a cluster at rest in which all nodes are back and every back-off has passed.
fn at_rest(room: &Room) -> Result<(), TestCaseError> {
    let state = &room.lab.state;
    for job in state.jobs() {
        let spec = job.spec().unwrap();
        let live = room.live(job.id);
        for (slot, task) in &live {
            prop_assert!(job.is_current(task.version), "{} slot {slot}: {task:?}", job.key());
            let settled = task.status.state == TaskState::Running || task.explanation.is_some();
            prop_assert!(settled, "{} slot {slot} neither runs nor says why: {task:?}", job.key());
        }
        match (job.status, spec.kind) {
            (JobStatus::Active, JobKind::Service { replicas }) => {
                let open: std::collections::BTreeSet<u32> =
                    state.tasks_of(job.id).map(|t| t.slot.0).collect();
                prop_assert_eq!(open.len(), replicas as usize, "{}", job.key());
                let endless =
                    spec.reschedule.attempts.is_none() && spec.restart.condition == RestartCondition::Any;
                prop_assert!(!endless || live.len() == replicas as usize, "{}", job.key());
            }
            (JobStatus::Active, JobKind::Batch { completions, parallelism }) => {
                let wanted = parallelism.min(completions - job.succeeded);
                prop_assert_eq!(live.len(), wanted as usize, "{}", job.key());
            }
            (JobStatus::Purging, _) => prop_assert!(false, "{} is not forgotten", job.key()),
            (JobStatus::Complete | JobStatus::Failed | JobStatus::Stopped, _) => {
                prop_assert!(live.is_empty(), "{}", job.key());
            }
        }
        let history = state.settings().task_history as usize;
        let slots: std::collections::BTreeSet<_> = state.tasks_of(job.id).map(|t| t.slot).collect();
        for slot in slots {
            let ended = state.tasks_of_slot(job.id, slot).filter(|t| t.status.state.is_terminal()).count();
            prop_assert!(ended <= history.max(1), "{} keeps {ended} ended tasks", job.key());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_history_comes_to_rest(ops in prop::collection::vec(op(), 0..40), task_history in 0..3_u32) {
        let mut room = Room::new(NODES);
        let settings = Settings { task_history, ..Settings::default() };
        room.lab.done(Command::UpdateSettings { settings }).unwrap();
        for op in &ops {
            act(&mut room, op);
        }
        for node in room.nodes.clone() {
            room.judge(node, NodeStatus::Ready);
        }
        room.converge();
        room.wait_out();
        at_rest(&room)?;
    }

    #[test]
    fn asking_twice_asks_for_nothing_new(ops in prop::collection::vec(op(), 0..25)) {
        let mut room = Room::new(NODES);
        for op in &ops {
            act(&mut room, op);
            for reconciler in registry() {
                let mut copy = Room {
                    lab: room.lab.clone(), overdue: room.overdue.clone(), nodes: room.nodes.clone(),
                };
                let first = copy.ask(reconciler.as_ref());
                prop_assert_eq!(&first, &room.ask(reconciler.as_ref()), "deterministic");
                first.commands.into_iter().for_each(|c| copy.run(c));
                let again = copy.ask(reconciler.as_ref()).commands;
                prop_assert!(again.is_empty(), "{} after {op:?}: {again:?}", reconciler.name());
            }
        }
    }
}
