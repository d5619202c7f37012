//! What leaders want anew of what runs, and what agents tell them of it.

use super::*;

#[tokio::test]
async fn a_restart_that_was_asked_for_is_done_once_also_over_restarts_of_the_agent() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let config = config(in_folder(folder.path()), &store, &[&manager.address]);
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(1).await;
    let asked = |times| quorate_wire::agent::Assignment { restarts_asked: times, ..fake_task(1, &[]) };
    conn.complete(vec![asked(0)]).await;
    let before = conn.reaches(1, TaskState::Running).await;
    conn.increment(vec![asked(1)], Vec::new()).await;
    let down = conn.status(1, |status| status.running_since.is_none()).await;
    assert_eq!((down.state, down.reason.as_str()), (before.state, "restarting as asked"));
    let back = conn.status(1, |status| status.restarts == 1 && status.running_since.is_some()).await;
    assert_eq!((back.state, store.starts()[&unit(1)]), (before.state, 2));
    let kinds: Vec<u32> = back.events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [1, 4, 5, 12, 8 + 1, 11, 5],
        "received, created, started, stopping, killed, restarting, started"
    );
    conn.increment(vec![asked(1)], Vec::new()).await;
    conn.applied(3).await;
    agent.shutdown().await;
    let (agent, _) = start(config.clone()).await;
    let mut conn = manager.accept_as_leader(2).await;
    conn.complete(vec![asked(1)]).await;
    conn.applied(1).await;
    agent.shutdown().await;
    // An agent that lost its ledger takes what was asked for before as done.
    std::fs::write(folder.path().join("ledger"), "torn").unwrap();
    let (agent, _) = start(config).await;
    let mut conn = manager.accept_as_leader(2).await;
    let mut known = asked(1);
    (known.observed_state, known.observed_seq) = (back.state, back.seq);
    conn.complete(vec![known]).await;
    let adopted = conn.status(1, |status| status.running_since.is_some()).await;
    assert_eq!(adopted.events.last().map(|event| event.kind), Some(14), "adopted");
    assert_eq!(store.starts()[&unit(1)], 2);
    assert_eq!(agent.status().tasks.len(), 1);
}

#[tokio::test]
async fn heartbeats_tell_the_set_by_its_hash_and_a_complete_set_touches_nothing() {
    let manager = Manager::start().await;
    let (_agent, store) = in_memory(&manager).await;
    let mut conn = manager.accept_as_leader(1).await;
    let hash = |tasks: &[u64]| {
        let wanted = quorate_wire::agent::Wanted { desired: TaskState::Running, restarts_asked: 0 };
        quorate_wire::agent::set_hash(tasks.iter().map(|id| (quorate_model::TaskId(*id), wanted)))
    };
    conn.complete(vec![fake_task(1, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    conn.increment(vec![fake_task(2, &[])], Vec::new()).await;
    conn.reaches(2, TaskState::Running).await;
    conn.complete(vec![fake_task(1, &[]), fake_task(2, &[])]).await;
    let beat = loop {
        match conn.next().await.unwrap() {
            session_request::Body::Heartbeat(beat) if beat.applied_sequence == 3 => break beat,
            _ => {}
        }
    };
    assert_eq!(beat.set_hash, hash(&[1, 2]));
    assert_eq!(store.starts().values().copied().collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn an_orphan_is_told_and_one_that_becomes_wanted_is_taken_up() {
    let manager = Manager::start().await;
    let folder = tempfile::tempdir().unwrap();
    let store = FakeStore::new();
    let clock = Clock::manual(quorate_base::Timestamp::from_millis(1_000_000));
    let patient = AgentConfig {
        orphan_grace: Duration::from_secs(60),
        ..config(in_folder(folder.path()), &store, &[&manager.address])
    };
    let launch = || Agent::start_seeded(patient.clone(), clock.clone(), group(), Rng::seeded(1));
    let agent = launch().await.unwrap();
    let mut conn = manager.accept_as_leader(1).await;
    conn.complete(vec![fake_task(1, &[]), fake_task(2, &[])]).await;
    conn.reaches(1, TaskState::Running).await;
    conn.reaches(2, TaskState::Running).await;
    agent.shutdown().await;
    std::fs::write(folder.path().join("ledger"), "torn").unwrap();
    let agent = launch().await.unwrap();
    let mut conn = manager.accept().await;
    conn.fence = Fence { epoch: 2, term: 1 };
    conn.welcome(&[]).await;
    conn.complete(Vec::new()).await;
    soon("readiness", agent.wait_ready()).await;
    let mut names = Vec::new();
    while names.len() < 2 {
        clock.advance(Duration::from_millis(50));
        if let session_request::Body::Heartbeat(beat) = conn.next().await.unwrap() {
            names = beat.orphans.into_iter().map(|orphan| (orphan.task_id, orphan.runtime)).collect();
        }
    }
    assert_eq!(names, [(1, "fake".to_owned()), (2, "fake".to_owned())]);
    conn.increment(vec![fake_task(1, &[])], Vec::new()).await;
    let adopted = conn.reaches(1, TaskState::Running).await;
    assert_eq!(adopted.instance, "fake:t1:1", "under the name that it has");
    assert_eq!(store.starts().len(), 2, "never at once");
    clock.advance(Duration::from_secs(60));
    until("the removal of t2", || (store.starts().len() == 1).then_some(())).await;
    assert_eq!(store.starts()[&unit(1)], 1);
}

#[tokio::test]
async fn a_sound_session_that_breaks_is_followed_by_the_next_at_once() {
    let (first, second) = (Manager::start().await, Manager::start().await);
    // A clock that stands still: whoever waits on it, waits.
    let clock = Clock::manual(quorate_base::Timestamp::from_millis(1_000_000));
    let config = config(Storage::Memory, &FakeStore::new(), &[&first.address]);
    let agent = Agent::start_seeded(config, clock.clone(), group(), Rng::seeded(1)).await.unwrap();
    let mut conn = first.accept().await;
    conn.welcome(&[&first.address, &second.address]).await;
    conn.complete(Vec::new()).await;
    soon("readiness", agent.wait_ready()).await;
    clock.advance(Duration::from_secs(2));
    drop(conn);
    second.accept().await;
}
