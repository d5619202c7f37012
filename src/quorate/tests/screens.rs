//! What each command prints, as `tests/screens/*.trycmd` tells it. `TRYCMD=overwrite` writes them anew: read the
//! difference before it is committed.

#[cfg(test)]
mod support;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use quorate_base::sync::lock;
    use quorate_base::{Clock, Timestamp};
    use quorate_wire::api::job_spec::Kind;
    use quorate_wire::api::*;
    use quorate_wire::common::{ContainerSpec, Resources, ResponseMeta, duration, timestamp};
    use quorate_wire::status::Reason;

    use crate::support::{Fake, State, group};

    /// Long enough ago that the age does not change while the test runs.
    fn ago(minutes: u64) -> Option<pbjson_types::Timestamp> {
        let then = Clock::system().now().as_millis().saturating_sub(minutes * 60_000 + 5_000);
        Some(timestamp(Timestamp::from_millis(then)))
    }

    /// The same moment in every run, for documents.
    fn fixed() -> Option<pbjson_types::Timestamp> {
        Some(timestamp(Timestamp::from_millis(1_764_500_000_000)))
    }

    fn jobs() -> Vec<Job> {
        let job = |namespace: &str, name: &str, image: &str, counts: TaskCounts| {
            let container = ContainerSpec { image: image.into(), ..ContainerSpec::default() };
            Job {
                namespace: namespace.into(),
                name: name.into(),
                version: 8,
                status: JobStatus::Active.into(),
                spec: Some(JobSpec {
                    namespace: namespace.into(),
                    name: name.into(),
                    kind: Some(Kind::Service(ServiceSpec { replicas: counts.desired })),
                    priority: 50,
                    containers: [("app".to_owned(), container)].into(),
                    ..JobSpec::default()
                }),
                converged: counts.running == counts.desired,
                counts: Some(counts),
                etag: "W/\"42\"".into(),
                revision: 48,
                create_time: ago(120),
                update_time: ago(3),
                edited_by: "alice".into(),
                ..Job::default()
            }
        };
        let up = |running| TaskCounts { desired: running, running, ..TaskCounts::default() };
        let partly = TaskCounts { desired: 6, running: 4, pending: 1, starting: 1, ..TaskCounts::default() };
        let thumbs = Job {
            spec: Some(JobSpec {
                kind: Some(Kind::Batch(BatchSpec { completions: 5, parallelism: 2 })),
                ..JobSpec::default()
            }),
            status: JobStatus::Failed.into(),
            ..job("shop", "thumbs", "", TaskCounts { succeeded: 3, failed: 4, ..TaskCounts::default() })
        };
        vec![
            job("default", "api", "registry.example.com/teams/payments/api-server:2026.11.30-rc4", up(3)),
            job("default", "web", "nginx:1.27.3", partly),
            thumbs,
        ]
    }

    fn tasks() -> Vec<Task> {
        let task = |id: u32, slot, state: TaskState| Task {
            id: format!("t{id}"),
            namespace: "default".into(),
            job: "web".into(),
            job_version: 8,
            slot,
            node: "n01".into(),
            desired_state: TaskState::Running.into(),
            state: state.into(),
            create_time: ago(2),
            running_since: ago(1).filter(|_| state == TaskState::Running),
            revision: 48,
            ..Task::default()
        };
        let failure = PlacementFailure {
            nodes_evaluated: 9,
            summary: "9 of 9 nodes: 3 need 2GiB, best free 1GiB; 6 fail node.labels.zone == b".into(),
            ..PlacementFailure::default()
        };
        let stopped = TaskState::Shutdown.into();
        vec![
            Task {
                desired_state: stopped,
                exit_code: Some(0),
                job_version: 7,
                ..task(3, 0, TaskState::Complete)
            },
            Task { exit_code: Some(137), reason: "out of memory".into(), ..task(5, 1, TaskState::Failed) },
            task(11, 0, TaskState::Running),
            Task { restarts: 2, node: "n02".into(), ..task(12, 1, TaskState::Running) },
            Task { node: "n03".into(), node_down: true, ..task(13, 2, TaskState::Running) },
            Task { placement_failure: Some(failure), node: String::new(), ..task(14, 3, TaskState::Pending) },
        ]
    }

    fn nodes() -> Vec<Node> {
        let resources = |cpu_millis, gib: u64| Some(Resources { cpu_millis, memory_bytes: gib << 30 });
        let node = |name: &str, zone: &str| Node {
            name: name.into(),
            status: NodeStatus::Ready.into(),
            eligible: true,
            hostname: format!("{name}.example.com"),
            arch: "x86_64".into(),
            labels: [("zone".to_owned(), zone.to_owned())].into(),
            runtimes: [("docker".to_owned(), "28.2".to_owned())].into(),
            allocatable: resources(8_000, 32),
            reserved: resources(6_200, 21),
            tasks: 14,
            agent_version: "0.1.0".into(),
            last_heard: Some(duration(Duration::from_millis(1_200))),
            revision: 40,
            ..Node::default()
        };
        let down = Node {
            status: NodeStatus::Down.into(),
            reason: "its agent was not heard for longer than its lease".into(),
            status_time: ago(2),
            last_heard: None,
            tasks: 0,
            reserved: resources(0, 0),
            ..node("n10", "c")
        };
        let full = NodeCondition { kind: "disk-pressure".into(), message: "the disk is 96% full".into() };
        vec![down, node("n01", "a"), Node { eligible: false, conditions: vec![full], ..node("n02", "b") }]
    }

    fn plan() -> PlanJobResponse {
        let changed = DiffKind::Changed.into();
        let node = |name: &str, tasks, placed| NodePlan { node: name.into(), tasks, placed };
        PlanJobResponse {
            etag: "W/\"48190\"".into(),
            diff: vec![
                FieldDiff {
                    kind: changed,
                    path: "service.replicas".into(),
                    old: "6".into(),
                    new: "8".into(),
                    replaces_tasks: false,
                },
                FieldDiff {
                    kind: changed,
                    path: "containers.app.image".into(),
                    old: "\"nginx:1.27.2\"".into(),
                    new: "\"nginx:1.27.3\"".into(),
                    replaces_tasks: true,
                },
            ],
            nodes: vec![node("n01", 4, 4), node("n02", 4, 4)],
            creates: 2,
            replaces: 6,
            version: 7,
            new_version: 8,
            ..PlanJobResponse::default()
        }
    }

    fn cluster() -> GetClusterStatusResponse {
        let manager = |name: &str, address: &str| Manager {
            name: name.into(),
            api_address: address.into(),
            binary_version: "0.1.0".into(),
            role: ManagerRole::Voter.into(),
            ..Manager::default()
        };
        GetClusterStatusResponse {
            meta: Some(ResponseMeta {
                cluster_id: "01KBBX2Q4ZJ7M0V3Y8N5T6R9WC".into(),
                manager: "m1".into(),
                leader: "m1".into(),
                term: 7,
                applied_revision: 48_213,
                ..ResponseMeta::default()
            }),
            raft: Some(RaftStatus {
                state: ManagerState::Leader.into(),
                term: 7,
                last_flush: Some(duration(Duration::from_micros(2_100))),
                store_bytes: 84 << 20,
                ..RaftStatus::default()
            }),
            managers: vec![manager("m1", "")],
            quorum: 1,
            nodes_ready: 2,
            nodes_total: 3,
            tasks_running: 6,
            tasks_pending: 1,
            jobs: 3,
            ..GetClusterStatusResponse::default()
        }
    }

    fn fill(state: &mut State) {
        (state.jobs, state.tasks, state.nodes) = (jobs(), tasks(), nodes());
        (state.plan, state.status) = (Some(plan()), cluster());
    }

    fn screens(fake: &Fake, pattern: &str) {
        trycmd::TestCases::new()
            .register_bin("quorate", Path::new(env!("CARGO_BIN_EXE_quorate")))
            .env("QUORATE_MANAGERS", fake.address.clone())
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .case(pattern)
            .run();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_print_what_the_screens_show() {
        let group = group();
        let fake = Fake::start(&group).await;
        fill(&mut lock(&fake.state));
        let job = jobs().swap_remove(1);
        fake.tells([Ok((48, Job { create_time: fixed(), update_time: fixed(), ..job }))]);
        tokio::task::spawn_blocking(move || screens(&fake, "tests/screens/*.trycmd")).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn refusals_print_what_the_screens_show() {
        let group = group();
        let fake = Fake::start(&group).await;
        fake.tells([Err(Reason::JobNotFound)]);
        let moved = quorate_wire::status::ApiError::new(
            Reason::EtagMismatch,
            "job default/web is not what you planned against: the stored version is 8 (revision 48213, changed 12s ago by alice)",
        );
        lock(&fake.state).refusal =
            Some(moved.with("job", "default/web").with("manager", "m2").with("leader", "m1").with("term", 7));
        tokio::task::spawn_blocking(move || screens(&fake, "tests/screens/refusals/*.trycmd")).await.unwrap();
    }
}
