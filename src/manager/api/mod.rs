//! The services of `quorate.api.v1`.

mod cluster;
mod jobs;
mod nodes;
mod output;
mod relays;
mod tasks;
mod watch;

pub use cluster::ClusterApi;
pub use jobs::JobApi;
pub use nodes::NodeApi;
pub(crate) use relays::Relays;
pub use tasks::TaskApi;
pub(crate) use watch::WatchApi;

use std::sync::Arc;

use quorate_base::id::RequestId;
use quorate_model::{Invalid, Name, Task, TaskId};
use quorate_state::{Actor, Command, Request, State};
use quorate_wire::{
    api::Page,
    status::{ApiError, Reason},
};

/// Whose writes they are until callers authenticate.
fn principal() -> Actor {
    Actor::User("anonymous".into())
}

/// The answer of a call that is not served yet.
fn unsupported(call: &str) -> tonic::Status {
    ApiError::new(Reason::Unsupported, format!("{call} is not served yet")).into()
}

/// The task that a caller names.
///
/// # Errors
/// `ARGUMENT_INVALID` when the text names none, `TASK_NOT_FOUND` when there is none.
fn find_task(view: &State, text: &str) -> Result<Arc<Task>, ApiError> {
    let id: TaskId = text.parse().map_err(invalid)?;
    let not_found = || ApiError::new(Reason::TaskNotFound, format!("there is no task {id}")).with("task", id);
    view.task(id).cloned().ok_or_else(not_found)
}

fn name(path: &str, text: &str) -> Result<Name, ApiError> {
    Name::parse(path, text).map_err(invalid)
}

fn invalid(one: Invalid) -> ApiError {
    ApiError::invalid(Reason::ArgumentInvalid, "the request", one.into())
}

/// One page of `items`, with the token for the next; empty at the end.
fn cut<T>(items: impl Iterator<Item = T>, page: &Page, key: impl Fn(&T) -> String) -> (Vec<T>, String) {
    let mut taken: Vec<T> = items.take(page.size + 1).collect();
    if taken.len() <= page.size {
        return (taken, String::new());
    }
    taken.truncate(page.size);
    let token = taken.last().map(|last| page.token(&key(last))).unwrap_or_default();
    (taken, token)
}

/// The caller's mark on a write, when it gave one.
fn mark(request_id: &str, command: &Command) -> Result<Option<Request>, ApiError> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let id = RequestId::new(request_id).map_err(|e| invalid(Invalid::new("request_id", e.to_string())))?;
    Ok(Some(Request { id, fingerprint: quorate_wire::store::fingerprint(command) }))
}
