//! `JobService`.

use std::sync::Arc;

use prost::Message;
use quorate_model::{Invalid, Job, JobSpec, Name, Revision, Selector};
use quorate_state::{Command, Receipt, State};
use quorate_wire::{
    api::{
        self as pb, Page, job_service_client::JobServiceClient, job_service_server::JobService, namespace,
        parse_etag,
    },
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status};

use crate::{
    api::{MAX_ANSWER, Relays, invalid, mark, mark_of, name, pages::choices, principal, rehearse},
    core::Core,
    proposer::Committed,
    routing::Router,
};

/// Answers for jobs.
#[derive(Clone)]
pub struct JobApi {
    pub(super) core: Core,
    router: Router,
    pub(super) relays: Relays,
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
        Ok((committed, stored(&self.core.node.view(), key)))
    }

    async fn apply(&self, request: pb::ApplyJobRequest) -> Result<pb::ApplyJobResponse, ApiError> {
        let bytes = request.encoded_len();
        let expect = parse_etag(&request.etag)?;
        let sent = pb::ApplyJobRequest { request_id: String::new(), ..request.clone() };
        let paths = request.update_mask.unwrap_or_default().paths;
        let masked = !paths.is_empty();
        let view = if masked { self.core.view(None).await? } else { self.core.node.view() };
        let (spec, edited) = merged(&view, request.spec, &paths)?;
        let (ns, job_name) = (spec.namespace.clone(), spec.name.clone());
        // What is merged holds for the job as it was read.
        let command = Command::ApplyJob { spec: Arc::new(spec), expect: expect.or(edited) };
        // Of what the caller sent: what managers find out besides may be another digest at a retry.
        let mark = if masked {
            mark_of(&request.request_id, || pb::fingerprint("ApplyJob", &sent))?
        } else {
            mark(&request.request_id, &command)?
        };
        if request.validate_only {
            return self.checked(command, (&ns, &job_name));
        }
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

    /// The answer to `validate_only`.
    fn checked(&self, command: Command, key: (&Name, &Name)) -> Result<pb::ApplyJobResponse, ApiError> {
        let meta = Some(self.core.meta(&self.core.node.view()));
        let (copy, receipt) = rehearse(&self.core, command)?;
        let (created, unchanged) = match receipt {
            Receipt::Job { created, unchanged, .. } => (created, unchanged),
            _ => (false, false),
        };
        let job = Some(stored(&copy, key));
        Ok(pb::ApplyJobResponse { meta, job, created, unchanged, revision: 0, warnings: Vec::new() })
    }

    /// Writes a small command about a job, or only checks it. Gives the job and the write's revision; 0 = none.
    async fn edit(
        &self,
        command: Command,
        request_id: &str,
        validate_only: bool,
        key: (&Name, &Name),
    ) -> Result<(pb::Job, u64), ApiError> {
        let mark = mark(request_id, &command)?;
        if validate_only {
            let (copy, _) = rehearse(&self.core, command)?;
            return Ok((stored(&copy, key), 0));
        }
        let (committed, job) = self.write(command, mark, SMALL, key).await?;
        Ok((job, committed.revision.0))
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
        let key = (&ns, &job);
        let (job, revision) = self.edit(command, &request.request_id, request.validate_only, key).await?;
        let meta = Some(self.core.meta(&self.core.node.view()));
        Ok(pb::ScaleJobResponse { meta, job: Some(job), revision })
    }

    async fn delete(&self, request: pb::DeleteJobRequest) -> Result<pb::DeleteJobResponse, ApiError> {
        let (ns, job) = (namespace(&request.namespace)?, name("name", &request.name)?);
        let expect = parse_etag(&request.etag)?;
        let command =
            Command::DeleteJob { namespace: ns.clone(), name: job.clone(), purge: request.purge, expect };
        let key = (&ns, &job);
        let (job, revision) = self.edit(command, &request.request_id, request.validate_only, key).await?;
        let meta = Some(self.core.meta(&self.core.node.view()));
        Ok(pb::DeleteJobResponse { meta, job: Some(job), revision })
    }

    async fn list(
        &self,
        request: pb::ListJobsRequest,
        page: &Page,
    ) -> Result<pb::ListJobsResponse, ApiError> {
        let ns = if request.namespace.is_empty() { None } else { Some(namespace(&request.namespace)?) };
        let selector = Selector::parse("selector", &request.selector).map_err(invalid)?;
        let statuses = choices("statuses", &request.statuses, pb::JobStatus::Unspecified)?;
        let after = page.key(|key| {
            let (ns, job) = key.split_once('/')?;
            Some((ns.parse().ok()?, job.parse().ok()?))
        })?;
        let pages = self.router.pages();
        let view = pages.view(page, request.read.as_ref()).await?;
        let wanted = |job: &&Arc<Job>| {
            (statuses.is_empty() || statuses.contains(&pb::job_status(job.status)))
                && (selector.is_empty() || job.spec().is_some_and(|spec| selector.matches(&spec.labels)))
        };
        let rest = view.jobs_by_name(ns.as_ref(), after).filter(wanted);
        let (jobs, next_page_token) = pages.cut(&view, rest, page, |j| j.key());
        let jobs = jobs.into_iter().map(|j| pb::job(&view, j)).collect();
        Ok(pb::ListJobsResponse { meta: Some(self.core.meta(&view)), jobs, next_page_token })
    }
}

/// The specification that is meant: what was sent, or the stored one with the fields of the mask replaced, then with
/// the revision of the job's last edit.
///
/// # Errors
/// `JOB_INVALID` and its kin, `ARGUMENT_INVALID` for a path that is none, `JOB_NOT_FOUND` when there is nothing to merge.
pub(super) fn merged(
    view: &State,
    sent: Option<pb::JobSpec>,
    paths: &[String],
) -> Result<(JobSpec, Option<Revision>), ApiError> {
    if paths.is_empty() || paths == ["*"] {
        return Ok((pb::accept_spec(sent)?, None));
    }
    let sent = sent.unwrap_or_default();
    let (ns, job) = (namespace(&sent.namespace)?, name("spec.name", &sent.name)?);
    let found = view.job_named(&ns, &job).ok_or_else(|| not_found(&ns, &job))?;
    let stored = found.spec().ok_or_else(|| not_found(&ns, &job))?;
    let spec = pb::accept_spec(Some(pb::merge_spec(stored, &sent, paths)?))?;
    if (&spec.namespace, &spec.name) != (&ns, &job) {
        let why = "namespace and name say which job is meant and cannot be replaced";
        return Err(invalid(Invalid::new("update_mask", why)));
    }
    Ok((spec, Some(found.edited)))
}

/// The job as the state has it. A retry of an old write may find it purged since.
fn stored(view: &State, (ns, name): (&Name, &Name)) -> pb::Job {
    let gone = || pb::Job { namespace: ns.to_string(), name: name.to_string(), ..pb::Job::default() };
    view.job_named(ns, name).map_or_else(gone, |job| pb::job(view, job))
}

/// The error of a job that is not there.
pub(super) fn not_found(ns: &Name, job: &Name) -> ApiError {
    ApiError::new(Reason::JobNotFound, format!("there is no job {ns}/{job}"))
        .with("job", format_args!("{ns}/{job}"))
}

#[tonic::async_trait]
impl JobService for JobApi {
    async fn plan_job(
        &self,
        request: Request<pb::PlanJobRequest>,
    ) -> Result<Response<pb::PlanJobResponse>, Status> {
        let local = |body| self.plan(body);
        let forward = async |channel, request| {
            JobServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER).plan_job(request).await
        };
        self.router.write(request, local, forward).await
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
        let found = view.job_named(&ns, &job).ok_or_else(|| not_found(&ns, &job))?;
        let job = Some(pb::job(&view, found));
        Ok(Response::new(pb::GetJobResponse { meta: Some(self.core.meta(&view)), job }))
    }

    async fn list_jobs(
        &self,
        request: Request<pb::ListJobsRequest>,
    ) -> Result<Response<pb::ListJobsResponse>, Status> {
        let asked = request.get_ref();
        let statuses = format!("{:?}", asked.statuses);
        let by = ["jobs", &asked.namespace, &asked.selector, &statuses];
        let page = Page::of(&by, asked.page_size, &asked.page_token)?;
        if let Some(keeper) = self.router.keeper(&request, &page)? {
            let forward = async |channel, request| {
                JobServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER).list_jobs(request).await
            };
            return self.router.ask(&keeper, request.into_inner(), forward).await;
        }
        Ok(Response::new(self.list(request.into_inner(), &page).await?))
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
