use std::time::Duration;

use quorate_model::Revision;
use quorate_raft::{ProposeError, RaftConfig, ReadError, Role, StartError, Timers};

use crate::cluster::{Cluster, config, eventually, put, written};

#[tokio::test]
async fn a_cluster_forms_by_itself_and_agrees_on_its_leader() {
    let cluster = Cluster::three(1).await;
    let leader = cluster.leader().await;
    let revision = cluster.write(1).await;
    cluster.converged(revision).await;
    for n in cluster.running() {
        let seen =
            eventually("everybody knows the leader", || cluster.node(n).leadership().borrow().leader.clone())
                .await;
        assert_eq!(seen.name, cluster.members[leader].name);
        let cluster_id = eventually("its header says so", || {
            let identity = cluster.node(n).identity();
            identity.cluster.filter(|_| identity.epoch == 1)
        });
        assert_eq!(Some(cluster_id.await), cluster.node(leader).identity().cluster);
        let status = cluster.node(n).status();
        assert_eq!(status.members.iter().filter(|m| m.voter).count(), 3);
        assert_eq!(status.role == Role::Leader, n == leader);
    }
}

#[tokio::test]
async fn a_single_manager_forms_a_cluster() {
    let cluster = Cluster::started(Cluster::new(1, true, 1, config())).await;
    let revision = cluster.write(1).await;
    assert_eq!(cluster.node(0).read_index().await.unwrap(), revision);
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_catches_up_when_it_returns() {
    let mut cluster = Cluster::three(2).await;
    cluster.write_all(0..20).await;
    let old = cluster.leader().await;
    let term = cluster.node(old).leadership().borrow().term;
    cluster.kill(old);
    cluster.memory(old).power_cut(7);
    let new = cluster.leader().await;
    assert_ne!(new, old);
    assert!(cluster.node(new).leadership().borrow().term > term);
    cluster.write_all(20..40).await;
    cluster.start(old).await;
    let revision = cluster.write(40).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..41).collect());
}

#[tokio::test]
async fn leadership_is_handed_over_on_request() {
    let cluster = Cluster::three(3).await;
    cluster.write_all(0..5).await;
    let old = cluster.leader().await;
    // A hand-over that loses a race may be repeated.
    while !cluster.node(old).hand_over().await {}
    let new = eventually("another leads", || {
        cluster.running().into_iter().find(|n| *n != old && cluster.node(*n).leadership().borrow().me)
    })
    .await;
    let refused = cluster.node(old).propose(vec![put(9)]).await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { .. }), "{refused}");
    assert_ne!(new, old);
    let revision = cluster.write(5).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..6).collect());
}

#[tokio::test]
async fn an_orderly_stop_of_the_leader_leaves_a_leader_behind() {
    let mut cluster = Cluster::three(4).await;
    cluster.write_all(0..5).await;
    let old = cluster.leader().await;
    cluster.stop(old).await;
    let revision = cluster.write(5).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..6).collect());
    cluster.start(old).await;
    cluster.converged(revision).await;
}

#[tokio::test]
async fn without_a_quorum_nothing_is_promised() {
    let mut cluster = Cluster::new(3, true, 5, config());
    cluster.config.propose_timeout = std::time::Duration::from_millis(500);
    let mut cluster = Cluster::started(cluster).await;
    cluster.write_all(0..3).await;
    let leader = cluster.leader().await;
    for n in cluster.running() {
        if n != leader {
            cluster.power_cut(n);
        }
    }
    let refused = cluster.node(leader).propose(vec![put(9)]).await.unwrap_err();
    assert!(matches!(refused, ProposeError::NotLeader { .. } | ProposeError::Unknown), "{refused}");
    let refused = cluster.node(leader).read_index().await.unwrap_err();
    assert!(matches!(refused, ReadError::Timeout | ReadError::NoLeader), "{refused}");
    // Its own state may still be read as it is.
    assert_eq!(written(&cluster.node(leader).view()).len(), 3);
}

#[tokio::test]
async fn a_planted_leader_restore_is_refused_at_start() {
    let mut cluster = Cluster::new(1, true, 6, RaftConfig { leader_restore: true, ..config() });
    let refused = cluster.try_start(0).await.unwrap_err();
    assert!(matches!(refused, StartError::LeaderRestore));
    assert!(refused.to_string().contains("acknowledged writes would be lost"));
}

#[tokio::test]
async fn a_manager_that_is_not_in_its_own_list_is_refused_at_start() {
    let mut cluster = Cluster::new(2, true, 7, config());
    cluster.listed.remove("m2");
    let refused = cluster.try_start(1).await.unwrap_err().to_string();
    assert!(refused.contains("lacks this one, m2 at 127."), "{refused}");
}

#[tokio::test]
async fn a_restarted_leader_starts_as_a_follower_of_a_new_term() {
    let mut cluster = Cluster::started(Cluster::new(1, true, 8, config())).await;
    cluster.write_all(0..3).await;
    let term = cluster.node(0).leadership().borrow().term;
    cluster.power_cut(0);
    cluster.start(0).await;
    cluster.leader().await;
    assert!(cluster.node(0).leadership().borrow().term > term);
    cluster.node(0).read_index().await.unwrap();
    assert_eq!(written(&cluster.node(0).view()), (0..3).collect());
    assert!(cluster.node(0).status().applied > Some(Revision(3)));
}

/// Timers that never fire within a test.
fn never() -> RaftConfig {
    let timers = Timers {
        heartbeat: Duration::from_secs(1),
        election_min: Duration::from_secs(600),
        election_max: Duration::from_secs(601),
    };
    RaftConfig { timers, ..config() }
}

#[tokio::test]
async fn the_death_of_a_leader_is_seen_without_any_timer() {
    let mut cluster = Cluster::started(Cluster::new(3, true, 9, never())).await;
    cluster.write_all(0..20).await;
    let old = cluster.leader().await;
    // Both followers have replication streams from the leader once it has written.
    cluster.power_cut(old);
    let new = cluster.leader().await;
    assert_ne!(new, old);
    let revision = cluster.write(20).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..21).collect());
    cluster.start(old).await;
    cluster.converged(revision).await;
}

#[tokio::test]
async fn five_members_see_the_death_of_a_leader_too() {
    let mut cluster = Cluster::started(Cluster::new(5, true, 10, never())).await;
    cluster.write_all(0..5).await;
    let first = cluster.leader().await;
    cluster.power_cut(first);
    cluster.write_all(5..10).await;
    let second = cluster.leader().await;
    cluster.power_cut(second);
    let revision = cluster.write(10).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..11).collect());
}

#[tokio::test]
async fn the_death_of_a_follower_costs_no_term() {
    let mut cluster = Cluster::three(11).await;
    cluster.write_all(0..5).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).leadership().borrow().term;
    for round in 0..3 {
        let follower = cluster.follower().await;
        cluster.power_cut(follower);
        cluster.write(5 + round).await;
        cluster.start(follower).await;
    }
    let revision = cluster.write(8).await;
    cluster.converged(revision).await;
    assert_eq!(cluster.node(leader).leadership().borrow().term, term);
}

#[tokio::test]
async fn a_leader_without_a_quorum_does_not_call_itself_leader_until_it_has_one_again() {
    let mut cluster = Cluster::three(12).await;
    cluster.write_all(0..5).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.running().into_iter().filter(|n| *n != leader).collect();
    others.iter().for_each(|n| cluster.power_cut(*n));
    let mut leadership = cluster.node(leader).leadership();
    leadership.wait_for(|l| !l.me && l.leader.is_none()).await.unwrap();
    for n in others {
        cluster.start(n).await;
    }
    let revision = cluster.write(5).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..6).collect());
}
