//! Whole agents that are killed, starved of disk, or cut off from their runtime.

#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorate_agent::config::{DockerConfig, LogLimits, ProcessConfig, RuntimeConfig, Storage};
use quorate_agent::fleet::{FakeFleet, FleetConfig};
use quorate_agent::{Agent, AgentConfig};
use quorate_base::{Clock, TaskKind};
use quorate_model::{Resources, TaskState};
use quorate_pki::Security;
use quorate_wire::agent::session_request;
use quorate_wire::common;
use support::engine::{Cluster, IMAGE, docker};
use support::manager::{Manager, assignment, fake_task, process_task};
use support::{group, name, shim, soon, until};
use tokio::net::{UnixListener, UnixStream};

fn config(folder: &Path, manager: &str, runtimes: RuntimeConfig) -> AgentConfig {
    AgentConfig {
        node: name("n1"),
        storage: Storage::Folder(folder.to_owned()),
        labels: BTreeMap::new(),
        managers: vec![manager.to_owned()],
        security: Security::default(),
        reserved: Resources::default(),
        capacity: None,
        runtimes,
        orphan_grace: Duration::from_millis(100),
        pressure: None,
    }
}

fn processes() -> RuntimeConfig {
    let process = Some(ProcessConfig { shim: shim(), logs: LogLimits::default() });
    RuntimeConfig { process, ..RuntimeConfig::default() }
}

/// An agent in a process of its own, killed when this goes.
struct Killable(Child);

impl Killable {
    fn start(folder: &Path, manager: &str) -> Self {
        let mut command = Command::new(shim().program);
        command.arg("agent").arg(folder).arg(manager).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Killable {
    /// With SIGKILL.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `sh -c SCRIPT` in the test image.
fn container(script: &str) -> common::ContainerSpec {
    common::ContainerSpec {
        runtime: common::Runtime::Docker.into(),
        image: IMAGE.to_owned(),
        pull: common::PullPolicy::Never.into(),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..common::ContainerSpec::default()
    }
}

fn running() -> impl Fn(&quorate_wire::agent::TaskStatus) -> bool {
    |status| status.state == u32::from(TaskState::Running.number())
}

#[tokio::test]
async fn a_killed_agent_stops_no_process_and_its_successor_adopts_it() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let agent = Killable::start(folder.path(), &manager.address);
    let mut conn = manager.accept_as_leader(1).await;
    let tasks = || {
        vec![
            process_task(1, "exec sleep 600"),
            process_task(2, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done"),
        ]
    };
    conn.complete(tasks()).await;
    let first = conn.reaches(1, TaskState::Running).await;
    let second = conn.status(2, running()).await;
    let second: i32 = second.instance.split(':').next().unwrap().parse().unwrap();
    let task = folder.path().join("tasks/t2/main");
    until("the trap", || (support::output(&task, "stdout") == "ready\n").then_some(())).await;
    drop(agent);
    // While no agent lives: t2 ends with an exit code of its own.
    kill(Pid::from_raw(second), Signal::SIGTERM).unwrap();
    let agent = Killable::start(folder.path(), &manager.address);
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(tasks()).await;
    let adopted = conn.status(1, running()).await;
    assert_eq!((adopted.instance.as_str(), adopted.restarts), (first.instance.as_str(), 0));
    let restarted = conn.status(2, |status| status.restarts == 1 && status.reason.is_empty()).await;
    assert_eq!(restarted.exit_code, Some(4), "nobody was there, and yet it is known");
    conn.increment(Vec::new(), vec![1, 2]).await;
    until("the removal of both", || {
        let folders = std::fs::read_dir(folder.path().join("tasks")).unwrap().count();
        (folders == 0).then_some(())
    })
    .await;
    drop(agent);
}

#[tokio::test]
async fn a_killed_agent_stops_no_container_and_its_successor_adopts_it() {
    let cluster = Cluster::new();
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let tasks =
        || vec![assignment(1, container("exec sleep 600")), assignment(2, container("exec sleep 600"))];
    let mut instances = Vec::new();
    let agent = Killable::start(folder.path(), &manager.address);
    let mut conn = manager.accept().await;
    conn.welcome_with(|welcome| welcome.cluster_id = cluster.0.clone()).await;
    conn.complete(tasks()).await;
    for task in [1, 2] {
        instances.push(conn.status(task, running()).await.instance);
    }
    drop(agent);
    // While no agent lives: t2 is killed.
    docker(&["kill", "--signal", "KILL", &instances[1]]);
    // Its successor has lost the ledger, too.
    std::fs::write(folder.path().join("ledger"), "torn").unwrap();
    let _agent = Killable::start(folder.path(), &manager.address);
    let mut conn = manager.accept().await;
    conn.welcome_with(|welcome| welcome.cluster_id = cluster.0.clone()).await;
    let mut known = tasks();
    known.iter_mut().for_each(|task| task.observed_state = TaskState::Running.number().into());
    conn.complete(known).await;
    let mut seen = BTreeMap::new();
    while seen.len() < 2 {
        let Some(session_request::Body::Status(batch)) = conn.next().await else { continue };
        let settled = batch.statuses.into_iter().filter(|status| status.reason.is_empty());
        seen.extend(
            settled.map(|status| (status.task_id, (status.instance, status.restarts, status.exit_code))),
        );
    }
    assert_eq!(seen[&1], (instances[0].clone(), 0, None));
    assert_eq!(seen[&2], (instances[1].clone(), 1, Some(137)));
}

#[tokio::test]
async fn processes_are_restarted_by_an_agent_that_finds_no_manager() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let agent = Killable::start(folder.path(), &manager.address);
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![process_task(1, "exec sleep 600")]).await;
    let before = conn.reaches(1, TaskState::Running).await;
    drop(agent);
    manager.kill().await;
    let pid: i32 = before.instance.split(':').next().unwrap().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let config = config(folder.path(), "127.0.0.1:1", processes());
    let agent = Agent::start(config, Clock::system(), group()).await.unwrap();
    let status = until("the restart", || {
        let (_, status) = agent.status().tasks.into_iter().next()?;
        let runs = status.state == TaskState::Running && status.reason.is_empty();
        (runs && status.restarts == 1).then_some(status)
    })
    .await;
    assert_eq!(status.exit_code, Some(137));
    assert_ne!(*status.instance, *before.instance);
    let pid: i32 = status.instance.split(':').next().unwrap().parse().unwrap();
    agent.shutdown().await;
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_disk_without_room_hides_no_exit_code_and_is_told() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &manager.address, processes());
    let agent = Agent::start(config, Clock::system(), group()).await.unwrap();
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![process_task(1, "trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done")])
        .await;
    let status = conn.reaches(1, TaskState::Running).await;
    let task = folder.path().join("tasks/t1/main");
    until("the trap", || (support::output(&task, "stdout") == "ready\n").then_some(())).await;
    // Where a temporary file would go there is no room for one.
    std::fs::create_dir(task.join("state.tmp")).unwrap();
    until("a moment between two writes", || std::fs::create_dir(folder.path().join("ledger.tmp")).ok()).await;
    let pid: i32 = status.instance.split(':').next().unwrap().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let ended = conn.status(1, |status| status.exit_code == Some(6)).await;
    assert_eq!(ended.restarts, 1);
    let trouble = until("the ledger's trouble", || agent.status().ledger_trouble).await;
    assert_eq!(trouble, "Is a directory");
    // The shim's new state fits over the old one as well.
    std::fs::remove_dir(task.join("state.tmp")).unwrap();
    conn.increment(Vec::new(), vec![1]).await;
    until("its removal", || agent.status().tasks.is_empty().then_some(())).await;
    std::fs::remove_dir(folder.path().join("ledger.tmp")).unwrap();
    until("the ledger", || agent.status().ledger_trouble.is_none().then_some(())).await;
}

/// Passes connections on to the engine while the switch is on.
fn proxy(socket: &Path) -> Arc<AtomicBool> {
    let switch = Arc::new(AtomicBool::new(true));
    let (listener, on) = (UnixListener::bind(socket).unwrap(), Arc::clone(&switch));
    let tasks = group();
    let connections = tasks.clone();
    tasks.spawn::<std::io::Error>(TaskKind::critical("proxy"), async move {
        loop {
            let (mut agent, _) = listener.accept().await?;
            let on = Arc::clone(&on);
            connections.spawn(TaskKind::best_effort("connection"), async move {
                if !on.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let mut engine = UnixStream::connect("/var/run/docker.sock").await?;
                let off = until("the switch", || (!on.load(Ordering::SeqCst)).then_some(()));
                tokio::select! {
                    copied = tokio::io::copy_bidirectional(&mut agent, &mut engine) => copied.map(drop),
                    () = off => Ok(()),
                }
            });
        }
    });
    switch
}

#[tokio::test]
async fn a_silent_engine_fails_no_task_and_its_return_shows_what_happened() {
    let cluster = Cluster::new();
    let (manager, folder) = (Manager::start().await, tempfile::tempdir().unwrap());
    let socket = folder.path().join("docker.sock");
    let switch = proxy(&socket);
    let runtimes = RuntimeConfig {
        docker: Some(DockerConfig { socket: Some(socket), ..DockerConfig::default() }),
        ..RuntimeConfig::default()
    };
    let config = config(&folder.path().join("data"), &manager.address, runtimes);
    let agent = Agent::start(config, Clock::system(), group()).await.unwrap();
    let mut conn = manager.accept().await;
    assert!(conn.hello.facts.as_ref().unwrap().runtimes.contains_key("docker"));
    conn.welcome_with(|welcome| welcome.cluster_id = cluster.0.clone()).await;
    conn.complete(vec![assignment(1, container("exec sleep 600"))]).await;
    let before = conn.reaches(1, TaskState::Running).await;
    switch.store(false, Ordering::SeqCst);
    // A task that comes meanwhile waits, and says for what.
    conn.increment(vec![assignment(2, container("exec sleep 600"))], Vec::new()).await;
    let waiting = conn.status(2, |status| !status.reason.is_empty()).await;
    assert!(waiting.reason.starts_with("the Docker engine does not answer"), "{}", waiting.reason);
    assert!(waiting.state < u32::from(TaskState::Starting.number()));
    assert_eq!(agent.status().tasks[0].1.state, TaskState::Running, "silence is no end");
    docker(&["kill", "--signal", "KILL", &before.instance]);
    switch.store(true, Ordering::SeqCst);
    let restarted = conn.status(1, |status| status.restarts == 1 && status.reason.is_empty()).await;
    assert_eq!((restarted.exit_code, restarted.instance), (Some(137), before.instance));
    conn.reaches(2, TaskState::Running).await;
    agent.shutdown().await;
}

#[tokio::test]
async fn a_fleet_keeps_a_session_for_each_of_its_agents() {
    let manager = Manager::start().await;
    let config = FleetConfig {
        count: 50,
        prefix: "load-".to_owned(),
        managers: vec![manager.address.clone()],
        security: Security::default(),
        capacity: Resources { cpu_millis: 8_000, memory_bytes: 16 << 30 },
        labels: BTreeMap::new(),
    };
    let fleet = FakeFleet::start(&config, &Clock::system(), &group()).await.unwrap();
    let mut nodes = BTreeMap::new();
    for task in 1..=50 {
        let mut conn = manager.accept_as_leader(1).await;
        conn.complete(vec![fake_task(task, &[])]).await;
        nodes.insert(conn.hello.node.clone(), conn);
    }
    assert_eq!((nodes.len(), nodes.contains_key("load-50")), (50, true));
    soon("readiness", fleet.wait_ready()).await;
    until("all tasks", || (fleet.running() == 50).then_some(())).await;
    assert_eq!(fleet.machines().map(|machine| machine.starts().len()).sum::<usize>(), 50);
    fleet.shutdown().await;
}

#[tokio::test]
async fn a_fleet_with_impossible_names_is_refused() {
    let config = FleetConfig {
        count: 1,
        prefix: "Load ".to_owned(),
        managers: vec!["127.0.0.1:1".to_owned()],
        security: Security::default(),
        capacity: Resources { cpu_millis: 1, memory_bytes: 1 },
        labels: BTreeMap::new(),
    };
    let error = FakeFleet::start(&config, &Clock::system(), &group()).await.unwrap_err().to_string();
    assert!(error.starts_with("fleet prefix: "), "{error}");
}
