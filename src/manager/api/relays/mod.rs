//! Calls that an agent answers: logs, commands in containers, signals.
//!
//! Only the leader has sessions with agents, so another manager passes the call on to it, once. What comes back is a
//! stream of its own (see `dispatcher::relay`), bounded at every step: who reads too slowly is cut off.

mod exec;
mod logs;
mod merge;
mod pin;
mod select;

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use quorate_base::tasks::TaskGroup;
use quorate_model::{Name, NodeId, Task, TaskId, container::STOP_SIGNALS};
use quorate_state::State;
use quorate_wire::{
    agent::{SignalOrder, relay_order::Order, relay_request::Body},
    api::{self as pb},
    status::{ApiError, Reason},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Status, Streaming};

use crate::{
    api::{find_task, invalid, output::Answers},
    core::{Core, Leading},
    dispatcher::Dispatcher,
    routing::Router,
};

/// Logs and commands that may be open at once on one manager.
const MOST_OPEN: usize = 512;
/// How long an agent may take to answer a short order.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// How long a caller may read nothing while something waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves the calls that agents answer.
#[derive(Clone)]
pub(crate) struct Relays {
    core: Core,
    router: Router,
    dispatcher: Dispatcher,
    group: TaskGroup,
    open: Arc<Semaphore>,
}

/// A task with the node that it runs on.
struct Placed {
    task: Arc<Task>,
    node: NodeId,
    name: Name,
}

impl Relays {
    /// `group` ends with the manager.
    pub(crate) fn new(core: Core, router: Router, dispatcher: Dispatcher, group: TaskGroup) -> Self {
        Self { core, router, dispatcher, group, open: Arc::new(Semaphore::new(MOST_OPEN)) }
    }

    /// What the leader's duties share; an error when this manager lost its leadership just now.
    fn leading(&self) -> Result<Leading, ApiError> {
        self.dispatcher.leading().ok_or_else(|| {
            ApiError::new(Reason::NotLeader, "this manager has not taken up its duties yet")
                .with("manager", &self.core.name)
                .after(crate::core::RETRY_AFTER)
        })
    }

    /// Room for one more stream, until it is dropped.
    fn room(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.open.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{MOST_OPEN} logs and commands are open on this manager: close some");
            ApiError::new(Reason::Overloaded, text).after(Duration::from_secs(1))
        })
    }

    /// Sends a signal to a task's main process, on the leader.
    pub(super) async fn signal(
        &self,
        request: pb::SignalTaskRequest,
    ) -> Result<pb::SignalTaskResponse, ApiError> {
        let signal = signal_name("signal", &request.signal)?;
        if request.request_id.is_empty() {
            let why = "required: without it a retry would send the signal twice";
            return Err(invalid(quorate_model::Invalid::new("request_id", why)));
        }
        self.leading()?;
        let view = self.core.view(None).await?;
        let placed = running(&view, &request.id)?;
        let order = SignalOrder { task_id: placed.task.id.0, signal, request_id: request.request_id };
        let asked = async {
            let order = Order::Signal(order);
            self.dispatcher.open_relay(placed.node, &placed.name, order).await?.hear().await
        };
        match tokio::time::timeout(ANSWER_DEADLINE * 2, asked).await {
            Ok(Ok(Some(Body::Done(_)))) => Ok(pb::SignalTaskResponse { meta: Some(self.core.meta(&view)) }),
            Ok(Err(error)) => Err(error.with("task", placed.task.id)),
            Ok(Ok(_)) | Err(_) => Err(ApiError::new(
                Reason::CommitTimeout,
                format!(
                    "the agent of node {} did not confirm the signal: it may or may not have been sent; try again with \
                     the same request id",
                    placed.name
                ),
            )),
        }
    }
}

/// The name of a signal that may be sent.
pub(super) fn signal_name(path: &str, text: &str) -> Result<String, ApiError> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    if STOP_SIGNALS.contains(&name.as_str()) {
        return Ok(name);
    }
    let why = format!("{text:?} is unknown: one of {}", STOP_SIGNALS.join(", "));
    Err(invalid(quorate_model::Invalid::new(path, why)))
}

/// The task that `text` names, which must run on a node.
fn running(view: &State, text: &str) -> Result<Placed, ApiError> {
    let task = find_task(view, text)?;
    let state = task.status.state;
    if state.is_terminal() {
        let text = format!("task {} has ended: it is {state}", task.id);
        return Err(not_running(task.id, text));
    }
    placed(view, task)
}

/// The task with its node.
fn placed(view: &State, task: Arc<Task>) -> Result<Placed, ApiError> {
    let node = task.node.and_then(|id| view.node(id));
    let Some(node) = node else {
        let text = format!("task {} has no node yet: it is {}", task.id, task.status.state);
        return Err(not_running(task.id, text));
    };
    Ok(Placed { node: node.id, name: node.name.clone(), task })
}

fn not_running(task: TaskId, text: String) -> ApiError {
    ApiError::new(Reason::TaskNotRunning, text).with("task", task)
}

/// The leader's stream as this manager passes it on: when the leader is lost, the caller learns that it may go on
/// elsewhere.
fn passed_on<T: Send + 'static>(answers: Streaming<T>) -> Answers<T> {
    Box::pin(answers.map(|answer| answer.map_err(lost)))
}

/// An error of the leader, or of the way to it.
fn lost(status: Status) -> Status {
    if ApiError::is_ours(&status) {
        return status;
    }
    let text = format!("the connection to the leader broke: {}", status.message());
    ApiError::new(Reason::NoLeader, text).after(crate::core::RETRY_AFTER).into()
}
