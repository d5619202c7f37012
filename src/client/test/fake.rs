//! A manager that does what a test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Clock, Mono, TaskGroup, TaskKind};
use quorate_pki::{Profile, Security};
use quorate_wire::api::cluster_service_server::{ClusterService, ClusterServiceServer};
use quorate_wire::api::job_service_server::{JobService, JobServiceServer};
use quorate_wire::api::*;
use quorate_wire::common::ResponseMeta;
use quorate_wire::status::ApiError;
use tonic::{Request, Response, Status};

/// What the fake does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers.
    Answer,
    /// Refuses.
    Refuse(ApiError),
    /// Never answers.
    Hang,
}

/// A call that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its request id; empty for reads.
    pub(crate) request_id: String,
    /// When it came.
    pub(crate) at: Mono,
    /// What its `grpc-timeout` said.
    pub(crate) timeout: Option<String>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Act>,
    seen: Vec<Seen>,
    leader: String,
    managers: Vec<Manager>,
}

/// A running fake; stops with its group.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// Starts one on a free port of the loopback.
    pub(crate) async fn start(group: &TaskGroup) -> Self {
        let security = Security::PlaintextLoopback;
        let listener = security.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let fake = Self { address: listener.local_addr().to_string(), state: Arc::default() };
        let router = security
            .server(Profile::Api)
            .add_service(JobServiceServer::new(fake.clone()))
            .add_service(ClusterServiceServer::new(fake.clone()));
        group.spawn(TaskKind::critical("fake"), router.serve_with_incoming(listener.incoming()));
        fake
    }

    /// What to do with the next calls; it answers after those.
    pub(crate) fn script(&self, acts: impl IntoIterator<Item = Act>) {
        lock(&self.state).script.extend(acts);
    }

    /// Whom its answers name as the leader.
    pub(crate) fn follows(&self, leader: &str) {
        lock(&self.state).leader = leader.to_owned();
    }

    /// Whom its answers list as managers.
    pub(crate) fn knows(&self, addresses: &[&str]) {
        let manager = |address: &&str| Manager { api_address: (*address).to_owned(), ..Manager::default() };
        lock(&self.state).managers = addresses.iter().map(manager).collect();
    }

    /// The calls so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    async fn act<Q>(&self, request: &Request<Q>, request_id: &str) -> Result<Option<ResponseMeta>, Status> {
        let timeout = request.metadata().get("grpc-timeout").map(|value| value.to_str().unwrap().to_owned());
        let (act, leader) = {
            let mut state = lock(&self.state);
            let at = Clock::system().monotonic();
            state.seen.push(Seen { request_id: request_id.to_owned(), at, timeout });
            (state.script.pop_front().unwrap_or(Act::Answer), state.leader.clone())
        };
        match act {
            Act::Answer => Ok(Some(ResponseMeta {
                leader_address: leader,
                manager: self.address.clone(),
                ..Default::default()
            })),
            Act::Refuse(error) => Err(error.into()),
            Act::Hang => std::future::pending().await,
        }
    }
}

/// A port that nobody listens on.
pub(crate) async fn dead_address() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A fast client of these managers.
pub(crate) fn options() -> crate::Options {
    crate::Options { try_limit: Duration::from_secs(30), ..crate::Options::default() }
}

#[tonic::async_trait]
impl JobService for Fake {
    async fn plan_job(&self, request: Request<PlanJobRequest>) -> Result<Response<PlanJobResponse>, Status> {
        let meta = self.act(&request, "").await?;
        Ok(Response::new(PlanJobResponse { meta, ..Default::default() }))
    }

    async fn apply_job(
        &self,
        request: Request<ApplyJobRequest>,
    ) -> Result<Response<ApplyJobResponse>, Status> {
        let meta = self.act(&request, &request.get_ref().request_id).await?;
        Ok(Response::new(ApplyJobResponse { meta, ..Default::default() }))
    }

    async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<GetJobResponse>, Status> {
        let meta = self.act(&request, "").await?;
        Ok(Response::new(GetJobResponse { meta, ..Default::default() }))
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        let meta = self.act(&request, "").await?;
        Ok(Response::new(ListJobsResponse { meta, ..Default::default() }))
    }

    async fn scale_job(
        &self,
        request: Request<ScaleJobRequest>,
    ) -> Result<Response<ScaleJobResponse>, Status> {
        let meta = self.act(&request, &request.get_ref().request_id).await?;
        Ok(Response::new(ScaleJobResponse { meta, ..Default::default() }))
    }

    async fn delete_job(
        &self,
        request: Request<DeleteJobRequest>,
    ) -> Result<Response<DeleteJobResponse>, Status> {
        let meta = self.act(&request, &request.get_ref().request_id).await?;
        Ok(Response::new(DeleteJobResponse { meta, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl ClusterService for Fake {
    async fn get_cluster_status(
        &self,
        request: Request<GetClusterStatusRequest>,
    ) -> Result<Response<GetClusterStatusResponse>, Status> {
        let meta = self.act(&request, "").await?;
        let managers = lock(&self.state).managers.clone();
        Ok(Response::new(GetClusterStatusResponse { meta, managers, ..Default::default() }))
    }

    async fn list_managers(
        &self,
        request: Request<ListManagersRequest>,
    ) -> Result<Response<ListManagersResponse>, Status> {
        let meta = self.act(&request, "").await?;
        let managers = lock(&self.state).managers.clone();
        Ok(Response::new(ListManagersResponse { meta, managers }))
    }
}
