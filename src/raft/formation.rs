//! How a manager comes into its cluster, without a manual step.
//!
//! - It has a log in which it is a member: nothing to do, unless its address
//!   changed.
//! - Somebody of the list belongs to a cluster: it asks to join that.
//! - All of the list are there, and none belongs to a cluster: the one with the
//!   smallest name forms it, the others wait for it.
//!
//! A manager whose store was quarantined remembers its cluster and never forms
//! another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use openraft::errors::{InitializeError, RaftError};
use quorate_base::{Backoff, ClusterId, Rng};
use quorate_wire::raft as pb;
use tonic::{Code, Request, Status};

use crate::codec::{get_member, put_member};
use crate::core::Core;
use crate::error::FatalError;
use crate::membership::LEADER;
use crate::service::{get_cluster, put_cluster};
use crate::types::Peer;

/// Between two looks at the others.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(1));
/// A wait is reported each time that so many looks changed nothing.
const REPORT_EVERY: u32 = 20;

/// The cluster's epoch while it is being formed, and once it is.
const FORMING: u64 = 0;
const FORMED: u64 = 1;

/// What to do next.
enum Next {
    Done,
    Join,
    Form(BTreeMap<u64, Peer>),
    Wait(String),
}

/// Brings the node into its cluster; ends when it is a voter there.
pub(crate) async fn run(core: Arc<Core>, mut rng: Rng) -> Result<(), FatalError> {
    let mut delays = RETRY.delays(rng.fork("formation"));
    loop {
        let wait = match next(&core).await? {
            Next::Done => return Ok(()),
            Next::Form(members) => form(&core, members, &mut rng).await?,
            Next::Join => match join(&core).await? {
                true => return Ok(()),
                false => "the cluster takes this manager in".to_owned(),
            },
            Next::Wait(why) => why,
        };
        if delays.attempts() % REPORT_EVERY == REPORT_EVERY - 1 {
            tracing::info!(reason = wait, "waiting to come into the cluster");
        }
        tokio::time::sleep(delays.next_delay()).await;
    }
}

async fn next(core: &Core) -> Result<Next, FatalError> {
    let initialized = core.raft.is_initialized().await.map_err(|e| FatalError::Core(e.to_string()))?;
    let ours = core.header.get();
    if initialized {
        let metrics = core.metrics();
        let known = metrics.membership_config.get_node(&core.id);
        let votes = metrics.membership_config.voter_ids().any(|id| id == core.id);
        if votes && known == Some(&core.peer) {
            if let (Some(cluster), FORMING) = (ours.cluster, ours.epoch) {
                if metrics.committed_membership_config.log_id().is_none() {
                    // A power cut could still take it back.
                    return Ok(Next::Wait("the first configuration is committed".to_owned()));
                }
                core.adopt(cluster, FORMED).await?;
            }
            return Ok(Next::Done);
        }
        return Ok(Next::Join);
    }
    let others = core.listed.iter().filter(|(name, _)| **name != core.peer.name);
    let asked =
        join_all(others.map(|(name, addr)| async move { (name, addr, core.identify(addr).await) })).await;
    let (mut members, mut missing) = (BTreeMap::from([(core.id, core.peer.clone())]), Vec::new());
    let mut formed = ours.cluster.is_some() && ours.epoch != FORMING;
    for (name, addr, answer) in asked {
        let Some(answer) = answer else {
            missing.push(name.as_str());
            continue;
        };
        check(core, name, addr, &answer, ours.cluster)?;
        formed |= answer.initialized;
        let told = answer.member.unwrap_or_default();
        let (_, told) = get_member(told);
        members.insert(answer.raft_id, Peer { name: name.clone(), addr: addr.clone(), ..told });
    }
    if formed {
        return Ok(Next::Join);
    }
    if !missing.is_empty() {
        return Ok(Next::Wait(format!("no answer from {}", missing.join(", "))));
    }
    match core.listed.keys().next() {
        Some(first) if *first == core.peer.name => Ok(Next::Form(members)),
        first => Ok(Next::Wait(format!("{} forms the cluster", first.map_or("nobody", String::as_str)))),
    }
}

/// Refuses peers that are not who the list says, or of another cluster.
fn check(
    core: &Core,
    name: &str,
    addr: &str,
    answer: &pb::IdentifyResponse,
    ours: Option<ClusterId>,
) -> Result<(), FatalError> {
    if answer.name != name {
        let (expected, found) = (name.to_owned(), answer.name.clone());
        return Err(FatalError::OtherName { addr: addr.to_owned(), expected, found });
    }
    let theirs = get_cluster(&answer.cluster).unwrap_or_default();
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours != theirs && core.header.get().epoch != FORMING => {
            Err(FatalError::OtherCluster { peer: name.to_owned(), addr: addr.to_owned(), theirs, ours })
        }
        _ => Ok(()),
    }
}

async fn form(core: &Core, members: BTreeMap<u64, Peer>, rng: &mut Rng) -> Result<String, FatalError> {
    let cluster = core.header.cluster().unwrap_or_else(|| ClusterId::generate(core.clock.now(), rng));
    core.adopt(cluster, FORMING).await?;
    tracing::info!(%cluster, ?members, "forming the cluster");
    match core.raft.initialize(members).await {
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {
            Ok("the cluster is formed".to_owned())
        }
        Err(e) => Err(FatalError::Core(e.to_string())),
    }
}

/// Asks the leader, wherever it is, for the next step; true once this node votes.
async fn join(core: &Core) -> Result<bool, FatalError> {
    let leader = core.other_leader().map(|l| l.addr);
    let listed =
        core.listed.iter().filter(|(name, _)| **name != core.peer.name).map(|(_, addr)| addr.clone());
    let mut targets: Vec<String> = leader.into_iter().chain(listed).collect();
    let mut tried = Vec::new();
    while let Some(addr) = (!targets.is_empty()).then(|| targets.remove(0)) {
        if tried.contains(&addr) {
            continue;
        }
        match ask(core, &addr).await {
            Ok(response) => return joined(core, response).await,
            Err(status) if status.code() == Code::FailedPrecondition => {
                return Err(FatalError::Refused(status.message().to_owned()));
            }
            Err(status) => {
                tracing::debug!(addr, %status, "not joined yet");
                let hint = status.metadata().get(LEADER).and_then(|l| l.to_str().ok()).map(str::to_owned);
                targets.splice(0..0, hint);
            }
        }
        tried.push(addr);
    }
    if core.metrics().current_leader == Some(core.id) {
        // Nobody else leads: this node moves itself.
        let member = member(core);
        return Ok(core
            .join(pb::JoinRequest { member: Some(member), ..Default::default() })
            .await
            .is_ok_and(|r| r.voter));
    }
    Ok(false)
}

fn member(core: &Core) -> pb::Member {
    put_member(core.id, &core.peer)
}

async fn ask(core: &Core, addr: &str) -> Result<pb::JoinResponse, Status> {
    let mut client = core.peers.stranger(addr).map_err(|e| Status::unavailable(e.to_string()))?;
    let cluster = core.header.cluster().map(put_cluster).unwrap_or_default();
    let call = client.join(Request::new(pb::JoinRequest { cluster, member: Some(member(core)) }));
    let deadline = core.config.propose_timeout * 2;
    let answer = tokio::time::timeout(deadline, call).await;
    answer.map_err(|_| Status::deadline_exceeded("no answer in time"))?.map(tonic::Response::into_inner)
}

async fn joined(core: &Core, response: pb::JoinResponse) -> Result<bool, FatalError> {
    let cluster = get_cluster(&response.cluster).ok().flatten();
    if let Some(cluster) = cluster {
        core.adopt(cluster, response.epoch.max(FORMED)).await?;
    }
    Ok(response.voter && core.metrics().membership_config.voter_ids().any(|id| id == core.id))
}
