//! One manager's API as a plain client sees it: one connection, no retries, every failure judged.
//!
//! The drills need to know which manager said what, so this sits below the leader-aware client that users have.

use std::time::Duration;

use anyhow::{Context as _, Result};
use quorate_base::RequestId;
use quorate_pki::{Profile, Security};
use quorate_wire::api::{
    ApplyJobRequest, DeleteJobRequest, GetClusterStatusRequest, GetClusterStatusResponse, GetJobRequest, Job,
    JobSpec, ListJobsRequest, ListNodesRequest, ListTasksRequest, ManagerState, Node, Task, WatchRequest,
    WatchResponse, cluster_service_client::ClusterServiceClient, job_service_client::JobServiceClient,
    node_service_client::NodeServiceClient, task_service_client::TaskServiceClient,
    watch_service_client::WatchServiceClient,
};
use quorate_wire::common::{Consistency, ReadOptions, ResponseMeta};
use quorate_wire::status::{ApiError, Reason};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::history::Outcome;

/// Deadline of calls that only ask.
const ASK: Duration = Duration::from_secs(5);
/// Most items of one page.
const PAGE: u32 = 1_000;
/// Largest page that is taken.
const PAGE_BYTES: usize = 16 << 20;

/// A connection to one manager.
#[derive(Clone, Debug)]
pub struct Api {
    /// The manager's name.
    pub name: String,
    /// Where its API listens.
    pub address: String,
    channel: Channel,
}

/// An acknowledged write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Revision of the write.
    pub revision: u64,
    /// The manager that answered.
    pub manager: String,
}

/// A write that was not acknowledged.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Whether it may have taken effect all the same. Never [`Outcome::Ok`].
    pub outcome: Outcome,
    /// The error: the reason first.
    pub error: String,
}

impl Refused {
    fn of(status: &Status) -> Self {
        if !ApiError::is_ours(status) {
            // The transport made it: nobody knows what happened to the request.
            let error = format!("transport: {:?}: {}", status.code(), status.message());
            return Self { outcome: Outcome::Unknown, error };
        }
        Self::by(&ApiError::from_status(status))
    }

    /// A manager's own refusal proves that nothing was done, but for the reasons that say otherwise.
    pub fn by(error: &ApiError) -> Self {
        let outcome = match error.reason {
            Reason::CommitTimeout | Reason::ReadTimeout | Reason::Internal => Outcome::Unknown,
            _ => Outcome::Fail,
        };
        Self { outcome, error: format!("{}: {}", error.reason, error.message) }
    }
}

impl Api {
    /// A connection that is opened at the first call, and again after it broke.
    ///
    /// # Errors
    /// When the address is none.
    pub fn new(name: &str, address: &str) -> Result<Self> {
        let endpoint = Security::PlaintextLoopback.endpoint(Profile::Api, address)?;
        Ok(Self { name: name.to_owned(), address: address.to_owned(), channel: endpoint.connect_lazy() })
    }

    /// What the manager knows of itself and the cluster; needs no leader.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<Seen> {
        let request = with_deadline(GetClusterStatusRequest {}, ASK);
        let answer = ClusterServiceClient::new(self.channel.clone()).get_cluster_status(request).await;
        Ok(Seen::from(self.understood("its status", answer)?))
    }

    /// Creates a job that must not exist.
    ///
    /// # Errors
    /// When no acknowledgement came within `deadline`.
    pub async fn create(&self, spec: JobSpec, id: &RequestId, deadline: Duration) -> Result<Ack, Refused> {
        let request = ApplyJobRequest {
            spec: Some(spec),
            etag: "0".to_owned(),
            request_id: id.to_string(),
            ..ApplyJobRequest::default()
        };
        let call = async {
            let mut client = JobServiceClient::new(self.channel.clone());
            let answer = client.apply_job(with_deadline(request, deadline)).await?.into_inner();
            Ok(self.ack(answer.meta, answer.revision))
        };
        bounded(deadline, call).await
    }

    /// Stops a job and has it forgotten.
    ///
    /// # Errors
    /// When no acknowledgement came within `deadline`.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        id: &RequestId,
        deadline: Duration,
    ) -> Result<Ack, Refused> {
        let request = DeleteJobRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            purge: true,
            request_id: id.to_string(),
            ..DeleteJobRequest::default()
        };
        let call = async {
            let mut client = JobServiceClient::new(self.channel.clone());
            let answer = client.delete_job(with_deadline(request, deadline)).await?.into_inner();
            Ok(self.ack(answer.meta, answer.revision))
        };
        bounded(deadline, call).await
    }

    /// One job, as fresh as the cluster's last acknowledged write.
    ///
    /// # Errors
    /// When the manager does not answer or there is no such job.
    pub async fn job(&self, namespace: &str, name: &str) -> Result<Job> {
        let request = GetJobRequest { namespace: namespace.to_owned(), name: name.to_owned(), read: fresh() };
        let answer = JobServiceClient::new(self.channel.clone()).get_job(with_deadline(request, ASK)).await;
        self.understood("the job", answer)?
            .job
            .with_context(|| format!("{} answered without the job", self.name))
    }

    /// All jobs of a namespace (of all, when it is empty).
    ///
    /// # Errors
    /// When the manager does not answer.
    pub async fn jobs(&self, namespace: &str) -> Result<Vec<Job>> {
        let mut client = JobServiceClient::new(self.channel.clone());
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListJobsRequest {
                namespace: namespace.to_owned(),
                page_size: PAGE,
                page_token,
                read: fresh(),
                ..ListJobsRequest::default()
            };
            let answer = self.understood("its jobs", client.list_jobs(with_deadline(request, ASK)).await)?;
            all.extend(answer.jobs);
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// The tasks of a namespace (of all, when it is empty), without those that ended.
    ///
    /// # Errors
    /// When the manager does not answer.
    pub async fn tasks(&self, namespace: &str) -> Result<Vec<Task>> {
        self.tasks_that(namespace, false).await
    }

    /// The same with those that ended, as long as they are kept.
    ///
    /// # Errors
    /// When the manager does not answer.
    pub async fn all_tasks(&self, namespace: &str) -> Result<Vec<Task>> {
        self.tasks_that(namespace, true).await
    }

    async fn tasks_that(&self, namespace: &str, include_ended: bool) -> Result<Vec<Task>> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = self.page_of_tasks(namespace, include_ended, token).await?;
            all.extend(page);
            token = next;
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// One page of them, and the token of the next one: empty on the last.
    ///
    /// # Errors
    /// When the manager does not answer.
    pub async fn page_of_tasks(
        &self,
        namespace: &str,
        include_ended: bool,
        page_token: String,
    ) -> Result<(Vec<Task>, String)> {
        let request = ListTasksRequest {
            namespace: namespace.to_owned(),
            include_ended,
            page_size: PAGE,
            page_token,
            read: fresh(),
            ..ListTasksRequest::default()
        };
        let mut client = TaskServiceClient::new(self.channel.clone()).max_decoding_message_size(PAGE_BYTES);
        let answer = client.list_tasks(with_deadline(request, ASK)).await;
        let page = self.understood("its tasks", answer)?;
        Ok((page.tasks, page.next_page_token))
    }

    /// Changes as they happen, until the manager ends or says why it does not tell them.
    ///
    /// # Errors
    /// When it is not reached in time, or refuses.
    pub async fn watch(&self, request: WatchRequest) -> Result<Streaming<WatchResponse>, Status> {
        let mut client = WatchServiceClient::new(self.channel.clone()).max_decoding_message_size(PAGE_BYTES);
        let opened = tokio::time::timeout(ASK, client.watch(request)).await;
        Ok(opened.map_err(|_| Status::deadline_exceeded("no answer in time"))??.into_inner())
    }

    /// The nodes.
    ///
    /// # Errors
    /// When the manager does not answer.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        let request = ListNodesRequest { page_size: PAGE, read: fresh(), ..ListNodesRequest::default() };
        let answer =
            NodeServiceClient::new(self.channel.clone()).list_nodes(with_deadline(request, ASK)).await;
        Ok(self.understood("its nodes", answer)?.nodes)
    }

    fn ack(&self, meta: Option<ResponseMeta>, revision: u64) -> Ack {
        let manager = meta.map_or_else(|| self.name.clone(), |meta| meta.manager);
        Ack { revision, manager }
    }

    fn understood<T>(&self, what: &str, answer: Result<tonic::Response<T>, Status>) -> Result<T> {
        let answer = answer.map_err(|status| anyhow::anyhow!("{}", Refused::of(&status).error));
        Ok(answer
            .with_context(|| format!("cannot ask {} ({}) for {what}", self.name, self.address))?
            .into_inner())
    }
}

/// What a manager says of itself and of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The cluster's identity; empty before its first leader named it.
    pub cluster_id: String,
    /// Whether it decides.
    pub leads: bool,
    /// The leader that it knows; empty when it knows none.
    pub leader: String,
    /// Its term.
    pub term: u64,
    /// Index of its newest log entry.
    pub last_log: u64,
    /// Up to where it has applied the log.
    pub applied: u64,
    /// Nodes that are ready.
    pub nodes_ready: u32,
    /// Tasks that run.
    pub tasks_running: u32,
}

impl From<GetClusterStatusResponse> for Seen {
    fn from(answer: GetClusterStatusResponse) -> Self {
        let (meta, raft) = (answer.meta.unwrap_or_default(), answer.raft.unwrap_or_default());
        Self {
            cluster_id: meta.cluster_id,
            leads: raft.state == i32::from(ManagerState::Leader),
            leader: meta.leader,
            term: raft.term,
            last_log: raft.last_log_index,
            applied: raft.applied_index,
            nodes_ready: answer.nodes_ready,
            tasks_running: answer.tasks_running,
        }
    }
}

/// Creates a job that must not exist.
pub fn create_request(spec: JobSpec, id: &RequestId) -> ApplyJobRequest {
    ApplyJobRequest {
        spec: Some(spec),
        etag: "0".to_owned(),
        request_id: id.to_string(),
        ..ApplyJobRequest::default()
    }
}

/// Stops a job and has it forgotten.
pub fn delete_request(namespace: &str, name: &str, id: &RequestId) -> DeleteJobRequest {
    DeleteJobRequest {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        purge: true,
        request_id: id.to_string(),
        ..DeleteJobRequest::default()
    }
}

fn fresh() -> Option<ReadOptions> {
    Some(ReadOptions { consistency: Consistency::Linearizable.into(), ..ReadOptions::default() })
}

fn with_deadline<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// The caller's own watch beside the deadline that the manager keeps: a dead connection keeps none.
async fn bounded(
    deadline: Duration,
    call: impl Future<Output = Result<Ack, Status>>,
) -> Result<Ack, Refused> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer.map_err(|status| Refused::of(&status)),
        Err(_) => Err(Refused {
            outcome: Outcome::Unknown,
            error: format!("no answer within {} ms", deadline.as_millis()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(reason: Reason) -> Outcome {
        Refused::of(&Status::from(ApiError::new(reason, "text"))).outcome
    }

    #[test]
    fn only_a_managers_own_refusal_proves_that_nothing_was_done() {
        assert_eq!(said(Reason::NoLeader), Outcome::Fail);
        assert_eq!(said(Reason::JobInvalid), Outcome::Fail);
        assert_eq!(said(Reason::CommitTimeout), Outcome::Unknown);
        assert_eq!(said(Reason::Internal), Outcome::Unknown);
        assert_eq!(Refused::of(&Status::unavailable("tcp connect error")).outcome, Outcome::Unknown);
        assert_eq!(Refused::of(&Status::deadline_exceeded("timeout")).outcome, Outcome::Unknown);
    }
}
