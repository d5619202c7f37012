//! `TaskService`.

use std::sync::Arc;

use quorate_model::{JobId, NodeId, Task, TaskId};
use quorate_state::State;
use quorate_wire::{
    api::{
        self as pb, Page, namespace, task_service_client::TaskServiceClient, task_service_server::TaskService,
    },
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    api::{cut, invalid, name, output::Answers, relays::Relays},
    core::Core,
    routing::Router,
};

/// Answers for tasks.
#[derive(Clone)]
pub struct TaskApi {
    core: Core,
    router: Router,
    relays: Relays,
}

impl TaskApi {
    /// The service.
    #[must_use]
    pub(crate) fn new(core: Core, router: Router, relays: Relays) -> Self {
        Self { core, router, relays }
    }
}

/// What a list is cut down to.
struct Filter {
    job: Option<JobId>,
    namespace: Option<quorate_model::Name>,
    node: Option<NodeId>,
    ended: bool,
}

impl Filter {
    fn read(request: &pb::ListTasksRequest, view: &State) -> Result<Self, ApiError> {
        let ns = if request.namespace.is_empty() { None } else { Some(namespace(&request.namespace)?) };
        let job = if request.job.is_empty() {
            None
        } else {
            let ns = namespace(&request.namespace)?;
            let job = name("job", &request.job)?;
            let found = view.job_named(&ns, &job).ok_or_else(|| {
                ApiError::new(Reason::JobNotFound, format!("there is no job {ns}/{job}"))
                    .with("job", format!("{ns}/{job}"))
            })?;
            Some(found.id)
        };
        let node = if request.node.is_empty() {
            None
        } else {
            let node = name("node", &request.node)?;
            Some(view.node_named(&node).ok_or_else(|| super::nodes::not_found(&node))?.id)
        };
        Ok(Self { job, namespace: ns, node, ended: request.include_ended })
    }

    fn takes(&self, view: &State, task: &Task) -> bool {
        self.job.is_none_or(|job| task.job == job)
            && self.node.is_none_or(|node| task.node == Some(node))
            && (self.ended || !task.status.state.is_terminal())
            && self
                .namespace
                .as_ref()
                .is_none_or(|ns| view.job(task.job).is_some_and(|job| job.namespace == *ns))
    }

    /// The tasks from `from` on, through the index that fits best.
    fn tasks<'a>(&'a self, view: &'a State, from: TaskId) -> Vec<&'a Arc<Task>> {
        let mut found: Vec<&Arc<Task>> = match (self.job, self.node) {
            (Some(job), _) => view.tasks_of(job).filter(|t| t.id >= from && self.takes(view, t)).collect(),
            (None, Some(node)) => {
                view.tasks_on(node).filter(|t| t.id >= from && self.takes(view, t)).collect()
            }
            (None, None) => {
                return view
                    .tasks_from(from)
                    .filter(|t| self.takes(view, t))
                    .take(pb::MAX_PAGE as usize + 1)
                    .collect();
            }
        };
        found.sort_unstable_by_key(|t| t.id);
        found
    }
}

#[tonic::async_trait]
impl TaskService for TaskApi {
    type ReadLogsStream = Answers<pb::ReadLogsResponse>;
    type ExecStream = Answers<pb::ExecResponse>;

    async fn stop_task(
        &self,
        _request: Request<pb::StopTaskRequest>,
    ) -> Result<Response<pb::StopTaskResponse>, Status> {
        Err(super::unsupported("StopTask"))
    }

    async fn restart_task(
        &self,
        _request: Request<pb::RestartTaskRequest>,
    ) -> Result<Response<pb::RestartTaskResponse>, Status> {
        Err(super::unsupported("RestartTask"))
    }

    async fn signal_task(
        &self,
        request: Request<pb::SignalTaskRequest>,
    ) -> Result<Response<pb::SignalTaskResponse>, Status> {
        let local = |body| self.relays.signal(body);
        let forward = async |channel, request| TaskServiceClient::new(channel).signal_task(request).await;
        self.router.write(request, local, forward).await
    }

    async fn read_logs(
        &self,
        request: Request<pb::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        self.relays.read_logs(request).await
    }

    async fn exec(
        &self,
        request: Request<Streaming<pb::ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        self.relays.exec(request).await
    }

    async fn get_task(
        &self,
        request: Request<pb::GetTaskRequest>,
    ) -> Result<Response<pb::GetTaskResponse>, Status> {
        let request = request.into_inner();
        let id: TaskId = request.id.parse().map_err(invalid)?;
        let view = self.core.view(request.read.as_ref()).await?;
        let Some(task) = view.task(id) else {
            let error = ApiError::new(Reason::TaskNotFound, format!("there is no task {id}"));
            return Err(error.with("task", id).into());
        };
        let task = Some(pb::task(&view, task));
        Ok(Response::new(pb::GetTaskResponse { meta: Some(self.core.meta(&view)), task }))
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let request = request.into_inner();
        let view = self.core.view(request.read.as_ref()).await?;
        let filter = Filter::read(&request, &view)?;
        let ended = if request.include_ended { "ended" } else { "" };
        let by = ["tasks", &request.namespace, &request.job, &request.node, ended];
        let page = Page::of(&by, request.page_size, &request.page_token)?;
        let from = match &page.after {
            Some(key) => TaskId(key.parse::<TaskId>().map_err(invalid)?.0.saturating_add(1)),
            None => TaskId(0),
        };
        let rest = filter.tasks(&view, from).into_iter();
        let (tasks, next_page_token) = cut(rest, &page, |t| t.id.to_string());
        let tasks = tasks.into_iter().map(|t| pb::task(&view, t)).collect();
        Ok(Response::new(pb::ListTasksResponse { meta: Some(self.core.meta(&view)), tasks, next_page_token }))
    }
}
