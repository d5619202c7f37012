use quorate_model::RaftId;
use quorate_pki::{Profile, Security};
use quorate_raft::{FatalError, Identity, RaftConfig};
use quorate_wire::raft as pb;
use quorate_wire::raft::raft_service_client::RaftServiceClient;
use tonic::Code;

use crate::cluster::{Cluster, Disk, config, eventually, put, written};

#[tokio::test]
async fn a_member_with_an_emptied_disk_takes_the_place_of_its_old_self() {
    let often = RaftConfig { snapshot_every: 40, keep_logs: 5, ..config() };
    let mut cluster = Cluster::started(Cluster::new(3, true, 1, often)).await;
    cluster.write_all(0..200).await;
    let emptied = cluster.follower().await;
    let old = cluster.node(emptied).identity();
    cluster.kill(emptied);
    cluster.memory(emptied).wipe();
    cluster.start(emptied).await;
    let new = is_voter_again(&cluster, emptied).await;
    assert_ne!(new.id, old.id);
    let revision = cluster.write(200).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..201).collect());
    let identity = eventually("it knows its cluster", || {
        Some(cluster.node(emptied).identity()).filter(|i| i.cluster.is_some())
    })
    .await;
    assert_eq!(identity.cluster, old.cluster);
}

/// Waits until member `n` is one of three voters, and nobody else of its name is.
async fn is_voter_again(cluster: &Cluster, n: usize) -> Identity {
    eventually("it votes in the place of its old self", || {
        let (me, status) = (cluster.node(n).identity(), cluster.node(n).status());
        let voters: Vec<RaftId> = status.members.iter().filter(|m| m.voter).map(|m| m.id).collect();
        (voters.contains(&me.id) && voters.len() == 3 && status.members.len() == 3 && !status.changing)
            .then_some(me)
    })
    .await
}

#[tokio::test]
async fn a_member_whose_store_is_damaged_rejoins_its_cluster_under_a_new_id() {
    let mut cluster = Cluster::started(Cluster::new(3, false, 8, config())).await;
    cluster.write_all(0..50).await;
    let victim = cluster.follower().await;
    let old = cluster.node(victim).identity();
    cluster.stop(victim).await;
    let Disk::Sled(dir) = &cluster.members[victim].disk else { panic!("not on sled") };
    let db = std::fs::OpenOptions::new().write(true).open(dir.path().join("log/db")).unwrap();
    db.set_len(db.metadata().unwrap().len() / 100).unwrap();
    cluster.damaged.insert(victim);
    cluster.start(victim).await;
    let new = is_voter_again(&cluster, victim).await;
    assert_ne!(new.id, old.id);
    assert_eq!(new.cluster, old.cluster);
    let revision = cluster.write(50).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..51).collect());
}

#[tokio::test]
async fn calls_for_others_change_nothing() {
    let cluster = Cluster::three(9).await;
    cluster.write_all(0..3).await;
    let target = cluster.follower().await;
    let (id, addr) = (cluster.node(target).identity().id.0, cluster.members[target].addr);
    let cluster_id = cluster.node(target).identity().cluster.unwrap().to_string();
    let term = cluster.node(target).leadership().borrow().term;
    let usurper = || pb::VoteRequest {
        vote: Some(pb::Vote { term: 1000, node: 7, committed: false }),
        last: Some(pb::LogId { term: 1000, index: 1000 }),
        transfer: true,
    };
    let endpoint = Security::PlaintextLoopback.endpoint(Profile::Peer, &addr.to_string()).unwrap();
    let mut client = RaftServiceClient::new(endpoint.connect_lazy());
    let other = quorate_base::ClusterId::from_u128(1).to_string();
    let right = format!("{id:016x}");
    for (metadata, code) in [
        (vec![], Code::InvalidArgument),
        (
            vec![("quorate-cluster", other.as_str()), ("quorate-from", "7"), ("quorate-to", &right)],
            Code::FailedPrecondition,
        ),
        (
            vec![("quorate-cluster", cluster_id.as_str()), ("quorate-from", "7"), ("quorate-to", "8")],
            Code::FailedPrecondition,
        ),
        (
            vec![("quorate-cluster", cluster_id.as_str()), ("quorate-from", "x"), ("quorate-to", &right)],
            Code::InvalidArgument,
        ),
    ] {
        let mut request = tonic::Request::new(usurper());
        for (name, value) in metadata {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        assert_eq!(client.vote(request).await.unwrap_err().code(), code);
    }
    cluster.write(3).await;
    assert_eq!(cluster.node(target).leadership().borrow().term, term);
}

#[tokio::test]
async fn a_manager_of_another_cluster_is_refused() {
    let mut cluster = Cluster::three(2).await;
    cluster.write_all(0..3).await;
    // m3 loses its membership and gets the disk of a manager of another cluster.
    cluster.power_cut(2);
    let mut other = Cluster::new(3, true, 3, config());
    other.listed.retain(|name, _| name == "m3");
    other.start(2).await;
    other.write(77).await;
    eventually("the other cluster is formed", || (other.node(2).identity().epoch == 1).then_some(())).await;
    other.kill(2);
    other.memory(2).power_cut(1);
    let stray = std::mem::replace(&mut cluster.members[2].disk, Disk::Memory(other.memory(2)));
    cluster.start(2).await;
    // It leads its own cluster on the address of a member of ours, and neither touches the other.
    eventually("the stray leads its own cluster", || cluster.node(2).leadership().borrow().me.then_some(()))
        .await;
    for id in 3..30 {
        let leader = if cluster.node(0).leadership().borrow().me { 0 } else { 1 };
        if cluster.node(leader).propose(vec![put(id)]).await.is_ok() {
            let voters = cluster.node(leader).status().members.iter().filter(|m| m.voter).count();
            assert_eq!(voters, 3);
        }
    }
    assert_eq!(written(&cluster.node(2).view()), [77].into());
    assert!(written(&cluster.node(0).view()).is_disjoint(&[77].into()));
    drop(stray);
}

#[tokio::test]
async fn a_manager_that_remembers_another_cluster_is_refused_with_both_names() {
    let mut cluster = Cluster::three(4).await;
    cluster.write_all(0..3).await;
    cluster.power_cut(2);
    cluster.memory(2).wipe();
    // An emptied store that still knows its old cluster, as after a quarantine.
    let mut rng = quorate_base::Rng::seeded(9);
    let opened =
        quorate_storage::Storage::open_memory(&cluster.memory(2), "m3", Default::default(), &mut rng)
            .unwrap();
    opened.storage.header.join_cluster(quorate_base::ClusterId::from_u128(1), 1).unwrap();
    opened.storage.close().await;
    cluster.start(2).await;
    let fatal = cluster.node(2).fatal().await;
    assert!(matches!(fatal, FatalError::OtherCluster { .. }), "{fatal}");
    let ours = cluster.node(0).identity().cluster.unwrap().to_string();
    assert!(fatal.to_string().contains(&ours), "{fatal}");
}

#[tokio::test]
async fn a_list_that_names_the_wrong_manager_is_an_error() {
    let mut cluster = Cluster::three(5).await;
    cluster.power_cut(2);
    cluster.memory(2).wipe();
    let (m1, m2) = (cluster.listed["m1"].clone(), cluster.listed["m2"].clone());
    cluster.listed.insert("m1".to_owned(), m2);
    cluster.listed.insert("m2".to_owned(), m1);
    cluster.start(2).await;
    let fatal = cluster.node(2).fatal().await.to_string();
    assert!(fatal.contains("is listed as manager m1, but m2 answers there"), "{fatal}");
}

#[tokio::test]
async fn a_manager_nobody_knows_is_refused() {
    let mut cluster = Cluster::new(4, true, 6, config());
    let all = cluster.listed.clone();
    cluster.listed.remove("m4");
    for n in 0..3 {
        cluster.start(n).await;
    }
    cluster.leader().await;
    cluster.listed = all;
    cluster.start(3).await;
    let fatal = cluster.node(3).fatal().await.to_string();
    assert!(fatal.contains("has no manager called m4"), "{fatal}");
}

#[tokio::test]
async fn a_manager_that_was_added_becomes_a_voter() {
    let mut cluster = Cluster::new(4, true, 7, config());
    let all = cluster.listed.clone();
    cluster.listed.remove("m4");
    for n in 0..3 {
        cluster.start(n).await;
    }
    cluster.write_all(0..10).await;
    // Its Raft id is drawn when its store is made.
    let mut rng = quorate_base::Rng::seeded(4);
    let opened =
        quorate_storage::Storage::open_memory(&cluster.memory(3), "m4", Default::default(), &mut rng)
            .unwrap();
    let id = RaftId(opened.storage.header.get().raft_id);
    opened.storage.close().await;
    let leader = cluster.leader().await;
    cluster.node(leader).add_learner(id, "m4", &all["m4"]).await.unwrap();
    cluster.listed = all;
    cluster.start(3).await;
    eventually("it votes", || {
        let status = cluster.node(3).status();
        status.members.iter().any(|m| m.id == id && m.voter).then_some(())
    })
    .await;
    let revision = cluster.write(10).await;
    assert_eq!(written(&cluster.converged(revision).await), (0..11).collect());
    // And out again.
    let leader = cluster.leader().await;
    let status = cluster.node(leader).status();
    let rest: Vec<_> = status.members.iter().map(|m| m.id).filter(|m| *m != id).collect();
    if leader != 3 {
        cluster.node(leader).change_voters(&rest).await.unwrap();
        assert_eq!(cluster.node(leader).status().members.len(), 3);
    }
}
