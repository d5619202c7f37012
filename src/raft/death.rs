//! The leader's death, seen instead of waited for.
//!
//! When the process of a leader ends, its connections break and its port is
//! closed, at once. A follower whose replication stream breaks looks at the
//! port; if it is closed, or a process answers there that does not lead (any
//! more), it asks the other voters to look too; if a majority
//! agrees, the one with the longest log is told to take over, which it may do
//! before the leader's lease has run out (as when a leader hands over).
//!
//! Nothing here is needed for safety: an election is an election. A leader that
//! only fell silent, or whose host died, is left to the timers; a follower that
//! is cut off alone finds no majority. Reads never rely on a lease.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use openraft::ServerState;
use openraft::raft::TransferLeaderRequest;
use quorate_wire::raft as pb;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::Request;

use crate::codec::{get_log_id, put_log_id, put_transfer, put_vote};
use crate::core::Core;
use crate::error::FatalError;
use crate::peers::Lane;
use crate::status::Metrics;
use crate::types::{LogId, TypeConfig, Vote};

/// A follower that is asked knows that another has found the port closed.
const LOOK_AGAIN_FOR: Duration = Duration::from_millis(200);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Refusals in a row that count as closed.
const REFUSALS: u32 = 2;
/// How long the others may take for their own look.
const ANSWER: Duration = Duration::from_millis(400);

/// Waits for streams that break, and acts if their leader is gone.
pub(crate) async fn watch(core: Arc<Core>, mut broken: mpsc::Receiver<u64>) -> Result<(), FatalError> {
    while let Some(from) = broken.recv().await {
        let metrics = core.metrics();
        if metrics.current_leader != Some(from) || from == core.id || !metrics.vote.committed {
            continue;
        }
        if let Some(best) = heir(&core, &metrics, from).await {
            tracing::info!(
                leader = format!("{from:016x}"),
                heir = format!("{best:016x}"),
                "the leader is gone"
            );
            core.forget_leader();
            promote(&core, &metrics, best).await;
        }
    }
    Ok(())
}

/// Whether leader `id` turns out to be gone: its port is closed (refused twice
/// in a row), or it says itself that it does not lead any more, because it was
/// started anew or its core has failed. Looks for up to `limit`, but only until
/// the leader is heard again.
async fn is_gone(core: &Core, metrics: &Metrics, id: u64, limit: Duration) -> bool {
    let Some(peer) = metrics.membership_config.get_node(&id) else { return false };
    let (begin, mut refusals) = (core.clock.monotonic(), 0);
    loop {
        match tokio::time::timeout(limit, TcpStream::connect(&peer.addr)).await {
            Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => refusals += 1,
            Ok(Ok(_)) if agrees(core, metrics, id).await.is_some() => return true,
            Ok(_) | Err(_) => refusals = 0,
        }
        if refusals == REFUSALS {
            return true;
        }
        let heard = core.leader_heard().is_some_and(|at| at > begin);
        if heard || core.clock.monotonic().since(begin) >= limit {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Who should lead next: the voter with the longest log among those that see
/// the leader gone, if they are a majority.
async fn heir(core: &Core, metrics: &Metrics, leader: u64) -> Option<u64> {
    if !is_gone(core, metrics, leader, core.config.timers.election_max).await {
        return None;
    }
    let mine = (last_log(core).await?, core.id);
    let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
    let others = voters.iter().filter(|id| **id != core.id && **id != leader);
    let asked = join_all(others.map(|id| agrees(core, metrics, *id))).await;
    let mut agreed: Vec<(Option<LogId>, u64)> = asked.into_iter().flatten().collect();
    if voters.contains(&core.id) {
        agreed.push(mine);
    }
    // While the members change, a majority of each configuration is needed.
    let by: BTreeSet<u64> = agreed.iter().map(|(_, id)| *id).collect();
    let majority = |config: &BTreeSet<u64>| config.intersection(&by).count() * 2 > config.len();
    if !metrics.membership_config.get_joint_config().iter().all(majority) {
        return None;
    }
    agreed.into_iter().max().map(|(_, id)| id)
}

/// The end of this node's log.
async fn last_log(core: &Core) -> Option<Option<LogId>> {
    core.raft.with_raft_state(|state| state.log_ids.last().copied()).await.ok()
}

async fn agrees(core: &Core, metrics: &Metrics, id: u64) -> Option<(Option<LogId>, u64)> {
    let peer = metrics.membership_config.get_node(&id)?;
    let mut client = core.peers.client(id, &peer.addr, Lane::Control).ok()?;
    let call =
        client.leader_gone(Request::new(pb::LeaderGoneRequest { leader: Some(put_vote(&metrics.vote)) }));
    let answer = tokio::time::timeout(ANSWER, call).await.ok()?.ok()?.into_inner();
    answer.agreed.then(|| (answer.last.map(get_log_id), id))
}

/// Tells the heir to stand for election now.
async fn promote(core: &Core, metrics: &Metrics, heir: u64) {
    let request = TransferLeaderRequest::<TypeConfig>::new(metrics.vote, heir, None);
    if heir == core.id {
        // An error means that the core has stopped, which others report.
        let _ = core.raft.handle_transfer_leader(request).await;
        return;
    }
    let Some(peer) = metrics.membership_config.get_node(&heir) else { return };
    let Ok(mut client) = core.peers.client(heir, &peer.addr, Lane::Control) else { return };
    // If this fails the heir found out by itself, or the timers decide.
    let _ = tokio::time::timeout(ANSWER, client.transfer_leader(put_transfer(&request))).await;
}

impl Core {
    /// The answer to a follower that asks whether the leader of `vote` is gone.
    pub(crate) async fn sees_gone(&self, vote: Vote) -> pb::LeaderGoneResponse {
        let metrics = self.metrics();
        let (leader, same) = (vote.leader_id.voted_for, metrics.vote == vote && vote.committed);
        let gone = if leader == self.id {
            !same || metrics.state != ServerState::Leader
        } else {
            same && is_gone(self, &metrics, leader, LOOK_AGAIN_FOR).await
        };
        if !gone {
            return pb::LeaderGoneResponse::default();
        }
        let last = last_log(self).await.flatten();
        pb::LeaderGoneResponse { agreed: true, last: last.as_ref().map(put_log_id) }
    }
}
