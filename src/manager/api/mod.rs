//! The services of `quorate.api.v1`.

mod cluster;
mod jobs;
mod nodes;
mod output;
pub(crate) mod pages;
mod plan;
mod relays;
mod task_ref;
mod tasks;
mod watch;

pub use cluster::ClusterApi;
pub use jobs::JobApi;
pub use nodes::NodeApi;
pub(crate) use relays::Relays;
use task_ref::{find_task, task_not_found};
pub use tasks::TaskApi;
pub(crate) use watch::WatchApi;

use quorate_base::id::RequestId;
use quorate_model::{Invalid, Name};
use quorate_state::{Actor, Command, Envelope, Receipt, Request, State};
use quorate_wire::status::{ApiError, Reason};

use crate::core::Core;

/// Most bytes of an answer that is passed on: a full page of jobs with long specifications.
const MAX_ANSWER: usize = 16 << 20;

/// Whose writes they are until callers authenticate.
fn principal() -> Actor {
    Actor::User("anonymous".into())
}

fn name(path: &str, text: &str) -> Result<Name, ApiError> {
    Name::parse(path, text).map_err(invalid)
}

fn invalid(one: Invalid) -> ApiError {
    ApiError::invalid(Reason::ArgumentInvalid, "the request", one.into())
}

/// The caller's mark on a write, when it gave one.
fn mark(request_id: &str, command: &Command) -> Result<Option<Request>, ApiError> {
    mark_of(request_id, || quorate_wire::store::fingerprint(command))
}

/// The same for a call whose command is not what the caller sent.
fn mark_of(request_id: &str, fingerprint: impl FnOnce() -> u64) -> Result<Option<Request>, ApiError> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let id = RequestId::new(request_id).map_err(|e| invalid(Invalid::new("request_id", e.to_string())))?;
    Ok(Some(Request { id, fingerprint: fingerprint() }))
}

/// What a command would do: it is applied to a copy of the state, nothing is written and no request id is used up.
///
/// # Errors
/// The state's refusal.
fn rehearse(core: &Core, command: Command) -> Result<(State, Receipt), ApiError> {
    let mut copy = core.node.view();
    let at = copy.applied();
    let envelope = Envelope {
        proposed_at: core.clock.now(),
        fence: None,
        actor: principal(),
        request: None,
        trace: None,
        command,
    };
    let receipt = quorate_state::apply(&mut copy, at, &envelope).outcome?;
    Ok((copy, receipt))
}
