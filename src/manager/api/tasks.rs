//! `TaskService`.

use std::sync::Arc;

use quorate_model::{Invalid, JobId, NodeId, Selector, Slot, Task, TaskId, TaskState};
use quorate_state::{Command, Receipt, State};
use quorate_wire::{
    api::{
        self as pb, Page, namespace, task_service_client::TaskServiceClient, task_service_server::TaskService,
    },
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    api::{
        MAX_ANSWER, find_task, invalid, mark_of, name, output::Answers, pages::choices, principal, rehearse,
        relays::Relays, task_not_found,
    },
    core::Core,
    routing::Router,
};

/// Bytes of such a command in the log, about.
const SMALL: usize = 64;

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

/// A write on one task.
#[derive(Clone, Copy)]
enum Act {
    Stop,
    Restart,
}

impl Act {
    fn command(self, task: TaskId) -> Command {
        match self {
            Self::Stop => Command::SetDesired { desired: TaskState::Shutdown, tasks: vec![task] },
            Self::Restart => Command::RestartTasks { tasks: vec![task] },
        }
    }

    /// Whether it was done to the task.
    fn is_done(self, task: &Task) -> bool {
        match self {
            Self::Stop => task.desired >= TaskState::Shutdown,
            Self::Restart => task.restarts_asked > 0,
        }
    }
}

/// What a caller sends for such a write.
struct Order {
    act: Act,
    id: String,
    mark: Option<quorate_state::Request>,
    validate_only: bool,
}

impl TaskApi {
    /// Does the write, or only checks it. Gives the task, if it is still there, and the write's revision; 0 = none.
    async fn act(&self, order: Order) -> Result<(Option<pb::Task>, u64), ApiError> {
        let view = self.core.view(None).await?;
        if let Some(Ok(record)) = order.mark.as_ref().and_then(|mark| view.replay(&principal(), mark)) {
            // The slot may have another task by now: the answer speaks of the first one.
            check(&view, record.answer.as_ref().map_err(Clone::clone)?)?;
            let done = find_task(&view, &order.id).ok().filter(|task| order.act.is_done(task));
            return Ok((done.map(|task| pb::task(&view, &task)), record.revision.0));
        }
        let task = find_task(&view, &order.id)?.id;
        let command = order.act.command(task);
        if order.validate_only {
            let (copy, receipt) = rehearse(&self.core, command)?;
            check(&copy, &receipt)?;
            return Ok((copy.task(task).map(|task| pb::task(&copy, task)), 0));
        }
        let written = self.core.proposer.submit(principal(), order.mark, command, SMALL).await;
        let committed = written.map_err(|e| self.core.write_failed(e))?;
        let view = self.core.node.view();
        check(&view, &committed.receipt)?;
        Ok((view.task(task).map(|task| pb::task(&view, task)), committed.revision.0))
    }

    async fn stop(&self, request: pb::StopTaskRequest) -> Result<pb::StopTaskResponse, ApiError> {
        let sent = pb::StopTaskRequest { request_id: String::new(), ..request.clone() };
        let mark = mark_of(&request.request_id, || pb::fingerprint("StopTask", &sent))?;
        let order = Order { act: Act::Stop, id: request.id, mark, validate_only: request.validate_only };
        let (task, revision) = self.act(order).await?;
        Ok(pb::StopTaskResponse { meta: Some(self.core.meta(&self.core.node.view())), task, revision })
    }

    async fn restart(&self, request: pb::RestartTaskRequest) -> Result<pb::RestartTaskResponse, ApiError> {
        let sent = pb::RestartTaskRequest { request_id: String::new(), ..request.clone() };
        let mark = mark_of(&request.request_id, || pb::fingerprint("RestartTask", &sent))?;
        let order = Order { act: Act::Restart, id: request.id, mark, validate_only: request.validate_only };
        let (task, revision) = self.act(order).await?;
        Ok(pb::RestartTaskResponse { meta: Some(self.core.meta(&self.core.node.view())), task, revision })
    }

    async fn list(
        &self,
        request: pb::ListTasksRequest,
        page: &Page,
    ) -> Result<pb::ListTasksResponse, ApiError> {
        let pages = self.router.pages();
        let view = pages.view(page, request.read.as_ref()).await?;
        let filter = Filter::read(&request, &view)?;
        let after = page.key(|key| {
            let (slot, id) = key.split_once('.')?;
            Some((Slot(slot.parse().ok()?), TaskId(id.parse().ok()?)))
        })?;
        let (tasks, next_page_token) = pages.cut(&view, filter.tasks(&view, after), page, |task| {
            // Within a job the slot comes first; elsewhere the number alone counts.
            let slot = if filter.job.is_some() { task.slot.0 } else { 0 };
            format!("{slot}.{}", task.id.0)
        });
        let tasks = tasks.into_iter().map(|t| pb::task(&view, t)).collect();
        Ok(pb::ListTasksResponse { meta: Some(self.core.meta(&view)), tasks, next_page_token })
    }
}

/// Whether the task that the write names was changed.
fn check(view: &State, receipt: &Receipt) -> Result<(), ApiError> {
    let Receipt::Changed { refused, .. } = receipt else { return Ok(()) };
    let Some(id) = refused.first() else { return Ok(()) };
    let Some(task) = view.task(*id) else { return Err(task_not_found(id)) };
    let why = match (task.node, task.status.state) {
        (_, state) if state.is_terminal() => format!("it is {state}"),
        (None, _) => "it waits for a node".to_owned(),
        _ => "it was asked to stop already".to_owned(),
    };
    Err(ApiError::new(Reason::TaskNotRunning, format!("task {id} cannot be changed: {why}")).with("task", id))
}

/// What a list is cut down to.
struct Filter {
    job: Option<JobId>,
    namespace: Option<quorate_model::Name>,
    node: Option<NodeId>,
    ended: bool,
    selector: Selector,
    states: Vec<pb::TaskState>,
}

impl Filter {
    fn read(request: &pb::ListTasksRequest, view: &State) -> Result<Self, ApiError> {
        let selector = Selector::parse("selector", &request.selector).map_err(invalid)?;
        let states = choices("states", &request.states, pb::TaskState::Unspecified)?;
        let ended = |state: &pb::TaskState| *state > pb::TaskState::Running;
        if let Some(at) = states.iter().position(ended).filter(|_| !request.include_ended) {
            let why = "tasks that ended are left out unless include_ended is set";
            return Err(invalid(Invalid::new(format!("states[{at}]"), why)));
        }
        let ns = if request.namespace.is_empty() { None } else { Some(namespace(&request.namespace)?) };
        let job = if request.job.is_empty() {
            None
        } else {
            let ns = namespace(&request.namespace)?;
            let job = name("job", &request.job)?;
            Some(view.job_named(&ns, &job).ok_or_else(|| super::jobs::not_found(&ns, &job))?.id)
        };
        let node = if request.node.is_empty() {
            None
        } else {
            let node = name("node", &request.node)?;
            Some(view.node_named(&node).ok_or_else(|| super::nodes::not_found(&node))?.id)
        };
        Ok(Self { job, namespace: ns, node, ended: request.include_ended, selector, states })
    }

    fn takes(&self, view: &State, task: &Task) -> bool {
        self.node.is_none_or(|node| task.node == Some(node))
            && (self.ended || !task.status.state.is_terminal())
            && (self.states.is_empty() || self.states.contains(&pb::task_state(task.status.state)))
            && self
                .namespace
                .as_ref()
                .is_none_or(|ns| view.job(task.job).is_some_and(|job| job.namespace == *ns))
            && (self.selector.is_empty() || self.selects(view, task))
    }

    fn selects(&self, view: &State, task: &Task) -> bool {
        let spec = view.job(task.job).and_then(|job| job.spec());
        spec.is_some_and(|spec| self.selector.matches(&spec.labels))
    }

    /// The tasks after a place, through the index that fits best: a page costs what it looks at, not the whole list.
    fn tasks<'a>(
        &'a self,
        view: &'a State,
        after: Option<(Slot, TaskId)>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Task>> + Send + 'a> {
        let (slot, id) =
            after.map_or((Slot(0), TaskId(0)), |(slot, id)| (slot, TaskId(id.0.saturating_add(1))));
        let takes = |task: &&Arc<Task>| self.takes(view, task);
        match (self.job, self.node) {
            (Some(job), _) => Box::new(view.tasks_of_from(job, (slot, id)).filter(takes)),
            (None, Some(node)) => Box::new(view.tasks_on_from(node, id).filter(takes)),
            (None, None) => Box::new(view.tasks_from(id).filter(takes)),
        }
    }
}

#[tonic::async_trait]
impl TaskService for TaskApi {
    type ReadLogsStream = Answers<pb::ReadLogsResponse>;
    type ExecStream = Answers<pb::ExecResponse>;

    async fn stop_task(
        &self,
        request: Request<pb::StopTaskRequest>,
    ) -> Result<Response<pb::StopTaskResponse>, Status> {
        let local = |body| self.stop(body);
        let forward = async |channel, request| TaskServiceClient::new(channel).stop_task(request).await;
        self.router.write(request, local, forward).await
    }

    async fn restart_task(
        &self,
        request: Request<pb::RestartTaskRequest>,
    ) -> Result<Response<pb::RestartTaskResponse>, Status> {
        let local = |body| self.restart(body);
        let forward = async |channel, request| TaskServiceClient::new(channel).restart_task(request).await;
        self.router.write(request, local, forward).await
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
        let view = self.core.view(request.read.as_ref()).await?;
        let task = Some(pb::task(&view, &*find_task(&view, &request.id)?));
        Ok(Response::new(pb::GetTaskResponse { meta: Some(self.core.meta(&view)), task }))
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let asked = request.get_ref();
        let ended = if asked.include_ended { "ended" } else { "" };
        let states = format!("{:?}", asked.states);
        let by = ["tasks", &asked.namespace, &asked.job, &asked.node, ended, &asked.selector, &states];
        let page = Page::of(&by, asked.page_size, &asked.page_token)?;
        if let Some(keeper) = self.router.keeper(&request, &page)? {
            let forward = async |channel, request| {
                TaskServiceClient::new(channel)
                    .max_decoding_message_size(MAX_ANSWER)
                    .list_tasks(request)
                    .await
            };
            return self.router.ask(&keeper, request.into_inner(), forward).await;
        }
        Ok(Response::new(self.list(request.into_inner(), &page).await?))
    }
}
