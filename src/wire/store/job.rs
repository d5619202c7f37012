//! Jobs and their specifications.

use std::sync::Arc;

use quorate_model::{Job, JobId, JobKind, JobSpec, JobStatus, JobVersion, Revision};
use quorate_state::Halt;

use super::{
    enums::{number, word},
    name, narrow,
    pack::{by_name, by_text, moment, trace_in, trace_out},
    required,
};
use crate::generated::store::{self as pb, job_spec::Kind};

impl From<&JobSpec> for pb::JobSpec {
    fn from(value: &JobSpec) -> Self {
        let kind = match value.kind {
            JobKind::Service { replicas } => Kind::Service(pb::Service { replicas }),
            JobKind::Batch { completions, parallelism } => {
                Kind::Batch(pb::Batch { completions, parallelism })
            }
        };
        Self {
            namespace: value.namespace.as_str().to_owned(),
            name: value.name.as_str().to_owned(),
            kind: Some(kind),
            priority: value.priority.into(),
            labels: value.labels.clone(),
            placement: Some((&value.placement).into()),
            restart: Some((&value.restart).into()),
            reschedule: Some((&value.reschedule).into()),
            ports: by_text(&value.ports),
            volumes: by_text(&value.volumes),
            containers: by_text(&value.containers),
        }
    }
}

impl TryFrom<pb::JobSpec> for JobSpec {
    type Error = Halt;

    fn try_from(value: pb::JobSpec) -> Result<Self, Halt> {
        let kind = match required("kind of a job", value.kind)? {
            Kind::Service(pb::Service { replicas }) => JobKind::Service { replicas },
            Kind::Batch(pb::Batch { completions, parallelism }) => {
                JobKind::Batch { completions, parallelism }
            }
        };
        Ok(Self {
            namespace: name("namespace", &value.namespace)?,
            name: name("name of a job", &value.name)?,
            kind,
            priority: narrow("priority", value.priority)?,
            labels: value.labels,
            placement: required("placement", value.placement)?.try_into()?,
            restart: required("restart policy", value.restart)?.try_into()?,
            reschedule: required("reschedule policy", value.reschedule)?.into(),
            ports: by_name("name of a port", value.ports)?,
            volumes: by_name("name of a volume", value.volumes)?,
            containers: by_name("name of a container", value.containers)?,
        })
    }
}

impl From<&Job> for pb::Job {
    fn from(value: &Job) -> Self {
        Self {
            id: value.id.0,
            namespace: value.namespace.as_str().to_owned(),
            name: value.name.as_str().to_owned(),
            version: value.version.0,
            same_since: value.same_since.0,
            specs: value.specs.iter().map(|(version, spec)| (version.0, (&**spec).into())).collect(),
            status: number::<pb::JobStatus, JobStatus>(value.status),
            succeeded: value.succeeded,
            failed: value.failed,
            created: value.created.0,
            edited: value.edited.0,
            created_at_ms: value.created_at.as_millis(),
            changed_at_ms: value.changed_at.as_millis(),
            changed: value.changed.0,
            edited_by: value.edited_by.to_string(),
            edited_at_ms: value.edited_at.as_millis(),
            trace: trace_out(value.trace),
        }
    }
}

impl TryFrom<pb::Job> for Job {
    type Error = Halt;

    fn try_from(value: pb::Job) -> Result<Self, Halt> {
        let specs = value.specs.into_iter();
        Ok(Self {
            id: JobId(value.id),
            namespace: name("namespace", &value.namespace)?,
            name: name("name of a job", &value.name)?,
            version: JobVersion(value.version),
            same_since: JobVersion(value.same_since),
            specs: specs
                .map(|(version, spec)| Ok((JobVersion(version), Arc::new(spec.try_into()?))))
                .collect::<Result<_, Halt>>()?,
            status: word::<pb::JobStatus, _>("job status", value.status)?,
            succeeded: value.succeeded,
            failed: value.failed,
            created: Revision(value.created),
            edited: Revision(value.edited),
            created_at: moment(value.created_at_ms),
            changed_at: moment(value.changed_at_ms),
            changed: Revision(value.changed),
            edited_by: value.edited_by.into(),
            edited_at: moment(value.edited_at_ms),
            trace: trace_in(&value.trace),
        })
    }
}
