//! Refusals of the state machine, as they are remembered.

use quorate_model::{Invalid, InvalidList, Name, Revision};
use quorate_state::{Halt, Rejection};

use super::{bad, name, pack::moment, required};
use crate::generated::store::{self as pb, refusal::Kind};

/// The types of jobs, as a refusal names them.
const TYPES: [&str; 2] = ["service", "batch"];

fn key(namespace: &Name, name: &Name) -> pb::JobKey {
    pb::JobKey { namespace: namespace.as_str().to_owned(), name: name.as_str().to_owned() }
}

fn violations(list: &InvalidList) -> pb::Violations {
    let one = |one: &Invalid| pb::Violation { path: one.path.clone(), reason: one.reason.clone() };
    pb::Violations { list: list.0.iter().map(one).collect() }
}

impl From<&Rejection> for pb::Refusal {
    fn from(value: &Rejection) -> Self {
        let kind = match value {
            Rejection::JobNotFound { namespace, name } => Some(Kind::JobNotFound(key(namespace, name))),
            Rejection::JobTypeChanged { namespace, name, stored, sent } => {
                Some(Kind::JobTypeChanged(pb::TypeRefusal {
                    job: Some(key(namespace, name)),
                    stored: (*stored).to_owned(),
                    sent: (*sent).to_owned(),
                }))
            }
            Rejection::EtagMismatch { namespace, name, stored, sent, by, at } => {
                Some(Kind::EtagMismatch(pb::EtagRefusal {
                    job: Some(key(namespace, name)),
                    stored: stored.0,
                    sent: sent.0,
                    by: by.to_string(),
                    at_ms: at.as_millis(),
                }))
            }
            Rejection::JobPurging { namespace, name } => Some(Kind::JobPurging(key(namespace, name))),
            Rejection::NotScalable { namespace, name } => Some(Kind::NotScalable(key(namespace, name))),
            Rejection::JobInvalid(list) => Some(Kind::JobInvalid(violations(list))),
            Rejection::Invalid(list) => Some(Kind::Invalid(violations(list))),
            Rejection::NodeNameTaken { name } => Some(Kind::NodeNameTaken(name.as_str().to_owned())),
            Rejection::AlreadyInitialised => Some(Kind::AlreadyInitialised(pb::Done {})),
            // Never remembered.
            Rejection::Gone { .. }
            | Rejection::WrongJobStatus { .. }
            | Rejection::StaleFence { .. }
            | Rejection::RequestReused { .. } => None,
        };
        Self { kind }
    }
}

fn job(key: Option<pb::JobKey>) -> Result<(Name, Name), Halt> {
    let key = required("job", key)?;
    Ok((name("namespace", &key.namespace)?, name("name of a job", &key.name)?))
}

fn job_type(text: &str) -> Result<&'static str, Halt> {
    let known = TYPES.into_iter().find(|known| *known == text);
    known.ok_or_else(|| bad("job type", format!("{text:?} is unknown")))
}

fn list(violations: pb::Violations) -> InvalidList {
    InvalidList(violations.list.into_iter().map(|one| Invalid::new(one.path, one.reason)).collect())
}

impl TryFrom<pb::Refusal> for Rejection {
    type Error = Halt;

    fn try_from(value: pb::Refusal) -> Result<Self, Halt> {
        Ok(match required("refusal", value.kind)? {
            Kind::JobNotFound(key) => {
                let (namespace, name) = job(Some(key))?;
                Self::JobNotFound { namespace, name }
            }
            Kind::JobTypeChanged(change) => {
                let (namespace, name) = job(change.job)?;
                let (stored, sent) = (job_type(&change.stored)?, job_type(&change.sent)?);
                Self::JobTypeChanged { namespace, name, stored, sent }
            }
            Kind::EtagMismatch(one) => {
                let (namespace, name) = job(one.job)?;
                let (stored, sent) = (Revision(one.stored), Revision(one.sent));
                Self::EtagMismatch { namespace, name, stored, sent, by: one.by.into(), at: moment(one.at_ms) }
            }
            Kind::JobPurging(key) => {
                let (namespace, name) = job(Some(key))?;
                Self::JobPurging { namespace, name }
            }
            Kind::NotScalable(key) => {
                let (namespace, name) = job(Some(key))?;
                Self::NotScalable { namespace, name }
            }
            Kind::JobInvalid(violations) => Self::JobInvalid(list(violations)),
            Kind::Invalid(violations) => Self::Invalid(list(violations)),
            Kind::NodeNameTaken(text) => Self::NodeNameTaken { name: name("name of a node", &text)? },
            Kind::AlreadyInitialised(pb::Done {}) => Self::AlreadyInitialised,
        })
    }
}
