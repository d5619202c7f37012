//! `ClusterService`: works without a leader.

use quorate_model::{NodeStatus, Revision};
use quorate_raft::{RaftStatus, Role};
use quorate_state::State;
use quorate_wire::{
    api::{self as pb, cluster_service_server::ClusterService, raft_id},
    common::duration,
};
use tonic::{Request, Response, Status};

use crate::core::Core;

/// Answers for the control plane.
#[derive(Clone)]
pub struct ClusterApi {
    core: Core,
}

impl ClusterApi {
    /// The service.
    #[must_use]
    pub fn new(core: Core) -> Self {
        Self { core }
    }

    /// The members of Raft, with what the state knows of them.
    fn managers(&self, view: &State, status: &RaftStatus) -> Vec<pb::Manager> {
        let leader = self.core.node.leadership().borrow().leader.as_ref().map(|l| l.id);
        let mut managers: Vec<pb::Manager> = status
            .members
            .iter()
            .map(|member| {
                let known = view.manager(member.id);
                let role = if member.voter { pb::ManagerRole::Voter } else { pb::ManagerRole::Learner };
                pb::Manager {
                    name: member.name.clone(),
                    raft_id: raft_id(member.id),
                    api_address: known.map_or_else(|| member.api_addr.clone(), |m| m.api_addr.clone()),
                    agent_address: known.map_or_else(|| member.agent_addr.clone(), |m| m.agent_addr.clone()),
                    raft_address: member.addr.clone(),
                    binary_version: known
                        .map_or_else(|| member.version.clone(), |m| m.binary_version.clone()),
                    role: role.into(),
                    leader: leader == Some(member.id),
                    matched_index: member.matched.map(|r| r.0),
                }
            })
            .collect();
        managers.sort_by(|a, b| a.name.cmp(&b.name));
        managers
    }
}

fn figures(core: &Core, status: &RaftStatus) -> pb::RaftStatus {
    let state = match status.role {
        Role::Leader => pb::ManagerState::Leader,
        Role::Candidate => pb::ManagerState::Candidate,
        Role::Learner if status.members.is_empty() => pb::ManagerState::Joining,
        Role::Follower | Role::Learner | Role::Stopping => pb::ManagerState::Follower,
    };
    let index = |revision: Option<Revision>| revision.map_or(0, |r| r.0);
    let log = core.node.log_stats();
    pb::RaftStatus {
        state: state.into(),
        term: status.term.0,
        last_log_index: index(status.last_log),
        committed_index: index(status.committed),
        applied_index: index(status.applied),
        image_index: index(status.snapshot),
        purged_index: index(status.purged),
        last_flush: Some(duration(log.last_flush)),
        store_bytes: log.disk_bytes,
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn get_cluster_status(
        &self,
        _request: Request<pb::GetClusterStatusRequest>,
    ) -> Result<Response<pb::GetClusterStatusResponse>, Status> {
        let view = self.core.node.view();
        let status = self.core.node.status();
        let managers = self.managers(&view, &status);
        let voters = managers.iter().filter(|m| m.role() == pb::ManagerRole::Voter).count();
        let running = view.tasks().filter(|t| t.is_up()).count();
        let ready = view.nodes().filter(|n| n.status == NodeStatus::Ready).count();
        Ok(Response::new(pb::GetClusterStatusResponse {
            meta: Some(self.core.meta(&view)),
            raft: Some(figures(&self.core, &status)),
            quorum: if voters == 0 { 0 } else { voters as u32 / 2 + 1 },
            managers,
            epoch: view.epoch().0,
            cluster_version: view.settings().version.0,
            nodes_ready: ready as u32,
            nodes_total: view.nodes().count() as u32,
            tasks_running: running as u32,
            tasks_pending: view.unplaced_count() as u32,
            jobs: view.jobs().count() as u32,
        }))
    }

    async fn list_managers(
        &self,
        request: Request<pb::ListManagersRequest>,
    ) -> Result<Response<pb::ListManagersResponse>, Status> {
        let view = self.core.view(request.into_inner().read.as_ref()).await?;
        let managers = self.managers(&view, &self.core.node.status());
        Ok(Response::new(pb::ListManagersResponse { meta: Some(self.core.meta(&view)), managers }))
    }
}
