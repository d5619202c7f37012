//! Commands on jobs.

use std::{collections::BTreeSet, sync::Arc};

use quorate_model::{Job, JobId, JobKind, JobSpec, JobStatus, JobVersion, Name, Revision};

use crate::{Change, Event, Object, Receipt, Rejection, State, apply::Edit, tables::event};

/// Specifications kept per job, besides those that tasks still run.
const KEPT_VERSIONS: u32 = 10;

pub(super) fn apply_job(
    state: &mut State,
    edit: &Edit,
    spec: &Arc<JobSpec>,
    expect: Option<Revision>,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    spec.validate().map_err(Rejection::JobInvalid)?;
    let old = state.job_named(&spec.namespace, &spec.name).cloned();
    check_etag(&spec.namespace, &spec.name, old.as_deref(), expect)?;
    let Some(old) = old else { return Ok(create(state, edit, spec, events)) };
    refuse_purging(&old)?;
    let Some(stored) = old.spec().cloned() else {
        return Err(Rejection::Gone { what: "job version", id: u64::from(old.version.0) });
    };
    if !stored.kind.same_type(spec.kind) {
        return Err(Rejection::JobTypeChanged {
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            stored: stored.kind.as_str(),
            sent: spec.kind.as_str(),
        });
    }
    let ended = matches!(old.status, JobStatus::Complete | JobStatus::Failed);
    if spec.written_like(&stored) && (ended || old.status == JobStatus::Active) {
        return Ok(receipt(&old, false, true));
    }
    let version = old.version.next();
    // A batch that ended and is given something new to do starts to count afresh.
    let fresh = ended || !spec.runs_like(&stored);
    let batch = matches!(spec.kind, JobKind::Batch { .. });
    let mut job = Job { status: JobStatus::Active, ..with_spec(state, &old, version, spec, edit) };
    if fresh {
        job.same_since = version;
        if batch {
            (job.succeeded, job.failed) = (0, 0);
        }
    }
    let job = state.put_job(job);
    events.push(event(edit.at, Change::Updated, Object::Job(job.clone())));
    Ok(receipt(&job, false, false))
}

fn create(state: &mut State, edit: &Edit, spec: &Arc<JobSpec>, events: &mut Vec<Event>) -> Receipt {
    let id = JobId(state.meta.next_job);
    state.meta.next_job += 1;
    let version = JobVersion(1);
    let at = edit.at;
    let job = state.put_job(Job {
        id,
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        version,
        same_since: version,
        specs: [(version, spec.clone())].into(),
        status: JobStatus::Active,
        succeeded: 0,
        failed: 0,
        created: at,
        edited: at,
        edited_by: edit.by.clone(),
        edited_at: state.now(),
        trace: edit.trace,
        created_at: state.now(),
        changed_at: state.now(),
        changed: at,
    });
    events.push(event(at, Change::Created, Object::Job(job.clone())));
    receipt(&job, true, false)
}

/// The job with a new version; versions that nobody needs any more are dropped.
fn with_spec(state: &State, old: &Job, version: JobVersion, spec: &Arc<JobSpec>, edit: &Edit) -> Job {
    let used: BTreeSet<JobVersion> = state.tasks_of(old.id).map(|t| t.version).collect();
    let oldest = version.0.saturating_sub(KEPT_VERSIONS);
    let mut specs = old.specs.clone();
    specs.retain(|v, _| v.0 > oldest || used.contains(v));
    specs.insert(version, spec.clone());
    let job = Job { version, specs, changed: edit.at, changed_at: state.now(), ..old.clone() };
    edit.mark(state, job)
}

pub(super) fn scale(
    state: &mut State,
    edit: &Edit,
    (namespace, name): (&Name, &Name),
    replicas: u32,
    expect: Option<Revision>,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let old = find(state, namespace, name)?;
    check_etag(namespace, name, Some(&old), expect)?;
    refuse_purging(&old)?;
    let Some(stored) = old.spec() else {
        return Err(Rejection::Gone { what: "job version", id: u64::from(old.version.0) });
    };
    let JobKind::Service { replicas: current } = stored.kind else {
        return Err(Rejection::NotScalable { namespace: namespace.clone(), name: name.clone() });
    };
    if current == replicas && old.status == JobStatus::Active {
        return Ok(receipt(&old, false, true));
    }
    let spec = Arc::new(JobSpec { kind: JobKind::Service { replicas }, ..(**stored).clone() });
    spec.validate().map_err(Rejection::JobInvalid)?;
    let version = old.version.next();
    let job = Job { status: JobStatus::Active, ..with_spec(state, &old, version, &spec, edit) };
    let job = state.put_job(job);
    events.push(event(edit.at, Change::Updated, Object::Job(job.clone())));
    Ok(receipt(&job, false, false))
}

pub(super) fn delete(
    state: &mut State,
    edit: &Edit,
    (namespace, name): (&Name, &Name),
    purge: bool,
    expect: Option<Revision>,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let old = find(state, namespace, name)?;
    check_etag(namespace, name, Some(&old), expect)?;
    let status =
        if purge || old.status == JobStatus::Purging { JobStatus::Purging } else { JobStatus::Stopped };
    if old.status == status {
        return Ok(receipt(&old, false, true));
    }
    let edited = edit.mark(state, (*old).clone());
    let job = put_status(state, edit.at, &edited, status, events);
    Ok(receipt(&job, false, false))
}

pub(super) fn set_status(
    state: &mut State,
    at: Revision,
    id: JobId,
    version: JobVersion,
    status: JobStatus,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let Some(old) = state.job(id).cloned() else {
        return Err(Rejection::Gone { what: "job", id: u64::from(id.0) });
    };
    // A user may have given it something new to do while its end was on the way.
    if old.version != version {
        let why = "it has a newer version than the one whose end was seen";
        return Err(Rejection::WrongJobStatus { id, status: old.status.as_str(), why });
    }
    let legal = old.status == JobStatus::Active && matches!(status, JobStatus::Complete | JobStatus::Failed);
    if !legal {
        let why = "only an active job becomes complete or failed";
        return Err(Rejection::WrongJobStatus { id, status: old.status.as_str(), why });
    }
    put_status(state, at, &old, status, events);
    Ok(Receipt::Done)
}

pub(super) fn forget(
    state: &mut State,
    at: Revision,
    id: JobId,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let Some(old) = state.job(id).cloned() else {
        return Err(Rejection::Gone { what: "job", id: u64::from(id.0) });
    };
    if old.status != JobStatus::Purging || state.tasks_of(id).next().is_some() {
        let why = "only a purged job without tasks is forgotten";
        return Err(Rejection::WrongJobStatus { id, status: old.status.as_str(), why });
    }
    state.drop_job(&old);
    events.push(event(at, Change::Deleted, Object::Job(old)));
    Ok(Receipt::Done)
}

fn put_status(
    state: &mut State,
    at: Revision,
    old: &Job,
    status: JobStatus,
    events: &mut Vec<Event>,
) -> Arc<Job> {
    let job = state.put_job(Job { status, changed: at, changed_at: state.now(), ..old.clone() });
    events.push(event(at, Change::Updated, Object::Job(job.clone())));
    job
}

fn find(state: &State, namespace: &Name, name: &Name) -> Result<Arc<Job>, Rejection> {
    state
        .job_named(namespace, name)
        .cloned()
        .ok_or_else(|| Rejection::JobNotFound { namespace: namespace.clone(), name: name.clone() })
}

fn check_etag(
    namespace: &Name,
    name: &Name,
    old: Option<&Job>,
    expect: Option<Revision>,
) -> Result<(), Rejection> {
    let stored = old.map_or(Revision(0), |job| job.edited);
    match expect {
        Some(sent) if sent != stored => Err(Rejection::EtagMismatch {
            namespace: namespace.clone(),
            name: name.clone(),
            stored,
            sent,
            by: old.map(|job| job.edited_by.clone()).unwrap_or_default(),
            at: old.map(|job| job.edited_at).unwrap_or_default(),
        }),
        Some(_) | None => Ok(()),
    }
}

fn refuse_purging(job: &Job) -> Result<(), Rejection> {
    if job.status == JobStatus::Purging {
        return Err(Rejection::JobPurging { namespace: job.namespace.clone(), name: job.name.clone() });
    }
    Ok(())
}

fn receipt(job: &Job, created: bool, unchanged: bool) -> Receipt {
    Receipt::Job { id: job.id, version: job.version, created, unchanged }
}
