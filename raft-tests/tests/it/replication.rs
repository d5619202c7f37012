use std::sync::Arc;
use std::time::Duration;

use quorate_model::{NodeFacts, Revision};
use quorate_raft::{ProposeError, RaftConfig, Timers, Update};
use quorate_state::{Command, Envelope};

use crate::cluster::{Cluster, config, eventually, put, written};

/// Images after few entries, and hardly any log behind them.
fn often() -> RaftConfig {
    RaftConfig { snapshot_every: 40, keep_logs: 5, ..config() }
}

/// A write of about so many bytes.
fn large(id: u64, bytes: usize) -> Envelope {
    let mut envelope = put(id);
    if let Command::UpsertManager { manager } = &mut envelope.command {
        manager.binary_version = "x".repeat(bytes);
    }
    envelope
}

#[tokio::test]
async fn the_whole_cluster_restarts_with_everything_it_acknowledged() {
    for memory in [true, false] {
        let mut cluster = Cluster::started(Cluster::new(3, memory, 1, often())).await;
        cluster.write_all(0..130).await;
        for n in 0..3 {
            cluster.kill(n);
            if memory {
                cluster.memory(n).power_cut(n as u64);
            }
        }
        for n in 0..3 {
            cluster.start(n).await;
        }
        let revision = cluster.write(130).await;
        assert_eq!(written(&cluster.converged(revision).await), (0..131).collect());
        let status = cluster.node(0).status();
        assert!(status.snapshot > Some(Revision(40)), "{status:?}");
        assert!(status.purged > Some(Revision(30)), "{status:?}");
    }
}

#[tokio::test]
async fn a_member_that_was_away_for_long_gets_an_image() {
    let mut cluster = Cluster::started(Cluster::new(3, true, 2, often())).await;
    cluster.write_all(0..10).await;
    let away = cluster.follower().await;
    cluster.power_cut(away);
    cluster.write_all(10..300).await;
    let leader = cluster.leader().await;
    eventually("the log the member needs is gone", || {
        (cluster.node(leader).status().purged > Some(Revision(200))).then_some(())
    })
    .await;
    cluster.start(away).await;
    let mut updates = cluster.node(away).updates();
    let revision = cluster.write(300).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..301).collect());
    let first = updates.recv().await.unwrap();
    assert!(matches!(first, Update::Replaced { .. } | Update::Changed { .. }));
    assert!(cluster.node(away).status().snapshot > Some(Revision(200)));
}

#[tokio::test]
async fn a_large_image_arrives_while_heartbeats_go_on() {
    // Longer than the worst moment of a busy machine.
    let (heartbeat, election_min) = (Duration::from_millis(200), Duration::from_secs(2));
    let timers = Timers { heartbeat, election_min, election_max: Duration::from_secs(3) };
    let mut cluster = Cluster::started(Cluster::new(3, true, 3, RaftConfig { timers, ..often() })).await;
    let away = cluster.follower().await;
    cluster.power_cut(away);
    for id in 0..60 {
        let leader = cluster.leader().await;
        // Text that does not compress to nothing.
        let mut envelope = large(id, 0);
        let text: String =
            (0..20_000_u64).map(|i| format!("{:x}", (i * 7919 + id).wrapping_mul(2_654_435_761))).collect();
        if let Command::UpsertManager { manager } = &mut envelope.command {
            manager.binary_version = text;
        }
        cluster.node(leader).propose(vec![envelope]).await.unwrap();
    }
    let leader = cluster.leader().await;
    let term = cluster.node(leader).leadership().borrow().term;
    eventually("an image was built", || {
        (cluster.node(leader).status().purged > Some(Revision(30))).then_some(())
    })
    .await;
    cluster.start(away).await;
    let revision = cluster.write(60).await;
    assert_eq!(written(&cluster.converged(revision).await).len(), 61);
    assert_eq!(
        cluster.node(leader).leadership().borrow().term,
        term,
        "the transfer cost the leader its term"
    );
}

#[tokio::test]
async fn large_entries_replicate_and_too_large_ones_are_refused_at_once() {
    let cluster = Cluster::three(4).await;
    let leader = cluster.leader().await;
    let limit = config().proposal_bytes;
    for id in 0..6 {
        cluster.node(leader).propose(vec![large(id, limit - 1000)]).await.unwrap();
    }
    let refused = cluster.node(leader).propose(vec![large(9, limit)]).await.unwrap_err();
    assert!(matches!(refused, ProposeError::TooLarge { .. }), "{refused}");
    let revision = cluster.write(6).await;
    assert_eq!(written(&cluster.converged(revision).await).len(), 7);
}

#[tokio::test]
async fn every_member_applies_other_commands_alike() {
    let cluster = Cluster::three(5).await;
    let leader = cluster.leader().await;
    let facts = Arc::new(NodeFacts::default());
    for n in 0..20 {
        let name = quorate_model::Name::parse("name", &format!("node{}", n % 7)).unwrap();
        let command = Command::RegisterNode { name, agent: format!("agent{n}"), facts: facts.clone() };
        cluster.node(leader).propose(vec![Envelope { command, ..put(n) }]).await.unwrap();
    }
    let revision = cluster.write(99).await;
    cluster.converged(revision).await;
}
