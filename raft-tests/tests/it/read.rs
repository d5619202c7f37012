use std::sync::Arc;

use futures::future::join_all;
use quorate_model::Revision;
use quorate_raft::Update;
use quorate_state::{Change, Object};

use crate::cluster::{Cluster, put, written};

#[tokio::test]
async fn a_follower_reads_what_was_acknowledged_elsewhere_before() {
    let cluster = Cluster::three(1).await;
    let follower = cluster.follower().await;
    for id in 0..30 {
        let revision = cluster.write(id).await;
        assert!(cluster.node(follower).read_index().await.unwrap() >= revision);
        assert!(written(&cluster.node(follower).view()).contains(&id), "write {id} is not there");
    }
}

#[tokio::test]
async fn many_reads_share_their_rounds_and_all_are_answered() {
    let cluster = Cluster::three(2).await;
    let revision = cluster.write(1).await;
    let reads = cluster.running().into_iter().flat_map(|n| std::iter::repeat_n(n, 200));
    for read in join_all(reads.map(|n| cluster.node(n).read_index())).await {
        assert!(read.unwrap() >= revision);
    }
}

#[tokio::test]
async fn a_proposal_carries_many_envelopes_with_an_answer_each() {
    let cluster = Cluster::three(3).await;
    let leader = cluster.leader().await;
    let replies = cluster.node(leader).propose((0..100).map(put).collect()).await.unwrap();
    assert_eq!(replies.len(), 100);
    assert!(replies.iter().all(|(revision, outcome)| *revision == replies[0].0 && outcome.is_ok()));
    assert_eq!(cluster.node(leader).propose(Vec::new()).await.unwrap(), []);
    assert_eq!(written(&cluster.converged(replies[0].0).await), (0..100).collect());
}

#[tokio::test]
async fn updates_come_in_order_on_every_member() {
    let cluster = Cluster::three(4).await;
    let mut watchers: Vec<_> = cluster.running().into_iter().map(|n| cluster.node(n).updates()).collect();
    cluster.write_all(0..50).await;
    for watcher in &mut watchers {
        let (mut last, mut seen) = (Revision(0), Vec::new());
        while seen.len() < 50 {
            let update = watcher.recv().await.unwrap();
            assert!(update.revision() > last);
            last = update.revision();
            let Update::Changed { events, .. } = update else { panic!("nothing was replaced") };
            let events: Arc<[_]> = events;
            for event in events.iter() {
                assert_eq!((event.change, event.revision), (Change::Created, last));
                if let Object::Manager(m) = &event.object {
                    seen.push(m.id.0);
                }
            }
        }
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
    }
}
