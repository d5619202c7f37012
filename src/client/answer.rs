//! What all answers have in common.

use quorate_wire::api;
use quorate_wire::common::ResponseMeta;

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
    GetTaskResponse,
    ListTasksResponse,
    GetNodeResponse,
    ListNodesResponse
);

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
