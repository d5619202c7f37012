//! A manager that says what a test wants.

// Each test file uses its own part of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use quorate_base::sync::lock;
use quorate_base::{TaskGroup, TaskKind};
use quorate_pki::{Profile, Security};
use quorate_wire::api::cluster_service_server::{ClusterService, ClusterServiceServer};
use quorate_wire::api::job_service_server::{JobService, JobServiceServer};
use quorate_wire::api::job_spec::Kind;
use quorate_wire::api::node_service_server::{NodeService, NodeServiceServer};
use quorate_wire::api::task_service_server::{TaskService, TaskServiceServer};
use quorate_wire::api::watch_service_server::{WatchService, WatchServiceServer};
use quorate_wire::api::*;
use quorate_wire::common::{Consistency, ResponseMeta};
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::Notify;
use tonic::{Request, Response, Status, Streaming};

/// Revision of every write.
pub(crate) const WRITTEN: u64 = 10;

/// What the fake tells of the job: the view of a revision, or that there is none.
pub(crate) type View = Result<(u64, Job), Reason>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) refusal: Option<ApiError>,
    pub(crate) views: VecDeque<View>,
    pub(crate) reads: Vec<bool>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) applied: Vec<ApplyJobRequest>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) plan: Option<PlanJobResponse>,
    /// What a watch tells before it falls silent; none = watches are refused.
    pub(crate) watch: Vec<WatchResponse>,
    pub(crate) watched: Vec<WatchRequest>,
    pub(crate) status: GetClusterStatusResponse,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) read: Arc<Notify>,
}

impl Fake {
    pub(crate) async fn start(group: &TaskGroup) -> Self {
        let security = Security::PlaintextLoopback;
        let listener = security.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().to_string();
        let fake = Self { address, state: Arc::default(), read: Arc::default() };
        let router = security
            .server(Profile::Api)
            .add_service(JobServiceServer::new(fake.clone()))
            .add_service(TaskServiceServer::new(fake.clone()))
            .add_service(NodeServiceServer::new(fake.clone()))
            .add_service(ClusterServiceServer::new(fake.clone()))
            .add_service(WatchServiceServer::new(fake.clone()));
        group.spawn(TaskKind::critical("fake"), router.serve_with_incoming(listener.incoming()));
        fake
    }

    /// What reads tell, in turn; the last for ever.
    pub(crate) fn tells(&self, views: impl IntoIterator<Item = View>) {
        lock(&self.state).views = views.into_iter().collect();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.env("QUORATE_MANAGERS", &self.address).env("XDG_CONFIG_HOME", "/nonexistent").args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) async fn quorate(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.command(args);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    pub(crate) fn write(&self) -> Result<Option<ResponseMeta>, Status> {
        lock(&self.state).refusal.clone().map_or(Ok(Some(meta(WRITTEN))), |error| Err(error.into()))
    }
}

pub(crate) fn meta(applied_revision: u64) -> ResponseMeta {
    ResponseMeta { applied_revision, manager: "m1".into(), leader: "m1".into(), ..ResponseMeta::default() }
}

pub(crate) fn job(running: u32, desired: u32) -> Job {
    let counts = TaskCounts { desired, running, pending: desired - running, ..TaskCounts::default() };
    Job {
        namespace: "default".into(),
        name: "web".into(),
        version: 1,
        status: JobStatus::Active.into(),
        spec: Some(JobSpec {
            kind: Some(Kind::Service(ServiceSpec { replicas: desired })),
            ..JobSpec::default()
        }),
        counts: Some(counts),
        converged: running == desired,
        ..Job::default()
    }
}

#[tonic::async_trait]
impl JobService for Fake {
    async fn apply_job(
        &self,
        request: Request<ApplyJobRequest>,
    ) -> Result<Response<ApplyJobResponse>, Status> {
        lock(&self.state).applied.push(request.into_inner());
        let (meta, job) = (self.write()?, Some(job(0, 2)));
        Ok(Response::new(ApplyJobResponse {
            meta,
            job,
            created: true,
            unchanged: false,
            revision: WRITTEN,
            warnings: Vec::new(),
        }))
    }

    async fn plan_job(&self, _: Request<PlanJobRequest>) -> Result<Response<PlanJobResponse>, Status> {
        lock(&self.state).plan.clone().map(Response::new).ok_or_else(unasked)
    }

    async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<GetJobResponse>, Status> {
        let stale = request.into_inner().read.is_some_and(|read| read.consistency() == Consistency::Stale);
        let view = {
            let mut state = lock(&self.state);
            state.reads.push(stale);
            match state.views.len() {
                0 | 1 => state.views.front().cloned(),
                _ => state.views.pop_front(),
            }
        };
        self.read.notify_one();
        match view {
            Some(Ok((revision, job))) => {
                Ok(Response::new(GetJobResponse { meta: Some(meta(revision)), job: Some(job) }))
            }
            Some(Err(reason)) => Err(ApiError::new(reason, "as the test says").into()),
            None => Err(ApiError::new(Reason::Internal, "the test says nothing").into()),
        }
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        let jobs = lock(&self.state).jobs.clone();
        Ok(Response::new(ListJobsResponse { meta: Some(meta(WRITTEN)), jobs, ..ListJobsResponse::default() }))
    }

    async fn scale_job(&self, _: Request<ScaleJobRequest>) -> Result<Response<ScaleJobResponse>, Status> {
        Ok(Response::new(ScaleJobResponse { meta: self.write()?, job: None, revision: WRITTEN }))
    }

    async fn delete_job(&self, _: Request<DeleteJobRequest>) -> Result<Response<DeleteJobResponse>, Status> {
        Ok(Response::new(DeleteJobResponse { meta: self.write()?, job: None, revision: WRITTEN }))
    }
}

#[tonic::async_trait]
impl TaskService for Fake {
    type ReadLogsStream = futures::stream::Empty<Result<ReadLogsResponse, Status>>;
    type ExecStream = futures::stream::Empty<Result<ExecResponse, Status>>;

    async fn stop_task(&self, _: Request<StopTaskRequest>) -> Result<Response<StopTaskResponse>, Status> {
        Err(unasked())
    }

    async fn restart_task(
        &self,
        _: Request<RestartTaskRequest>,
    ) -> Result<Response<RestartTaskResponse>, Status> {
        Err(unasked())
    }

    async fn signal_task(
        &self,
        _: Request<SignalTaskRequest>,
    ) -> Result<Response<SignalTaskResponse>, Status> {
        Err(unasked())
    }

    async fn read_logs(&self, _: Request<ReadLogsRequest>) -> Result<Response<Self::ReadLogsStream>, Status> {
        Err(unasked())
    }

    async fn exec(&self, _: Request<Streaming<ExecRequest>>) -> Result<Response<Self::ExecStream>, Status> {
        Err(unasked())
    }

    async fn get_task(&self, request: Request<GetTaskRequest>) -> Result<Response<GetTaskResponse>, Status> {
        let id = request.into_inner().id;
        let tasks = lock(&self.state).tasks.clone();
        let named = |task: &Task| format!("{}/{}[{}]", task.namespace, task.job, task.slot) == id;
        match tasks.into_iter().rev().find(|task| task.id == id || named(task)) {
            Some(task) => Ok(Response::new(GetTaskResponse { meta: Some(meta(WRITTEN)), task: Some(task) })),
            None => Err(ApiError::new(Reason::TaskNotFound, format!("there is no task {id}")).into()),
        }
    }

    /// Two tasks a page, whatever was asked for.
    async fn list_tasks(
        &self,
        request: Request<ListTasksRequest>,
    ) -> Result<Response<ListTasksResponse>, Status> {
        let from: usize = request.into_inner().page_token.parse().unwrap_or(0);
        let tasks = lock(&self.state).tasks.clone();
        let page: Vec<Task> = tasks.iter().skip(from).take(2).cloned().collect();
        let next = from + page.len();
        let next_page_token = if next < tasks.len() { next.to_string() } else { String::new() };
        Ok(Response::new(ListTasksResponse { meta: Some(meta(WRITTEN)), tasks: page, next_page_token }))
    }
}

/// What the fake says to calls that no verb under test makes.
pub(crate) fn unasked() -> Status {
    ApiError::new(Reason::Internal, "the test does not expect this call").into()
}

#[tonic::async_trait]
impl NodeService for Fake {
    async fn get_node(&self, request: Request<GetNodeRequest>) -> Result<Response<GetNodeResponse>, Status> {
        let name = request.into_inner().name;
        let nodes = lock(&self.state).nodes.clone();
        match nodes.into_iter().find(|node| node.name == name) {
            Some(node) => Ok(Response::new(GetNodeResponse { meta: Some(meta(WRITTEN)), node: Some(node) })),
            None => Err(ApiError::new(Reason::NodeNotFound, format!("there is no node {name}")).into()),
        }
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        let nodes = lock(&self.state).nodes.clone();
        Ok(Response::new(ListNodesResponse {
            meta: Some(meta(WRITTEN)),
            nodes,
            ..ListNodesResponse::default()
        }))
    }

    async fn list_usage(&self, _: Request<ListUsageRequest>) -> Result<Response<ListUsageResponse>, Status> {
        Err(unasked())
    }
}

#[tonic::async_trait]
impl ClusterService for Fake {
    async fn get_cluster_status(
        &self,
        _: Request<GetClusterStatusRequest>,
    ) -> Result<Response<GetClusterStatusResponse>, Status> {
        let mut status = lock(&self.state).status.clone();
        for manager in status.managers.iter_mut().filter(|manager| manager.api_address.is_empty()) {
            manager.api_address.clone_from(&self.address);
        }
        Ok(Response::new(status))
    }

    async fn list_managers(
        &self,
        _: Request<ListManagersRequest>,
    ) -> Result<Response<ListManagersResponse>, Status> {
        Err(unasked())
    }
}

#[tonic::async_trait]
impl WatchService for Fake {
    type WatchStream = futures::stream::BoxStream<'static, Result<WatchResponse, Status>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut state = lock(&self.state);
        state.watched.push(request.into_inner());
        if state.watch.is_empty() {
            return Err(unasked());
        }
        let told = state.watch.clone().into_iter().map(Ok);
        Ok(Response::new(futures::stream::iter(told).chain(futures::stream::pending()).boxed()))
    }
}

pub(crate) fn group() -> TaskGroup {
    TaskGroup::new("test", |_| {})
}
