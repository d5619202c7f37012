//! `JobService`.

use std::sync::Arc;

use prost::Message;
use quorate_model::Name;
use quorate_state::{Command, Envelope, Receipt};
use quorate_wire::{
    api::{
        self as pb, Page, job_service_client::JobServiceClient, job_service_server::JobService, namespace,
        parse_etag,
    },
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status};

use crate::{
    api::{Relays, cut, mark, name, principal},
    core::Core,
    proposer::Committed,
    routing::Router,
};

/// Answers for jobs.
#[derive(Clone)]
pub struct JobApi {
    core: Core,
    router: Router,
    relays: Relays,
}

/// Bytes of a small command in the log, about.
const SMALL: usize = 512;

impl JobApi {
    /// The service.
    #[must_use]
    pub(crate) fn new(core: Core, router: Router, relays: Relays) -> Self {
        Self { core, router, relays }
    }

    /// Writes one command about the job and returns it as stored.
    async fn write(
        &self,
        command: Command,
        mark: Option<quorate_state::Request>,
        bytes: usize,
        key: (&Name, &Name),
    ) -> Result<(Committed, pb::Job), ApiError> {
        let written = self.core.proposer.submit(principal(), mark, command, bytes).await;
        let committed = written.map_err(|e| self.core.write_failed(e))?;
        let view = self.core.node.view();
        let job = match view.job_named(key.0, key.1) {
            Some(job) => pb::job(&view, job),
            // A retry of an old write may find the job purged since.
            None => pb::Job { namespace: key.0.to_string(), name: key.1.to_string(), ..pb::Job::default() },
        };
        Ok((committed, job))
    }

    async fn apply(&self, request: pb::ApplyJobRequest) -> Result<pb::ApplyJobResponse, ApiError> {
        let bytes = request.encoded_len();
        let expect = parse_etag(&request.etag)?;
        let spec = pb::accept_spec(request.spec)?;
        let (ns, job_name) = (spec.namespace.clone(), spec.name.clone());
        let command = Command::ApplyJob { spec: Arc::new(spec), expect };
        if request.validate_only {
            return self.checked(command, (&ns, &job_name));
        }
        // Of what the caller sent: what managers find out besides may be another digest at a retry.
        let mark = mark(&request.request_id, &command)?;
        let (command, warnings) = self.pinned(command).await;
        let (committed, job) = self.write(command, mark, bytes, (&ns, &job_name)).await?;
        let (created, unchanged) = match committed.receipt {
            Receipt::Job { created, unchanged, .. } => (created, unchanged),
            _ => (false, false),
        };
        let meta = Some(self.core.meta(&self.core.node.view()));
        let revision = committed.revision.0;
        Ok(pb::ApplyJobResponse { meta, job: Some(job), created, unchanged, revision, warnings })
    }

    /// The command with its images pinned, as far as that is possible, and what was not.
    async fn pinned(&self, command: Command) -> (Command, Vec<String>) {
        let Command::ApplyJob { mut spec, expect } = command else { return (command, Vec::new()) };
        let warnings = self.relays.pin(&self.core.node.view(), Arc::make_mut(&mut spec)).await;
        (Command::ApplyJob { spec, expect }, warnings)
    }

    /// The answer to `validate_only`: the command is applied to a copy of the state, and nothing is written.
    fn checked(&self, command: Command, key: (&Name, &Name)) -> Result<pb::ApplyJobResponse, ApiError> {
        let mut copy = self.core.node.view();
        let at = copy.applied();
        let now = self.core.clock.now();
        let envelope = Envelope {
            proposed_at: now,
            fence: None,
            actor: principal(),
            request: None,
            trace: None,
            command,
        };
        let meta = Some(self.core.meta(&copy));
        let outcome = quorate_state::apply(&mut copy, at, &envelope).outcome?;
        let (created, unchanged) = match outcome {
            Receipt::Job { created, unchanged, .. } => (created, unchanged),
            _ => (false, false),
        };
        let job = copy.job_named(key.0, key.1).map(|job| pb::job(&copy, job));
        Ok(pb::ApplyJobResponse { meta, job, created, unchanged, revision: 0, warnings: Vec::new() })
    }

    async fn scale(&self, request: pb::ScaleJobRequest) -> Result<pb::ScaleJobResponse, ApiError> {
        let (ns, job) = (namespace(&request.namespace)?, name("name", &request.name)?);
        let expect = parse_etag(&request.etag)?;
        let command = Command::ScaleJob {
            namespace: ns.clone(),
            name: job.clone(),
            replicas: request.replicas,
            expect,
        };
        let mark = mark(&request.request_id, &command)?;
        let (committed, job) = self.write(command, mark, SMALL, (&ns, &job)).await?;
        let meta = Some(self.core.meta(&self.core.node.view()));
        Ok(pb::ScaleJobResponse { meta, job: Some(job), revision: committed.revision.0 })
    }

    async fn delete(&self, request: pb::DeleteJobRequest) -> Result<pb::DeleteJobResponse, ApiError> {
        let (ns, job) = (namespace(&request.namespace)?, name("name", &request.name)?);
        let command = Command::DeleteJob {
            namespace: ns.clone(),
            name: job.clone(),
            purge: request.purge,
            expect: None,
        };
        let mark = mark(&request.request_id, &command)?;
        let (committed, job) = self.write(command, mark, SMALL, (&ns, &job)).await?;
        let meta = Some(self.core.meta(&self.core.node.view()));
        Ok(pb::DeleteJobResponse { meta, job: Some(job), revision: committed.revision.0 })
    }
}

#[tonic::async_trait]
impl JobService for JobApi {
    async fn plan_job(
        &self,
        _request: Request<pb::PlanJobRequest>,
    ) -> Result<Response<pb::PlanJobResponse>, Status> {
        Err(super::unsupported("PlanJob"))
    }

    async fn apply_job(
        &self,
        request: Request<pb::ApplyJobRequest>,
    ) -> Result<Response<pb::ApplyJobResponse>, Status> {
        let local = |body| self.apply(body);
        let forward = async |channel, request| JobServiceClient::new(channel).apply_job(request).await;
        self.router.write(request, local, forward).await
    }

    async fn get_job(
        &self,
        request: Request<pb::GetJobRequest>,
    ) -> Result<Response<pb::GetJobResponse>, Status> {
        let request = request.into_inner();
        let (ns, job) = (namespace(&request.namespace)?, name("name", &request.name)?);
        let view = self.core.view(request.read.as_ref()).await?;
        let Some(found) = view.job_named(&ns, &job) else {
            let error = ApiError::new(Reason::JobNotFound, format!("there is no job {ns}/{job}"));
            return Err(error.with("job", format!("{ns}/{job}")).into());
        };
        let job = Some(pb::job(&view, found));
        Ok(Response::new(pb::GetJobResponse { meta: Some(self.core.meta(&view)), job }))
    }

    async fn list_jobs(
        &self,
        request: Request<pb::ListJobsRequest>,
    ) -> Result<Response<pb::ListJobsResponse>, Status> {
        let request = request.into_inner();
        let ns = if request.namespace.is_empty() { None } else { Some(namespace(&request.namespace)?) };
        let page = Page::of(&["jobs", &request.namespace], request.page_size, &request.page_token)?;
        let view = self.core.view(request.read.as_ref()).await?;
        let rest =
            view.jobs_by_name(ns.as_ref()).filter(|j| page.after.as_ref().is_none_or(|a| j.key() > *a));
        let (jobs, next_page_token) = cut(rest, &page, |j| j.key());
        let jobs = jobs.into_iter().map(|j| pb::job(&view, j)).collect();
        Ok(Response::new(pb::ListJobsResponse { meta: Some(self.core.meta(&view)), jobs, next_page_token }))
    }

    async fn scale_job(
        &self,
        request: Request<pb::ScaleJobRequest>,
    ) -> Result<Response<pb::ScaleJobResponse>, Status> {
        let local = |body| self.scale(body);
        let forward = async |channel, request| JobServiceClient::new(channel).scale_job(request).await;
        self.router.write(request, local, forward).await
    }

    async fn delete_job(
        &self,
        request: Request<pb::DeleteJobRequest>,
    ) -> Result<Response<pb::DeleteJobResponse>, Status> {
        let local = |body| self.delete(body);
        let forward = async |channel, request| JobServiceClient::new(channel).delete_job(request).await;
        self.router.write(request, local, forward).await
    }
}
