//! The public API's messages, and what they say of the state.

mod spec;
mod token;
mod view;

pub use crate::generated::api::*;
pub use spec::{accept_spec, namespace};
pub use token::{MAX_PAGE, Page, etag, parse_etag};
pub use view::{is_converged, job, manager, node, raft_id, task, task_state};
