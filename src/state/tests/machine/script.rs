//! Random commands over a small world, so that they often meet.

use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;
use quorate_base::{id::RequestId, time::Timestamp};
use quorate_model::{
    Explanation, JobId, JobKind, JobStatus, JobVersion, NodeId, NodeStatus, Port, Resources, Slot, TaskId,
    TaskState, TaskStatus, Term,
};
use quorate_state::{Actor, Command, Envelope, NewTasks, Report, Request, lab};

use crate::name;

/// A random envelope.
pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let request = prop::option::weighted(0.2, (0..6_u8, 0..2_u64));
    let fence = prop_oneof![3 => Just(None), 5 => Just(Some(Term(1))), 1 => Just(Some(Term(2)))];
    (0..5_000_000_u64, fence, request, command()).prop_map(|(at, fence, request, command)| Envelope {
        proposed_at: Timestamp::from_millis(at),
        fence,
        actor: Actor::User(Arc::from("ann")),
        request: request
            .map(|(id, fingerprint)| Request { id: RequestId::new(&format!("r{id}")).unwrap(), fingerprint }),
        trace: None,
        command,
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![3 => on_jobs(), 6 => on_tasks(), 2 => on_nodes()]
}

fn job_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("web"), Just("api"), Just("import")]
}

fn on_jobs() -> impl Strategy<Value = Command> {
    let spec = (job_name(), 0..4_u32, 0..3_u8, 0..2_u32, any::<bool>()).prop_map(
        |(job, count, image, most, port)| {
            let kind = match job {
                "import" => JobKind::Batch { completions: count + 1, parallelism: 2 },
                _ => JobKind::Service { replicas: count },
            };
            let mut spec = lab::with_image(lab::spec(job, kind).unwrap(), &format!("app:{image}"));
            spec.placement.max_per_node = most * 2;
            if port {
                spec.ports = [(name("p"), Port { container: 1, host: Some(80), udp: false })].into();
            }
            Command::ApplyJob { spec: Arc::new(spec), expect: None }
        },
    );
    let status = prop_oneof![Just(JobStatus::Complete), Just(JobStatus::Failed), Just(JobStatus::Stopped)];
    prop_oneof![
        4 => spec,
        1 => (job_name(), 0..5_u32).prop_map(|(job, replicas)| Command::ScaleJob {
            namespace: name("default"), name: name(job), replicas, expect: None,
        }),
        1 => (job_name(), any::<bool>()).prop_map(|(job, purge)| Command::DeleteJob {
            namespace: name("default"), name: name(job), purge, expect: None,
        }),
        1 => (0..4_u32, 1..4_u32, status).prop_map(|(job, version, status)| Command::SetJobStatus {
            job: JobId(job), version: JobVersion(version), status,
        }),
        1 => (0..4_u32).prop_map(|job| Command::ForgetJob { job: JobId(job) }),
    ]
}

fn task() -> impl Strategy<Value = TaskId> {
    (0..12_u64).prop_map(TaskId)
}

fn tasks() -> impl Strategy<Value = Vec<TaskId>> {
    prop::collection::vec(task(), 0..5)
}

fn any_state() -> impl Strategy<Value = TaskState> {
    prop::sample::select(TaskState::ALL.to_vec())
}

fn on_tasks() -> impl Strategy<Value = Command> {
    let group = (0..4_u32, 1..4_u32, 0..2_u32).prop_map(|(first, count, attempt)| NewTasks {
        first: Slot(first),
        count,
        attempt,
        not_before: Timestamp::EPOCH,
    });
    let report = (task(), any_state(), 0..6_u64).prop_map(|(task, state, seq)| Report {
        task,
        status: TaskStatus { seq, ..TaskStatus::by_manager(state, Timestamp::from_millis(seq)) },
    });
    let desired = prop_oneof![4 => Just(TaskState::Shutdown), 2 => Just(TaskState::Remove), 1 => any_state()];
    prop_oneof![
        4 => (0..3_u32, 1..4_u32, prop::collection::vec(group, 1..3)).prop_map(|(job, version, groups)| {
            Command::CreateTasks { job: JobId(job), version: JobVersion(version), groups }
        }),
        6 => prop::collection::vec((task(), (0..3_u32).prop_map(NodeId)), 1..6)
            .prop_map(|placements| Command::AssignTasks { placements }),
        2 => (desired, tasks()).prop_map(|(desired, tasks)| Command::SetDesired { desired, tasks }),
        1 => (0..3_u32, tasks()).prop_map(|(total, tasks)| Command::ExplainTasks {
            groups: vec![(Arc::new(Explanation { total, reasons: vec![] }), tasks)],
        }),
        6 => ((0..3_u32).prop_map(NodeId), prop::collection::vec(report, 1..5))
            .prop_map(|(node, reports)| Command::ReportStatuses { node, reports }),
        1 => tasks().prop_map(|tasks| Command::OrphanTasks { tasks }),
        2 => tasks().prop_map(|tasks| Command::RemoveTasks { tasks }),
    ]
}

fn on_nodes() -> impl Strategy<Value = Command> {
    prop_oneof![
        (0..3_u8, 0..2_u8, 1..5_u64).prop_map(|(node, agent, cpu)| Command::RegisterNode {
            name: name(&format!("n{node}")),
            agent: format!("agent-{agent}"),
            facts: Arc::new(lab::facts(Resources { cpu_millis: cpu * 100, memory_bytes: 1 << 30 })),
        }),
        (0..3_u32, any::<bool>()).prop_map(|(node, down)| Command::SetNodeStatus {
            node: NodeId(node),
            status: if down { NodeStatus::Down } else { NodeStatus::Ready },
            reason: "script".to_owned(),
        }),
    ]
}

/// Task numbers that a command names; for checks of its answer.
pub(crate) fn named(command: &Command) -> BTreeSet<TaskId> {
    match command {
        Command::AssignTasks { placements } => placements.iter().map(|(task, _)| *task).collect(),
        Command::SetDesired { tasks, .. }
        | Command::OrphanTasks { tasks }
        | Command::RemoveTasks { tasks } => tasks.iter().copied().collect(),
        Command::ExplainTasks { groups } => groups.iter().flat_map(|(_, tasks)| tasks.clone()).collect(),
        Command::ReportStatuses { reports, .. } => reports.iter().map(|r| r.task).collect(),
        _ => BTreeSet::new(),
    }
}
