//! One method per call of the API.

use quorate_wire::api;
use quorate_wire::api::cluster_service_client::ClusterServiceClient;
use quorate_wire::api::job_service_client::JobServiceClient;
use quorate_wire::api::node_service_client::NodeServiceClient;
use quorate_wire::api::task_service_client::TaskServiceClient;

use crate::client::Kind;
use crate::{Client, ClientError};

/// Most bytes of an answer: a full page of jobs with long specifications.
const MAX_ANSWER: usize = 16 << 20;

macro_rules! calls {
    ($($(#[$doc:meta])* $kind:ident $name:ident($request:ident) -> $response:ident, $service:ident;)+) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`ClientError`], after all retries that make sense within the deadline.
                pub async fn $name(&self, request: api::$request) -> Result<api::$response, ClientError> {
                    let request = calls!(@prepare $kind self request);
                    self.call(stringify!($name), Kind::$kind, request, |channel, request| async move {
                        $service::new(channel).max_decoding_message_size(MAX_ANSWER).$name(request).await
                    })
                    .await
                }
            )+
        }

        $(calls!(@request $kind $request);)+
    };
    (@prepare Write $client:ident $request:ident) => {{
        let mut request = $request;
        request.request_id = $client.request_id(&request.request_id)?;
        request
    }};
    (@prepare Read $client:ident $request:ident) => {{
        let mut request = $request;
        $client.read_own_writes(request.read.as_mut());
        request
    }};
    (@prepare Ask $client:ident $request:ident) => { $request };
    (@request Write $request:ident) => {
        impl Question for api::$request {
            fn request_id(&self) -> Option<&str> {
                Some(&self.request_id)
            }
        }
    };
    (@request Read $request:ident) => {
        impl Question for api::$request {}
    };
    (@request Ask $request:ident) => {
        impl Question for api::$request {}
    };
}

/// What all requests have in common.
pub(crate) trait Question: Clone {
    /// The request id of a write.
    fn request_id(&self) -> Option<&str> {
        None
    }
}

calls! {
    /// Creates a job or replaces its specification. An empty `request_id` is filled in.
    Write apply_job(ApplyJobRequest) -> ApplyJobResponse, JobServiceClient;
    /// Returns one job.
    Read get_job(GetJobRequest) -> GetJobResponse, JobServiceClient;
    /// Returns a page of jobs.
    Read list_jobs(ListJobsRequest) -> ListJobsResponse, JobServiceClient;
    /// Sets the replicas of a service. An empty `request_id` is filled in.
    Write scale_job(ScaleJobRequest) -> ScaleJobResponse, JobServiceClient;
    /// Stops a job, or with `purge` forgets it. An empty `request_id` is filled in.
    Write delete_job(DeleteJobRequest) -> DeleteJobResponse, JobServiceClient;
    /// Says what applying a specification would do.
    Read plan_job(PlanJobRequest) -> PlanJobResponse, JobServiceClient;
    /// Returns one task.
    Read get_task(GetTaskRequest) -> GetTaskResponse, TaskServiceClient;
    /// Returns a page of tasks.
    Read list_tasks(ListTasksRequest) -> ListTasksResponse, TaskServiceClient;
    /// Stops a task; its job gets another one. An empty `request_id` is filled in.
    Write stop_task(StopTaskRequest) -> StopTaskResponse, TaskServiceClient;
    /// Restarts a task in place. An empty `request_id` is filled in.
    Write restart_task(RestartTaskRequest) -> RestartTaskResponse, TaskServiceClient;
    /// Sends a signal to a task's main process. An empty `request_id` is filled in.
    Write signal_task(SignalTaskRequest) -> SignalTaskResponse, TaskServiceClient;
    /// Returns one node.
    Read get_node(GetNodeRequest) -> GetNodeResponse, NodeServiceClient;
    /// Returns a page of nodes.
    Read list_nodes(ListNodesRequest) -> ListNodesResponse, NodeServiceClient;
    /// Returns what nodes and their tasks use at the moment.
    Ask list_usage(ListUsageRequest) -> ListUsageResponse, NodeServiceClient;
    /// Returns what one manager knows of the cluster. [`Client::cluster_status_each`] asks all of them.
    Ask get_cluster_status(GetClusterStatusRequest) -> GetClusterStatusResponse, ClusterServiceClient;
    /// Returns the managers.
    Read list_managers(ListManagersRequest) -> ListManagersResponse, ClusterServiceClient;
}
