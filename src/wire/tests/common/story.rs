//! A small cluster's life with a command of every kind: the ground of the golden bytes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use quorate_base::{
    id::{ClusterId, RequestId},
    time::Timestamp,
};
use quorate_model::{
    Attribute, ClusterVersion, Constraint, ContainerSpec, Epoch, Explanation, Filter, ImagePull, JobId,
    JobKind, JobSpec, JobStatus, JobVersion, Limits, Manager, Mount, Name, NodeFacts, NodeId, NodeStatus,
    Operator, Placement, Port, RaftId, Reason, ReschedulePolicy, Resources, RestartCondition, RestartPolicy,
    Revision, RuntimeKind, Settings, Slot, StopPolicy, Strategy, TaskEvent, TaskEventKind, TaskId, TaskState,
    TaskStatus, Term, TraceContext, Volume,
};
use quorate_state::{Actor, Command, Envelope, NewTasks, Position, Report, Request, State, apply};
use quorate_wire::store::fingerprint;

use super::name;

/// The time of the story's first command.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_796_000_000_000);

/// A service that uses everything that a specification offers.
pub(crate) fn rich_service() -> JobSpec {
    let label = Attribute::Label("zone".into());
    JobSpec {
        namespace: name("shop"),
        name: name("web"),
        kind: JobKind::Service { replicas: 3 },
        priority: 60,
        labels: [("team".to_owned(), "checkout".to_owned()), ("tier".to_owned(), "front".to_owned())].into(),
        placement: Placement {
            constraints: vec![
                Constraint { attribute: label, operator: Operator::NotEqual, value: "b".into() },
                Constraint { attribute: Attribute::Os, operator: Operator::Equal, value: "linux".into() },
            ],
            max_per_node: 2,
            strategy: Some(Strategy::Binpack),
        },
        restart: RestartPolicy { condition: RestartCondition::OnFailure, ..RestartPolicy::default() },
        reschedule: ReschedulePolicy { attempts: Some(7), ..ReschedulePolicy::default() },
        ports: [(name("http"), Port { container: 8080, host: Some(80), udp: false })].into(),
        volumes: [
            (name("assets"), Volume::Bind { source: "/srv/assets".into() }),
            (name("cache"), Volume::Tmpfs { size_bytes: 64 << 20 }),
            (name("data"), Volume::Named { source: "shop-data".into() }),
        ]
        .into(),
        containers: [(name("app"), rich_container())].into(),
    }
}

fn rich_container() -> ContainerSpec {
    ContainerSpec {
        runtime: RuntimeKind::Docker,
        image: Some("registry.example/shop/web:1.27.3".into()),
        digest: Some(format!("sha256:{}", "0a".repeat(32))),
        pull: ImagePull::Always,
        command: vec!["/app/server".into()],
        args: vec!["--listen".into(), ":8080".into()],
        env: [("LOG_LEVEL".to_owned(), "info".to_owned())].into(),
        user: Some("10001:10001".into()),
        workdir: Some("/app".into()),
        mounts: vec![
            Mount { volume: name("cache"), target: "/var/cache/app".into(), read_only: false },
            Mount { volume: name("assets"), target: "/srv/assets".into(), read_only: true },
        ],
        reserve: Resources { cpu_millis: 250, memory_bytes: 128 << 20 },
        limit: Limits { cpu_millis: 1000, memory_bytes: 256 << 20, pids: 512 },
        stop: StopPolicy { signal: "SIGINT".into(), grace: Duration::from_millis(1500) },
    }
}

/// A batch with nothing but what it needs.
pub(crate) fn plain_batch(text: &str) -> JobSpec {
    let container = ContainerSpec {
        runtime: RuntimeKind::Process,
        command: vec!["/usr/bin/true".into()],
        ..ContainerSpec::default()
    };
    JobSpec {
        namespace: Name::default_namespace(),
        name: name(text),
        kind: JobKind::Batch { completions: 4, parallelism: 2 },
        priority: 50,
        labels: BTreeMap::new(),
        placement: Placement::default(),
        restart: RestartPolicy::default(),
        reschedule: ReschedulePolicy::default(),
        ports: BTreeMap::new(),
        volumes: BTreeMap::new(),
        containers: [(name("main"), container)].into(),
    }
}

/// What an agent says of a machine with four cores.
pub(crate) fn facts(zone: &str) -> NodeFacts {
    NodeFacts {
        hostname: "rack1-07".into(),
        os: "linux".into(),
        arch: "x86_64".into(),
        agent_version: "0.1.0".into(),
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        runtimes: [(RuntimeKind::Docker, "29.1".to_owned()), (RuntimeKind::Process, "1".to_owned())].into(),
        capacity: Resources { cpu_millis: 4000, memory_bytes: 8 << 30 },
        reserved: Resources { cpu_millis: 500, memory_bytes: 1 << 30 },
        conditions: BTreeMap::new(),
    }
}

/// What an agent saw of a task.
pub(crate) fn seen(state: TaskState, seq: u64) -> TaskStatus {
    let running = state >= TaskState::Running;
    TaskStatus {
        state,
        seq,
        at: START.saturating_add(Duration::from_secs(seq)),
        running_since: running.then(|| START.saturating_add(Duration::from_millis(900))),
        exit_code: (state == TaskState::Failed).then_some(-9),
        restarts: u32::from(state == TaskState::Failed),
        instance: "9f86d081884c".into(),
        reason: if state == TaskState::Failed { "killed by SIGKILL".into() } else { "".into() },
        events: [
            TaskEvent { kind: TaskEventKind::Started, at: START, code: None, detail: None },
            TaskEvent {
                kind: TaskEventKind::Killed,
                at: START,
                code: Some(9),
                detail: Some("by hand".into()),
            },
        ]
        .into(),
    }
}

fn manager(id: u64, text: &str) -> Manager {
    Manager {
        id: RaftId(id),
        name: name(text),
        api_addr: format!("{text}.example:7420"),
        agent_addr: format!("{text}.example:7421"),
        raft_addr: format!("{text}.example:7422"),
        binary_version: "0.1.0".into(),
        can_follow: ClusterVersion::V1,
        changed: Revision(0),
    }
}

fn members() -> Vec<Command> {
    let node = |text: &str, agent: &str, zone| Command::RegisterNode {
        name: name(text),
        agent: agent.to_owned(),
        facts: Arc::new(facts(zone)),
    };
    let settings = Settings { strategy: Strategy::Binpack, task_history: 7, ..Settings::default() };
    vec![
        Command::InitCluster {
            cluster: ClusterId::from_u128(0x0191_a2b3_c4d5_e6f7_0819_2a3b_4c5d_6e7f),
            epoch: Epoch(1),
        },
        Command::UpdateSettings { settings },
        Command::UpsertManager { manager: manager(0x1122_3344_5566_7788, "m1") },
        Command::UpsertManager { manager: manager(0x99aa_bbcc_ddee_ff00, "m2") },
        Command::RemoveManager { id: RaftId(0x99aa_bbcc_ddee_ff00) },
        node("n1", "agent-1", "a"),
        node("n2", "agent-2", "c"),
    ]
}

fn work() -> Vec<Command> {
    let (web, nap, old) = (JobId(0), JobId(1), JobId(2));
    let run = |first, count, attempt| NewTasks {
        first: Slot(first),
        count,
        attempt,
        not_before: START.saturating_add(Duration::from_secs(u64::from(attempt) * 5)),
    };
    let explanation = Arc::new(Explanation {
        total: 2,
        reasons: vec![Reason { filter: Filter::Cpu, nodes: 2, detail: "need 4 CPU, best free 3.25".into() }],
    });
    let report = |task, state, seq| Report { task: TaskId(task), status: seen(state, seq) };
    vec![
        Command::ApplyJob { spec: Arc::new(rich_service()), expect: Some(Revision(0)) },
        Command::ApplyJob { spec: Arc::new(plain_batch("nap")), expect: None },
        Command::ApplyJob { spec: Arc::new(plain_batch("old")), expect: None },
        Command::CreateTasks { job: web, version: JobVersion(1), groups: vec![run(0, 3, 0)] },
        Command::CreateTasks { job: nap, version: JobVersion(1), groups: vec![run(0, 1, 0), run(1, 1, 2)] },
        Command::AssignTasks {
            placements: vec![(TaskId(0), NodeId(0)), (TaskId(1), NodeId(1)), (TaskId(3), NodeId(1))],
        },
        Command::ExplainTasks { groups: vec![(explanation, vec![TaskId(4)])] },
        Command::ReportStatuses { node: NodeId(0), reports: vec![report(0, TaskState::Running, 3)] },
        Command::ReportStatuses { node: NodeId(1), reports: vec![report(3, TaskState::Failed, 4)] },
        Command::RestartTasks { tasks: vec![TaskId(0)] },
        Command::ScaleJob { namespace: name("shop"), name: name("web"), replicas: 2, expect: None },
        Command::SetDesired { desired: TaskState::Shutdown, tasks: vec![TaskId(1), TaskId(2)] },
        Command::SetNodeStatus { node: NodeId(1), status: NodeStatus::Down, reason: "unheard for 5s".into() },
        Command::OrphanTasks { tasks: vec![TaskId(1)] },
        Command::RemoveTasks { tasks: vec![TaskId(1), TaskId(2)] },
        Command::SetJobStatus { job: nap, version: JobVersion(1), status: JobStatus::Failed },
        Command::DeleteJob {
            namespace: Name::default_namespace(),
            name: name("old"),
            purge: true,
            expect: None,
        },
        Command::ForgetJob { job: old },
    ]
}

/// Every kind of command, some from users with a request id, some from controllers with a fence.
pub(crate) fn story() -> Vec<Envelope> {
    let commands = members().into_iter().chain(work());
    commands
        .enumerate()
        .map(|(i, command)| {
            let user = matches!(
                command,
                Command::ApplyJob { .. } | Command::ScaleJob { .. } | Command::DeleteJob { .. }
            );
            let actor = match command {
                _ if user => Actor::User("alice".into()),
                Command::ReportStatuses { .. } => Actor::Agent(name("n1")),
                _ => Actor::Manager(name("m1")),
            };
            Envelope {
                proposed_at: START.saturating_add(Duration::from_millis(i as u64 * 250)),
                fence: (!user).then_some(Term(2)),
                actor,
                request: user.then(|| Request {
                    id: RequestId::new(&format!("request-{i}")).unwrap(),
                    fingerprint: fingerprint(&command),
                }),
                trace: user.then_some(TraceContext { trace_id: [7; 16], span_id: [8; 8], flags: 1 }),
                command,
            }
        })
        .collect()
}

/// The state after the story; every command of it is accepted.
pub(crate) fn ending() -> State {
    let mut state = State::new();
    for (i, envelope) in story().iter().enumerate() {
        let at = Position { term: Term(2), index: Revision(i as u64 + 1) };
        let applied = apply(&mut state, at, envelope);
        assert!(applied.outcome.is_ok(), "{:?}: {:?}", envelope.command.kind(), applied.outcome);
    }
    state
}
