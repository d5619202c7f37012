//! The agent with a manager that the test plays, on the fake runtime.

#![cfg(test)]

mod support;
#[path = "session/wants.rs"]
mod wants;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use quorate_agent::config::{RuntimeConfig, Storage};
use quorate_agent::runtime::fake::FakeStore;
use quorate_agent::{Agent, AgentConfig, SessionState};
use quorate_base::{Clock, Rng, TaskGroup};
use quorate_model::{Resources, TaskState};
use quorate_pki::Security;
use quorate_wire::agent::{Fence, session_request};
use support::manager::{Manager, desired, fake_task};
use support::{CLUSTER, group, name, soon, unit, until};
use tokio::net::TcpListener;

fn config(storage: Storage, store: &FakeStore, managers: &[&str]) -> AgentConfig {
    AgentConfig {
        node: name("n1"),
        storage,
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        managers: managers.iter().map(|manager| (*manager).to_owned()).collect(),
        security: Security::default(),
        reserved: Resources::default(),
        capacity: Some(Resources { cpu_millis: 4_000, memory_bytes: 8 << 30 }),
        runtimes: RuntimeConfig { fake: Some(store.clone()), ..RuntimeConfig::default() },
        orphan_grace: Duration::from_millis(100),
        pressure: None,
    }
}

async fn start(config: AgentConfig) -> (Agent, TaskGroup) {
    let tasks = group();
    let agent = Agent::start_seeded(config, Clock::system(), tasks.clone(), Rng::seeded(1)).await.unwrap();
    (agent, tasks)
}

async fn in_memory(manager: &Manager) -> (Agent, FakeStore) {
    let store = FakeStore::new();
    let (agent, _) = start(config(Storage::Memory, &store, &[&manager.address])).await;
    (agent, store)
}

fn in_folder(folder: &Path) -> Storage {
    Storage::Folder(folder.to_owned())
}

/// Waits until the session's loss has a reason that holds `text`.
async fn lost(agent: &Agent, text: &str) -> String {
    until(text, || match agent.status().session {
        SessionState::Lost { reason } if reason.contains(text) => Some(reason),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn an_agent_introduces_itself_and_is_ready_after_the_complete_set() {
    let manager = Manager::start().await;
    let (agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept().await;
    let facts = conn.hello.facts.clone().unwrap();
    assert_eq!((conn.hello.node.as_str(), conn.hello.cluster_id.as_str()), ("n1", ""));
    assert_eq!(facts.runtimes, [("fake".to_owned(), "1".to_owned())].into());
    assert_eq!(facts.labels, [("zone".to_owned(), "a".to_owned())].into());
    assert_eq!(facts.capacity.unwrap().cpu_millis, 4_000);
    assert!(!facts.hostname.is_empty() && facts.os == "linux");
    conn.welcome(&[]).await;
    conn.complete(Vec::new()).await;
    soon("readiness", agent.wait_ready()).await;
    conn.applied(1).await;
    let status = agent.status();
    assert_eq!((&*status.cluster, status.fence), (CLUSTER, Fence { epoch: 1, term: 1 }));
}

#[tokio::test]
async fn a_task_climbs_the_ladder_and_is_removed_when_it_is_not_wanted() {
    let manager = Manager::start().await;
    let (agent, store) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![desired(fake_task(1, &[]), TaskState::Ready)]).await;
    conn.reaches(1, TaskState::Ready).await;
    conn.increment(vec![fake_task(1, &[])], Vec::new()).await;
    let running = conn.reaches(1, TaskState::Running).await;
    assert!(running.running_since.is_some() && running.instance == "fake:t1:1");
    conn.increment(vec![desired(fake_task(1, &[]), TaskState::Shutdown)], Vec::new()).await;
    let down = conn.reaches(1, TaskState::Shutdown).await;
    assert_eq!(down.exit_code, Some(143));
    assert!(down.seq > running.seq);
    assert_eq!(store.starts().len(), 1, "kept until the managers give it up");
    conn.increment(Vec::new(), vec![1]).await;
    until("its removal", || (store.starts().is_empty() && agent.status().tasks.is_empty()).then_some(()))
        .await;
}

#[tokio::test]
async fn a_change_of_the_wish_alone_needs_no_specification() {
    let manager = Manager::start().await;
    let (_agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    let mut change = desired(fake_task(1, &[]), TaskState::Shutdown);
    change.spec = None;
    conn.increment(vec![change.clone()], Vec::new()).await;
    conn.reaches(1, TaskState::Shutdown).await;
    // For a task that it does not hold that is not enough.
    change.task_id = 2;
    conn.increment(vec![change], Vec::new()).await;
    let rejected = conn.reaches(2, TaskState::Rejected).await;
    assert_eq!(rejected.reason, "the assignment does not say what to run");
}

#[tokio::test]
async fn what_is_not_in_the_complete_set_is_removed() {
    let manager = Manager::start().await;
    let (agent, store) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[]), fake_task(2, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    conn.complete(vec![fake_task(2, &[])]).await;
    until("the removal of t1", || (store.starts().len() == 1).then_some(())).await;
    assert_eq!(store.starts().keys().next().unwrap().task.0, 2);
    until("its being forgotten", || (agent.status().tasks.len() == 1).then_some(())).await;
}

#[tokio::test]
async fn ends_and_failures_are_reported_with_their_reasons() {
    let manager = Manager::start().await;
    let (_agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    let mut elsewhere = fake_task(4, &[]);
    elsewhere.spec.as_mut().unwrap().containers.get_mut("main").unwrap().runtime = 1;
    elsewhere.spec.as_mut().unwrap().containers.get_mut("main").unwrap().image = "busybox".to_owned();
    let mut unreadable = fake_task(5, &[]);
    unreadable.job = "No Name".to_owned();
    let tasks = vec![
        fake_task(1, &[("FAKE_FAIL_START", "no such program")]),
        fake_task(3, &[("FAKE_EXIT", "9"), ("FAKE_RUN_FOR", "0s")]),
        elsewhere,
        unreadable,
    ];
    conn.complete(tasks).await;
    let mut seen = BTreeMap::new();
    while seen.len() < 4 {
        if let Some(session_request::Body::Status(batch)) = conn.next().await {
            let ended =
                batch.statuses.into_iter().filter(|status| status.state > TaskState::Running.number().into());
            seen.extend(ended.map(|status| (status.task_id, (status.state, status.restarts, status.reason))));
        }
    }
    let (failed, rejected) = (TaskState::Failed.number().into(), TaskState::Rejected.number().into());
    assert_eq!(seen[&1], (failed, 0, "cannot start: no such program".to_owned()));
    assert_eq!(seen[&3], (failed, 3, "exit 9, all 3 restarts in 5m are used up".to_owned()));
    assert_eq!(seen[&4], (rejected, 0, "this node offers no docker runtime".to_owned()));
    assert!(seen[&5].2.starts_with("this agent cannot read the task: ") && seen[&5].2.contains("No Name"));
}

#[tokio::test]
async fn a_redirect_is_followed_and_the_managers_are_remembered() {
    let (follower, leader) = (Manager::start().await, Manager::start().await);
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let (agent, _) = start(config(in_folder(folder.path()), &store, &[&follower.address])).await;
    follower.accept().await.redirect(&leader.address, &[&follower.address, &leader.address]).await;
    let mut conn = leader.accept().await;
    conn.welcome(&[&leader.address]).await;
    conn.complete(Vec::new()).await;
    soon("readiness", agent.wait_ready()).await;
    agent.shutdown().await;
    // A restart dials what it learned as well as its seed.
    let (_agent, _) = start(config(in_folder(folder.path()), &store, &[&follower.address])).await;
    let hello = tokio::select! {
        conn = leader.accept() => conn.hello,
        conn = follower.accept() => {
            drop(conn);
            leader.accept().await.hello
        }
    };
    assert_eq!((hello.cluster_id.as_str(), hello.fence), (CLUSTER, Some(Fence { epoch: 1, term: 1 })));
}

#[tokio::test]
async fn managers_that_send_it_in_circles_do_not_make_it_spin() {
    let (a, b) = (Manager::start().await, Manager::start().await);
    // A clock that stands still: whoever waits on it, waits.
    let clock = Clock::manual(quorate_base::Timestamp::from_millis(1_000_000));
    let config = config(Storage::Memory, &FakeStore::new(), &[&a.address]);
    let _agent = Agent::start_seeded(config, clock.clone(), group(), Rng::seeded(1)).await.unwrap();
    for (manager, other) in [(&a, &b), (&b, &a), (&a, &b), (&b, &a)] {
        manager.accept().await.redirect(&other.address, &[]).await;
    }
    // The redirects in a row are used up: the next one is followed after a wait, which ends when the clock moves.
    let unmoved = tokio::time::timeout(Duration::from_millis(200), a.accept()).await;
    assert!(unmoved.is_err(), "followed at once");
    clock.advance(Duration::from_millis(100));
    a.accept().await;
}

#[tokio::test]
async fn a_manager_that_says_nothing_does_not_keep_it_from_the_others() {
    let (manager, silent) = (Manager::start().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (_agent, _) = in_memory(&manager).await;
    manager.accept().await.redirect(&silent.local_addr().unwrap().to_string(), &[]).await;
    let (dialled, _) = soon("a connection", silent.accept()).await.unwrap();
    let mut conn = manager.accept().await;
    // It came while it still waited for the silent one, not because it had given that up.
    let mut bytes = [0; 4_096];
    let said = loop {
        match dialled.try_read(&mut bytes) {
            Ok(0) => break "given up",
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break "open",
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(said, "open");
    conn.welcome(&[]).await;
    conn.complete(Vec::new()).await;
    conn.applied(1).await;
}

#[tokio::test]
async fn a_gap_asks_for_the_complete_set_again() {
    let manager = Manager::start().await;
    let (agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    conn.increment_after_a_lost_one().await;
    conn.ended().await;
    let mut again = manager.accept_as_leader(1).await;
    let mut known = fake_task(1, &[]);
    known.observed_state = TaskState::Running.number().into();
    again.complete(vec![known]).await;
    again.applied(1).await;
    assert_eq!(agent.status().tasks[0].1.restarts, 0, "what runs is not touched");
}

#[tokio::test]
async fn an_older_leader_is_refused_also_after_a_restart() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(7).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    // In the midst of a session.
    conn.fence.term = 6;
    conn.increment(Vec::new(), vec![1]).await;
    conn.ended().await;
    lost(&agent, "it leads in epoch 1 term 6, and this agent has obeyed epoch 1 term 7").await;
    assert_eq!(agent.status().tasks.len(), 1);
    agent.shutdown().await;
    let (agent, _) = start(config).await;
    let mut old = manager.accept_as_leader(6).await;
    assert_eq!(old.hello.fence, Some(Fence { epoch: 1, term: 7 }));
    old.ended().await;
    let mut newer = manager.accept().await;
    // A higher epoch outweighs any term.
    newer.fence = Fence { epoch: 2, term: 1 };
    newer.welcome(&[]).await;
    newer.complete(vec![fake_task(1, &[])]).await;
    soon("readiness", agent.wait_ready()).await;
    assert_eq!(store.starts()[&unit(1)], 1, "the task never stopped");
}

#[tokio::test]
async fn a_leader_of_another_cluster_is_refused() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    agent.shutdown().await;
    let (agent, _) = start(config).await;
    let mut stranger = manager.accept().await;
    stranger.welcome_with(|welcome| welcome.cluster_id = "01BX5ZZKBKACTAV9WEVGEMMVRZ".to_owned()).await;
    stranger.ended().await;
    let reason = lost(&agent, "it belongs to cluster 01BX5ZZKBKACTAV9WEVGEMMVRZ").await;
    assert!(reason.contains("give it an empty data directory to join the other cluster"), "{reason}");
    assert_eq!(store.starts()[&unit(1)], 1);
}

#[tokio::test]
async fn a_refusal_is_shown() {
    let manager = Manager::start().await;
    let (agent, _) = in_memory(&manager).await;
    let conn = manager.accept().await;
    conn.refuse("NODE_NAME_TAKEN", "another agent is node n1: choose another name").await;
    let reason = lost(&agent, "NODE_NAME_TAKEN").await;
    assert!(reason.ends_with("NODE_NAME_TAKEN: another agent is node n1: choose another name"), "{reason}");
}

#[tokio::test]
async fn a_status_is_sent_again_until_it_is_acknowledged() {
    let manager = Manager::start().await;
    let (agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    let running =
        |status: &quorate_wire::agent::TaskStatus| status.state == u32::from(TaskState::Running.number());
    let first = conn.status(1, running).await;
    drop(conn);
    let mut again = manager.accept_as_leader(2).await;
    again.complete(vec![fake_task(1, &[])]).await;
    let second = again.status(1, |status| running(status)).await;
    assert_eq!(second.seq, first.seq);
    assert_eq!(agent.status().unacknowledged, 1);
    again.ack(&second).await;
    until("the acknowledgement", || (agent.status().unacknowledged == 0).then_some(())).await;
}

#[tokio::test]
async fn a_leader_that_acknowledges_nothing_is_left() {
    let manager = Manager::start().await;
    let (agent, _) = in_memory(&manager).await;
    let mut conn = manager.accept().await;
    conn.welcome_with(|welcome| {
        welcome.lease = Some(quorate_wire::common::duration(Duration::from_millis(200)));
    })
    .await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.ended().await;
    lost(&agent, "it acknowledges no status").await;
    manager.accept().await;
}

#[tokio::test]
async fn a_crash_is_answered_on_the_spot_while_all_managers_are_dead() {
    let manager = Manager::start().await;
    let (agent, store) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    let address = manager.address.clone();
    drop(conn);
    manager.kill().await;
    lost(&agent, "connect").await;
    assert!(store.crash(&unit(1), 3));
    until("the restart", || (store.starts()[&unit(1)] == 2).then_some(())).await;
    let back = Manager::start_at(address.parse().unwrap()).await;
    let mut conn = back.accept_as_leader(2).await;
    conn.complete(vec![fake_task(1, &[])]).await;
    let status = conn.status(1, |status| status.restarts == 1 && status.reason.is_empty()).await;
    assert_eq!((status.state, status.exit_code), (TaskState::Running.number().into(), Some(3)));
}

#[tokio::test]
async fn an_agent_restarts_its_tasks_with_no_manager_alive() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[]), fake_task(2, &[])]).await;
    let before = conn.reaches(1, TaskState::Running).await;
    until("t2", || store.starts().get(&unit(2)).copied()).await;
    agent.shutdown().await;
    manager.kill().await;
    // While nobody watches: t1 crashes, t2 runs on.
    assert!(store.crash(&unit(1), 1));
    let (agent, _) = start(config).await;
    until("the restart of t1", || (store.starts()[&unit(1)] == 2).then_some(())).await;
    let t1 = until("its report", || {
        let tasks = agent.status().tasks;
        tasks
            .into_iter()
            .map(|(_, status)| status)
            .find(|status| status.restarts == 1 && status.reason.is_empty())
    })
    .await;
    assert!(t1.seq > before.seq);
    assert_eq!(store.starts()[&unit(2)], 1, "adopted, not started anew");
}

#[tokio::test]
async fn a_removal_survives_a_restart_without_managers() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[("FAKE_IGNORE_STOP", "1")])]).await;
    conn.reaches(1, TaskState::Running).await;
    conn.increment(Vec::new(), vec![1]).await;
    conn.applied(2).await;
    // Its stop still waits for the grace.
    agent.shutdown().await;
    manager.kill().await;
    let (agent, _) = start(config).await;
    assert!(store.crash(&unit(1), 1));
    until("its removal", || store.starts().is_empty().then_some(())).await;
    assert!(agent.status().tasks.iter().all(|(_, status)| status.state.is_terminal()));
}

#[tokio::test]
async fn a_damaged_ledger_is_made_good_by_the_runtimes_and_the_leader() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[]), fake_task(2, &[]), fake_task(3, &[("FAKE_RUN_FOR", "0s")])]).await;
    let running = conn.reaches(1, TaskState::Running).await;
    until("t2", || store.starts().get(&unit(2)).copied()).await;
    agent.shutdown().await;
    std::fs::write(folder.path().join("ledger"), "torn").unwrap();
    let (agent, _) = start(config).await;
    let mut conn = manager.accept().await;
    assert_eq!(conn.hello.cluster_id, "");
    assert_eq!(store.starts()[&unit(2)], 1, "nothing is touched before the leader has spoken");
    // In a later epoch, too: the containers keep the names that they have.
    conn.fence = Fence { epoch: 2, term: 3 };
    conn.welcome(&[]).await;
    let mut first = fake_task(1, &[]);
    (first.observed_state, first.observed_seq) = (TaskState::Running.number().into(), running.seq);
    let mut ended = fake_task(3, &[]);
    ended.observed_state = TaskState::Complete.number().into();
    conn.complete(vec![first, ended]).await;
    let adopted = conn.status(1, |status| status.state == u32::from(TaskState::Running.number())).await;
    assert!(adopted.seq > running.seq);
    assert_eq!(adopted.instance, running.instance);
    until("the removal of the stranger t2", || (!store.starts().contains_key(&unit(2))).then_some(())).await;
    assert_eq!(store.starts()[&unit(1)], 1);
    let t3 = until("t3", || agent.status().tasks.into_iter().find(|(id, _)| id.0 == 3)).await;
    assert_eq!(t3.1.state, TaskState::Complete, "what ended is not started anew");
    assert!(store.starts()[&unit(3)] <= 4);
}

#[tokio::test]
async fn a_task_that_ended_is_not_started_by_a_wiped_agent() {
    let manager = Manager::start().await;
    let (agent, store) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    let mut ended = fake_task(1, &[]);
    (ended.observed_state, ended.observed_seq) = (TaskState::Failed.number().into(), 12);
    let mut lost = fake_task(2, &[]);
    lost.observed_state = TaskState::Running.number().into();
    conn.complete(vec![ended, lost]).await;
    // What ran and is gone counts as a crash: it is restarted, by the policy.
    let status = conn.status(2, |status| status.restarts == 1).await;
    assert!(status.reason.starts_with("its container is gone, restarting in"), "{}", status.reason);
    until("t2", || store.starts().get(&unit(2)).copied()).await;
    assert!(!store.starts().contains_key(&unit(1)));
    assert_eq!(agent.status().tasks[0].1.state, TaskState::Failed);
}

#[tokio::test]
async fn two_agents_on_one_directory_are_refused() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(in_folder(folder.path()), &FakeStore::new(), &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let error = Agent::start(config.clone(), Clock::system(), group()).await.unwrap_err().to_string();
    assert!(error.contains("is in use by process"), "{error}");
    agent.shutdown().await;
    let mut other = config.clone();
    other.node = name("n2");
    let error = Agent::start(other, Clock::system(), group()).await.unwrap_err().to_string();
    assert!(error.contains("belongs to node \"n1\""), "{error}");
    start(config).await;
}
