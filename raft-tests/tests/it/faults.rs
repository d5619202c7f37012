//! Power cuts and failing disks under load, by seed.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::time::Duration;

use futures::future::join_all;
use quorate_model::Revision;
use quorate_raft::{FatalError, RaftConfig};

use crate::cluster::{Acknowledged, Cluster, config, eventually, put, written};

/// Concurrent writers of a load.
const WRITERS: u64 = 8;

/// Writers at one member, each with one write after the other until one fails;
/// notes which were acknowledged.
async fn load(cluster: &Cluster, member: usize, ids: Range<u64>, acknowledged: &Acknowledged) {
    let node = cluster.node(member);
    let writer = async |mine: u64| {
        for id in ids.clone().filter(|id| id % WRITERS == mine) {
            if node.propose(vec![put(id)]).await.is_err() {
                return;
            }
            acknowledged.add(id);
        }
    };
    join_all((0..WRITERS).map(writer)).await;
}

/// Cuts the power of some members while one of them leads a load: after some
/// writes were acknowledged, in the middle of what follows.
async fn cut_under_load(cluster: &mut Cluster, round: u64, victims: &[usize], acknowledged: &Acknowledged) {
    let slow = Duration::from_millis(cluster.rng.below(10));
    (0..3).for_each(|n| cluster.memory(n).slow_flushes(slow));
    let leader = cluster.leader().await;
    let victims = if victims.is_empty() { &[leader] } else { victims };
    let disks: Vec<_> = victims.iter().map(|n| (cluster.memory(*n), cluster.rng.next_u64())).collect();
    let before = cluster.rng.between(1, 30) as usize;
    let mut writers = Box::pin(load(cluster, leader, round * 1000..round * 1000 + 400, acknowledged));
    tokio::select! {
        biased;
        () = acknowledged.more(before) => {}
        () = &mut writers => panic!("round {round}: the load ended before {before} writes were acknowledged"),
    }
    disks.iter().for_each(|(disk, cut)| disk.power_cut(*cut));
    writers.await;
    victims.iter().for_each(|n| cluster.kill(*n));
    heal(cluster).await;
}

async fn heal(cluster: &mut Cluster) {
    for n in 0..cluster.members.len() {
        if !cluster.is_running(n) {
            cluster.start(n).await;
        }
    }
}

async fn check(cluster: &Cluster, acknowledged: &BTreeSet<u64>, seed: u64, last: u64) {
    let revision = cluster.write(last).await;
    let state = cluster.converged(revision).await;
    let missing: Vec<_> = acknowledged.difference(&written(&state)).copied().collect();
    assert!(missing.is_empty(), "seed {seed}: acknowledged writes {missing:?} are lost");
}

fn quick() -> RaftConfig {
    RaftConfig { snapshot_every: 60, keep_logs: 10, propose_timeout: Duration::from_secs(2), ..config() }
}

#[tokio::test]
async fn acknowledged_writes_survive_power_cuts_of_the_leader() {
    for seed in 0..10 {
        let mut cluster = Cluster::started(Cluster::new(3, true, seed, quick())).await;
        let acknowledged = Acknowledged::new();
        for round in 0..4 {
            cut_under_load(&mut cluster, round, &[], &acknowledged).await;
        }
        check(&cluster, &acknowledged.all(), seed, 1 << 40).await;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_power_cuts_of_the_whole_cluster() {
    for seed in 100..105 {
        let mut cluster = Cluster::started(Cluster::new(3, true, seed, quick())).await;
        let acknowledged = Acknowledged::new();
        for round in 0..4 {
            cut_under_load(&mut cluster, round, &[0, 1, 2], &acknowledged).await;
        }
        check(&cluster, &acknowledged.all(), seed, 1 << 40).await;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_kills_on_sled() {
    let mut cluster = Cluster::started(Cluster::new(3, false, 7, quick())).await;
    let acknowledged = Acknowledged::new();
    for round in 0..3 {
        load(&cluster, cluster.leader().await, round * 1000..round * 1000 + 60, &acknowledged).await;
        let victim = if round == 1 { cluster.follower().await } else { cluster.leader().await };
        cluster.kill(victim);
        load(&cluster, cluster.leader().await, round * 1000 + 60..round * 1000 + 80, &acknowledged).await;
        heal(&mut cluster).await;
    }
    (0..3).for_each(|n| cluster.kill(n));
    heal(&mut cluster).await;
    let all = acknowledged.all();
    assert!(all.len() >= 180, "only {} writes were acknowledged", all.len());
    check(&cluster, &all, 7, 1 << 40).await;
}

#[tokio::test]
async fn a_leader_whose_disk_fails_stops_and_another_takes_over() {
    let mut cluster = Cluster::three(8).await;
    cluster.write_all(0..10).await;
    let leader = cluster.leader().await;
    cluster.memory(leader).fail_next_flush(io::ErrorKind::Other);
    let outcome = cluster.node(leader).propose(vec![put(10)]).await;
    let fatal = cluster.node(leader).fatal().await;
    assert!(matches!(fatal, FatalError::Storage(_) | FatalError::Core(_)), "{fatal}");
    assert!(fatal.to_string().contains("flushing the log failed"), "{fatal}");
    cluster.power_cut(leader);
    let revision = cluster.write(11).await;
    let state = written(&cluster.converged(revision).await);
    assert!((0..10).all(|id| state.contains(&id)));
    assert!(outcome.is_err() || state.contains(&10), "acknowledged and lost");
    heal(&mut cluster).await;
    cluster.converged(revision).await;
}

#[tokio::test]
async fn a_full_disk_stops_its_manager_with_the_reason() {
    let mut cluster = Cluster::three(9).await;
    let full = cluster.follower().await;
    cluster.memory(full).set_full(true);
    let revision = cluster.write(1).await;
    let fatal = cluster.node(full).fatal().await;
    assert!(fatal.to_string().contains("no storage space"), "{fatal}");
    cluster.power_cut(full);
    heal(&mut cluster).await;
    cluster.converged(revision).await;
    assert!(revision > Revision(0));
}

#[tokio::test]
async fn a_leader_whose_disk_hangs_hands_over_and_returns_when_it_recovers() {
    let config = RaftConfig { disk_stall: Duration::from_millis(300), ..config() };
    let cluster = Cluster::started(Cluster::new(3, true, 11, config)).await;
    cluster.write_all(0..5).await;
    let old = cluster.leader().await;
    let disk = cluster.memory(old);
    disk.hold_flushes();
    // The others are a quorum without it: the write is acknowledged all the same.
    cluster.node(old).propose(vec![put(5)]).await.unwrap();
    let new = eventually("another member leads", || {
        (0..3).find(|n| *n != old && cluster.node(*n).leadership().borrow().me)
    })
    .await;
    cluster.node(new).read_index().await.unwrap();
    let replies = cluster.node(new).propose(vec![put(6)]).await.unwrap();
    disk.release_flushes();
    assert_eq!(written(&cluster.converged(replies[0].0).await), (0..7).collect());
}
