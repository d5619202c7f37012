//! Keeps the table of managers equal to Raft's membership, with their addresses.

use std::time::Duration;

use quorate_base::tasks::{TaskGroup, TaskKind};
use quorate_model::{ClusterVersion, Manager, Name, RaftId, Revision, Term};
use quorate_raft::MemberStatus;
use quorate_state::Command;
use tracing::warn;

use crate::{core::Core, duties::actor, proposer::WriteError};

/// Revisions within this time are answered by one look.
const QUIET: Duration = Duration::from_millis(20);

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_millis(50);

/// Starts the duty in the term's group.
pub(super) fn start(core: &Core, term: Term, group: &TaskGroup) {
    group.spawn(TaskKind::critical("members"), follow(core.clone(), term));
}

async fn follow(core: Core, term: Term) -> Result<(), WriteError> {
    // A change of the membership is a log entry, so a new revision is what to wait for.
    let mut applied = core.node.applied();
    let mut known = Vec::new();
    loop {
        applied.mark_unchanged();
        let members: Vec<MemberStatus> = core.node.status().members;
        let told: Vec<Manager> = members.iter().filter_map(told).collect();
        if told != known {
            match record(&core, term, &told).await {
                Ok(()) => known = told,
                Err(error @ WriteError::Stopped) => return Err(error),
                Err(error) => {
                    warn!(%error, "the table of managers was not written; trying again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        if applied.changed().await.is_err() {
            return Ok(());
        }
        tokio::time::sleep(QUIET).await;
    }
}

/// Writes the members' records and deletes those of former ones.
async fn record(core: &Core, term: Term, members: &[Manager]) -> Result<(), WriteError> {
    let submit = |command| core.proposer.submit_fenced(actor(&core.name), term, command);
    for manager in members {
        submit(Command::UpsertManager { manager: manager.clone() }).await?;
    }
    let view = core.node.view();
    let gone: Vec<RaftId> =
        view.managers().map(|m| m.id).filter(|id| !members.iter().any(|m| m.id == *id)).collect();
    for id in gone {
        submit(Command::RemoveManager { id }).await?;
    }
    Ok(())
}

/// A member as the state keeps it.
fn told(member: &MemberStatus) -> Option<Manager> {
    Some(Manager {
        id: member.id,
        name: Name::parse("manager", &member.name).ok()?,
        api_addr: member.api_addr.clone(),
        agent_addr: member.agent_addr.clone(),
        raft_addr: member.addr.clone(),
        binary_version: member.version.clone(),
        can_follow: ClusterVersion::NEWEST,
        changed: Revision(0),
    })
}
