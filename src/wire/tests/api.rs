//! The API's messages: what clients send becomes a specification or a list of faults, and what they read is true.

#[cfg(test)]
mod common;

use common::{
    name,
    story::{plain_batch, rich_service},
    values,
    world::World,
};
use proptest::prelude::*;
use prost::Message;
use quorate_model::{
    JobId, JobKind, JobSpec, JobStatus, NodeId, Placement, RestartCondition, RestartPolicy, Revision,
    StopPolicy, TaskId, TaskState,
};
use quorate_state::Command;
use quorate_wire::{
    PUBLIC_DESCRIPTORS, Reason,
    api::{self, Page, accept_spec, etag, job_spec::Kind, parse_etag, parse_session_token, session_token},
    common::{self as shared, Consistency, ReadOptions},
};

/// The least that a client may send.
fn least() -> api::JobSpec {
    let app = shared::ContainerSpec { image: "web:1".into(), ..Default::default() };
    api::JobSpec {
        name: "web".into(),
        kind: Some(Kind::Service(api::ServiceSpec { replicas: 1 })),
        containers: [("app".to_owned(), app)].into(),
        ..Default::default()
    }
}

proptest! {
    #[test]
    fn specifications_read_back_as_they_were_shown(spec in values::job_spec()) {
        prop_assert_eq!(JobSpec::try_from(api::JobSpec::from(&spec)), Ok(spec));
    }

    #[test]
    fn json_reads_back_as_it_was_written(spec in values::job_spec()) {
        let message = api::JobSpec::from(&spec);
        let text = serde_json::to_string(&message)?;
        prop_assert_eq!(serde_json::from_str::<api::JobSpec>(&text)?, message);
    }

    #[test]
    fn page_tokens_open_for_their_own_list_alone(key in "[a-z0-9/-]{0,20}", other in "[a-z]{1,5}") {
        let page = Page::of(&["jobs", "shop"], 0, "").unwrap();
        let token = page.token("m1", Revision(7), &key);
        let next = Page::of(&["jobs", "shop"], 5, &token).unwrap();
        let after = next.after.unwrap();
        prop_assert_eq!((after.manager.as_str(), after.revision, next.size), ("m1", Revision(7), 5));
        prop_assert_eq!(after.key, key);
        for filter in [&["jobs", &other][..], &["jobsshop"], &["tasks", "shop"], &["jobs", "shop", ""]] {
            prop_assert_eq!(Page::of(filter, 5, &token).unwrap_err().reason, Reason::PageTokenInvalid);
        }
    }

    #[test]
    fn strange_page_tokens_are_refused_without_a_panic(token in "\\PC{1,40}") {
        prop_assert_eq!(Page::of(&["jobs"], 0, &token).unwrap_err().reason, Reason::PageTokenInvalid);
    }
}

#[test]
fn a_session_token_is_good_for_its_own_cluster_alone() {
    let token = session_token("c1", Revision(42));
    assert_eq!(parse_session_token("c1", &token), Ok(Revision(42)));
    for (cluster, token) in [("c2", token.clone()), ("c1", format!("{token}1")), ("c1", "rubbish".to_owned())]
    {
        let error = parse_session_token(cluster, &token).unwrap_err();
        assert_eq!(error.reason, Reason::ArgumentInvalid, "{token}");
        assert_eq!(error.violations.0[0].path, "read.session_token");
    }
}

#[test]
fn what_is_not_given_gets_its_default() {
    let spec = accept_spec(Some(least())).unwrap();
    assert_eq!((spec.namespace.as_str(), spec.priority), ("default", 50));
    assert_eq!(spec.restart, RestartPolicy::default());
    assert_eq!(spec.placement.strategy, None);
    let app = &spec.containers[&name("app")];
    assert_eq!((app.user.as_ref(), app.workdir.as_ref()), (None, None));
    assert_eq!(app.stop, StopPolicy::default());

    let mut sent = least();
    sent.restart = Some(shared::RestartPolicy { attempts: Some(0), ..Default::default() });
    assert_eq!(accept_spec(Some(sent)).unwrap().restart.attempts, 0, "zero is not unset");
}

#[test]
fn all_faults_of_a_specification_are_reported_at_once_where_they_are() {
    let mut sent = least();
    sent.namespace = "Shop".into();
    sent.name = String::new();
    sent.kind = None;
    sent.priority = 300;
    sent.placement = Some(api::Placement {
        constraints: vec!["node.os == linux".into(), "zone".into()],
        strategy: 9,
        ..Default::default()
    });
    let delay = Some(pbjson_types::Duration { seconds: -1, nanos: 0 });
    sent.restart = Some(shared::RestartPolicy { delay, ..Default::default() });
    let max_delay = Some(pbjson_types::Duration { seconds: 1, nanos: 5 });
    sent.reschedule = Some(shared::ReschedulePolicy { max_delay, ..Default::default() });
    sent.ports = [("http".to_owned(), shared::Port { container: 70_000, host: 80, udp: false })].into();
    sent.volumes = [("data".to_owned(), shared::Volume { source: None })].into();
    let app = sent.containers.get_mut("app").unwrap();
    app.runtime = 77;
    app.mounts = vec![shared::Mount::default()];
    sent.containers.insert("Bad".into(), shared::ContainerSpec::default());
    let error = accept_spec(Some(sent)).unwrap_err();
    assert_eq!(error.reason, Reason::JobInvalid);
    let paths: Vec<_> = error.violations.0.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "namespace",
            "name",
            "type",
            "priority",
            "placement.constraints[1]",
            "placement.strategy",
            "restart.delay",
            "reschedule.maxDelay",
            "ports.http.container",
            "volumes.data.type",
            "containers.Bad",
            "containers.app.runtime",
            "containers.app.mounts[0].volume",
        ]
    );
}

#[test]
fn rules_of_the_model_and_the_bound_on_size_hold_for_clients() {
    let mut sent = least();
    sent.containers.get_mut("app").unwrap().image.clear();
    let error = accept_spec(Some(sent)).unwrap_err();
    assert_eq!(error.violations.0[0].path, "containers.app.image");

    let mut sent = least();
    sent.labels.insert("big".into(), "x".repeat(1 << 20));
    let error = accept_spec(Some(sent)).unwrap_err();
    assert_eq!((error.reason, error.reason.exit_code()), (Reason::SpecTooLarge, 5));
    assert!(error.message.contains("1MiB"), "{error}");
    assert_eq!(accept_spec(None).unwrap_err().reason, Reason::JobInvalid);
}

#[test]
fn json_is_the_canonical_form() {
    let value = serde_json::to_value(api::JobSpec::from(&rich_service())).unwrap();
    assert_eq!(value["placement"]["maxPerNode"], 2);
    assert_eq!(value["placement"]["strategy"], "PLACEMENT_STRATEGY_BINPACK");
    assert_eq!(value["containers"]["app"]["reserve"]["memoryBytes"], (128 << 20).to_string());
    assert_eq!(value["containers"]["app"]["stop"]["grace"], "1.500s");
    assert_eq!(value["reschedule"]["attempts"], 7);
}

#[test]
fn etags_are_opaque_and_strict() {
    assert_eq!(etag(Revision(42)), "W/\"42\"");
    for (text, expect) in [
        ("", None),
        ("0", Some(Revision(0))),
        ("W/\"42\"", Some(Revision(42))),
        ("W/\"0\"", Some(Revision(0))),
    ] {
        assert_eq!(parse_etag(text).unwrap(), expect, "{text:?}");
    }
    for text in ["42", "W/42", "\"42\"", "W/\"x\"", "W/\"+1\"", "W/\"042\"", "W/\"42", "*"] {
        let error = parse_etag(text).unwrap_err();
        assert_eq!(error.reason, Reason::ArgumentInvalid, "{text:?}");
        assert!(error.message.contains("etag"), "{error}");
    }
}

#[test]
fn pages_have_a_default_size_and_a_bound() {
    let size = |asked| Page::of(&["jobs"], asked, "").unwrap().size;
    assert_eq!([size(0), size(7), size(1000), size(1001), size(u32::MAX)], [100, 7, 1000, 1000, 1000]);
}

#[test]
fn reads_are_linearizable_unless_stale_is_asked_for() {
    let read =
        |consistency: Consistency| ReadOptions { consistency: consistency.into(), ..ReadOptions::default() };
    assert!(ReadOptions::stale(Some(&read(Consistency::Stale))));
    assert!(!ReadOptions::stale(Some(&read(Consistency::Linearizable))));
    assert!(!ReadOptions::stale(Some(&read(Consistency::Unspecified))));
    assert!(!ReadOptions::stale(None));
}

fn two_replicas() -> JobSpec {
    let mut spec = rich_service();
    spec.kind = JobKind::Service { replicas: 2 };
    spec.placement = Placement::default();
    spec.ports.clear();
    spec
}

#[test]
fn a_service_has_converged_when_every_slot_runs_the_newest_version_and_nothing_else_lives() {
    let mut world = World::with_nodes(2);
    let id = world.apply_job(two_replicas());
    let counts = |world: &World| {
        let c = world.job(id).counts.unwrap();
        [c.desired, c.pending, c.starting, c.running, c.outdated, c.stopping]
    };
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 0, 0, 0, 0], false));
    world.create(id, 1, 0, 2);
    assert_eq!((counts(&world), world.converged(id)), ([2, 2, 0, 0, 0, 0], false));
    world.assign(&[(0, 0), (1, 1)]);
    world.report(0, 0, TaskState::Running);
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 1, 1, 0, 0], false));
    world.report(1, 1, TaskState::Running);
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 0, 2, 0, 0], true));

    let mut newer = two_replicas();
    newer.containers.get_mut("app").unwrap().image = Some("web:2".into());
    world.apply_job(newer);
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 0, 0, 2, 0], false));
    world.desire(TaskState::Shutdown, &[0, 1]);
    world.create(id, 2, 0, 2);
    assert_eq!((counts(&world), world.converged(id)), ([2, 2, 0, 0, 0, 2], false));
    world.assign(&[(2, 0), (3, 0)]);
    world.report(0, 2, TaskState::Running);
    world.report(0, 3, TaskState::Running);
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 0, 2, 0, 2], false));
    world.report(0, 0, TaskState::Shutdown);
    assert!(!world.converged(id), "the old task of the other node still lives");
    world.node_down(1);
    assert_eq!((counts(&world), world.converged(id)), ([2, 0, 0, 2, 0, 1], true));
}

#[test]
fn a_service_whose_node_is_down_or_that_has_tasks_too_many_has_not_converged() {
    let mut world = World::with_nodes(2);
    let id = world.apply_job(two_replicas());
    world.create(id, 1, 0, 2);
    world.assign(&[(0, 0), (1, 1)]);
    world.report(0, 0, TaskState::Running);
    world.report(1, 1, TaskState::Running);
    let full = world.clone();
    world.node_down(1);
    assert!(!world.converged(id));

    let mut world = full;
    let (namespace, text) = (name("shop"), name("web"));
    world.run(Command::ScaleJob { namespace, name: text, replicas: 1, expect: None });
    assert!(!world.converged(id), "one too many");
    world.desire(TaskState::Shutdown, &[1]);
    world.report(1, 1, TaskState::Shutdown);
    assert!(world.converged(id));
}

#[test]
fn a_service_may_have_converged_on_slots_with_gaps() {
    let mut world = World::with_nodes(2);
    let id = world.apply_job(two_replicas());
    world.create(id, 1, 0, 1);
    world.create(id, 1, 5, 1);
    world.assign(&[(0, 0), (1, 1)]);
    world.report(0, 0, TaskState::Running);
    world.report(1, 1, TaskState::Running);
    assert!(world.converged(id), "scaling down closes any slot");
}

#[test]
fn a_task_that_waits_for_a_restart_in_place_is_starting() {
    let mut world = World::with_nodes(1);
    let mut spec = two_replicas();
    spec.kind = JobKind::Service { replicas: 1 };
    let id = world.apply_job(spec);
    world.create(id, 1, 0, 1);
    world.assign(&[(0, 0)]);
    let figures = |world: &World| {
        let counts = world.job(id).counts.unwrap();
        (counts.running, counts.starting, world.converged(id))
    };
    world.report(0, 0, TaskState::Running);
    assert_eq!(figures(&world), (1, 0, true));
    world.waits_for_restart(0, 0);
    assert_eq!(figures(&world), (0, 1, false));
    let task = api::task(&world.state, world.state.task(TaskId(0)).unwrap());
    assert_eq!((task.state(), task.running_since), (api::TaskState::Running, None));
    world.report(0, 0, TaskState::Running);
    assert_eq!(figures(&world), (1, 0, true));
}

#[test]
fn a_replica_whose_replacements_are_used_up_is_given_up_until_the_job_is_changed() {
    let mut world = World::with_nodes(1);
    let mut spec = two_replicas();
    spec.reschedule.attempts = Some(0);
    let id = world.apply_job(spec.clone());
    world.create(id, 1, 0, 2);
    world.assign(&[(0, 0), (1, 0)]);
    world.report(0, 0, TaskState::Running);
    world.report(0, 1, TaskState::Running);
    let given_up = |world: &World| (world.job(id).counts.unwrap().given_up, world.converged(id));
    assert_eq!(given_up(&world), (0, true));
    world.report(0, 1, TaskState::Failed);
    assert_eq!(given_up(&world), (1, false));
    let failed = world.clone();
    spec.containers.get_mut("app").unwrap().image = Some("web:2".into());
    world.apply_job(spec);
    assert_eq!(given_up(&world), (0, false), "a new version is tried");

    let mut world = failed.clone();
    world.desire(TaskState::Remove, &[1]);
    assert_eq!(given_up(&world).0, 0, "a closed slot is no replica");
    let mut world = failed;
    let (namespace, text) = (name("shop"), name("web"));
    world.run(Command::DeleteJob { namespace, name: text, purge: false, expect: None });
    assert_eq!(given_up(&world).0, 0, "a stopped job tries nothing");
}

#[test]
fn a_stopped_job_has_converged_when_nothing_lives_and_a_batch_when_it_ended() {
    let mut world = World::with_nodes(1);
    let id = world.apply_job(plain_batch("nap"));
    assert_eq!(world.job(id).counts.unwrap().desired, 2);
    world.create(id, 1, 0, 2);
    world.assign(&[(0, 0), (1, 0)]);
    world.report(0, 0, TaskState::Complete);
    let counts = world.job(id).counts.unwrap();
    assert_eq!((counts.succeeded, counts.desired, world.converged(id)), (1, 2, false));
    let before_end = world.clone();
    world.report(0, 1, TaskState::Complete);
    world.run(Command::SetJobStatus {
        job: id,
        version: quorate_model::JobVersion(1),
        status: JobStatus::Complete,
    });
    assert!(world.converged(id));
    assert_eq!(world.job(id).status(), api::JobStatus::Complete);

    let mut world = before_end;
    let (namespace, text) = (name("default"), name("nap"));
    world.run(Command::DeleteJob { namespace, name: text, purge: false, expect: None });
    assert!(!world.converged(id));
    world.desire(TaskState::Shutdown, &[1]);
    world.report(0, 1, TaskState::Shutdown);
    assert!(world.converged(id));
}

#[test]
fn views_name_what_the_state_numbers() {
    let state = common::story::ending();
    let task = api::task(&state, state.task(TaskId(3)).unwrap());
    assert_eq!(
        (task.id.as_str(), task.namespace.as_str(), task.job.as_str(), task.node.as_str()),
        ("t3", "default", "nap", "n2")
    );
    assert_eq!((task.state(), task.exit_code, task.restarts), (api::TaskState::Failed, Some(-9), 1));
    assert_eq!(task.reason, "killed by SIGKILL");
    let waiting = api::task(&state, state.task(TaskId(4)).unwrap());
    let failure = waiting.placement_failure.unwrap();
    assert_eq!((failure.nodes_evaluated, failure.reasons[0].filter.as_str()), (2, "cpu"));
    assert_eq!(failure.summary, "2 of 2 nodes: need 4 CPU, best free 3.25");
    assert_eq!(waiting.not_before.unwrap().seconds, 1_796_000_010);

    let job = api::job(&state, state.job(JobId(0)).unwrap());
    assert_eq!((job.name.as_str(), job.version, job.etag.as_str()), ("web", 2, "W/\"18\""));
    assert_eq!(JobSpec::try_from(job.spec.unwrap()).unwrap().kind, JobKind::Service { replicas: 2 });

    let node = api::node(&state, state.node(NodeId(0)).unwrap());
    assert_eq!((node.name.as_str(), node.tasks, node.status()), ("n1", 1, api::NodeStatus::Ready));
    assert_eq!(node.allocatable.unwrap().cpu_millis, 3500);
    assert_eq!(node.reserved.unwrap().cpu_millis, 250);
    assert_eq!(node.runtimes["docker"], "29.1");
    let down = api::node(&state, state.node(NodeId(1)).unwrap());
    assert_eq!((down.status(), down.reason.as_str()), (api::NodeStatus::Down, "unheard for 5s"));

    let record = state.managers().next().unwrap();
    let manager = api::manager(record, api::ManagerRole::Voter, true, Some(7));
    assert_eq!((manager.name.as_str(), manager.raft_id.as_str()), ("m1", "1122334455667788"));
}

#[test]
fn task_states_have_the_numbers_of_the_model() {
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::New) {
        assert_eq!(i32::from(state.number()), i32::from(api::task_state(state)), "{state}");
    }
    assert_eq!(api::task_state(TaskState::New), api::TaskState::New);
}

#[test]
fn the_reflection_set_holds_the_public_packages_alone() {
    let set = prost_types::FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).unwrap();
    let mut packages: Vec<&str> = set.file.iter().map(|file| file.package()).collect();
    packages.sort_unstable();
    packages.dedup();
    assert_eq!(packages, ["google.protobuf", "quorate.api.v1", "quorate.common.v1"]);
    let services: usize = set.file.iter().map(|file| file.service.len()).sum();
    assert!(services >= 4, "{services}");
}

#[test]
fn a_batch_that_says_nothing_of_restarts_is_done_when_it_ends_well() {
    let of = |kind| {
        let sent =
            api::JobSpec { kind: Some(kind), restart: None, ..api::JobSpec::from(&plain_batch("nap")) };
        JobSpec::try_from(sent).unwrap().restart.condition
    };
    let batch = api::job_spec::Kind::Batch(api::BatchSpec { completions: 1, parallelism: 1 });
    assert_eq!(of(batch), RestartCondition::OnFailure);
    let service = api::job_spec::Kind::Service(api::ServiceSpec { replicas: 1 });
    assert_eq!(of(service), RestartCondition::Any);
}
