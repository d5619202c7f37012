//! The public API's messages, and what they say of the state.

mod diff;
mod spec;
mod token;
mod view;

pub use crate::generated::api::*;
pub use diff::{merge_spec, spec_diff};
pub use spec::{accept_spec, namespace};
pub use token::{After, MAX_PAGE, Page, etag, fingerprint, parse_etag, parse_session_token, session_token};
pub use view::{
    failure, is_converged, job, job_status, manager, node, node_status, raft_id, task, task_state,
};
