//! What all answers have in common.

use quorate_wire::api;
use quorate_wire::common::ResponseMeta;
use tonic::Streaming;

/// An answer that says who gave it.
pub(crate) trait Answer {
    /// Who answered.
    fn meta(&self) -> Option<&ResponseMeta>;

    /// Managers that the answer lists.
    fn managers(&self) -> &[api::Manager] {
        &[]
    }
}

macro_rules! answers {
    ($($name:ident),+) => {
        $(impl Answer for api::$name {
            fn meta(&self) -> Option<&ResponseMeta> {
                self.meta.as_ref()
            }
        })+
    };
}

answers!(
    ApplyJobResponse,
    GetJobResponse,
    ListJobsResponse,
    ScaleJobResponse,
    DeleteJobResponse,
    PlanJobResponse,
    GetTaskResponse,
    ListTasksResponse,
    StopTaskResponse,
    RestartTaskResponse,
    SignalTaskResponse,
    GetNodeResponse,
    ListNodesResponse,
    ListUsageResponse
);

/// A stream that was opened: what comes says who gives it.
impl<T> Answer for Streaming<T> {
    fn meta(&self) -> Option<&ResponseMeta> {
        None
    }
}

impl Answer for api::GetClusterStatusResponse {
    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn managers(&self) -> &[api::Manager] {
        &self.managers
    }
}

impl Answer for api::ListManagersResponse {
    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn managers(&self) -> &[api::Manager] {
        &self.managers
    }
}
