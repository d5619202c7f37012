//! Whole lists, page by page.

use quorate_wire::api;

use super::context::Context;
use crate::failure::Failure;

/// Objects of one page: the most that a manager gives.
const PAGE: u32 = 1000;

macro_rules! all {
    ($(#[$doc:meta])* $name:ident, $call:ident, $request:ident -> $response:ident.$field:ident) => {
        $(#[$doc])*
        pub(super) async fn $name(
            context: &Context,
            mut request: api::$request,
        ) -> Result<api::$response, Failure> {
            request.page_size = PAGE;
            let mut whole = context.client.$call(request.clone()).await?;
            while !whole.next_page_token.is_empty() {
                request.page_token = std::mem::take(&mut whole.next_page_token);
                let next = context.client.$call(request.clone()).await?;
                whole.$field.extend(next.$field);
                (whole.meta, whole.next_page_token) = (next.meta, next.next_page_token);
            }
            Ok(whole)
        }
    };
}

all!(
    /// All jobs that the request asks for.
    jobs, list_jobs, ListJobsRequest -> ListJobsResponse.jobs
);
all!(
    /// All tasks that the request asks for.
    tasks, list_tasks, ListTasksRequest -> ListTasksResponse.tasks
);
all!(
    /// All nodes.
    nodes, list_nodes, ListNodesRequest -> ListNodesResponse.nodes
);
