//! Who asked, and the marks that make retries exact-once.

use quorate_model::Revision;
use quorate_state::{Actor, Halt, Request, RequestKey, RequestRecord};

use super::{
    bad, name,
    pack::{moment, request_id},
    required,
};
use crate::generated::store::{self as pb, actor::Who};

impl From<&Actor> for pb::Actor {
    fn from(value: &Actor) -> Self {
        let who = match value {
            Actor::User(principal) => Who::User(principal.to_string()),
            Actor::Manager(name) => Who::Manager(name.as_str().to_owned()),
            Actor::Agent(name) => Who::Agent(name.as_str().to_owned()),
        };
        Self { who: Some(who) }
    }
}

impl TryFrom<pb::Actor> for Actor {
    type Error = Halt;

    fn try_from(value: pb::Actor) -> Result<Self, Halt> {
        Ok(match required("actor", value.who)? {
            Who::User(principal) => Self::User(principal.into()),
            Who::Manager(text) => Self::Manager(name("name of a manager", &text)?),
            Who::Agent(text) => Self::Agent(name("name of a node", &text)?),
        })
    }
}

impl From<&Request> for pb::Request {
    fn from(value: &Request) -> Self {
        Self { id: value.id.as_str().to_owned(), fingerprint: value.fingerprint }
    }
}

impl TryFrom<pb::Request> for Request {
    type Error = Halt;

    fn try_from(value: pb::Request) -> Result<Self, Halt> {
        Ok(Self { id: request_id(&value.id)?, fingerprint: value.fingerprint })
    }
}

impl From<&RequestRecord> for pb::AnsweredRequest {
    fn from(value: &RequestRecord) -> Self {
        let id = value.key.id.as_str().to_owned();
        Self {
            actor: Some((&value.key.actor).into()),
            request: Some(pb::Request { id, fingerprint: value.fingerprint }),
            order: value.order,
            revision: value.revision.0,
            at_ms: value.at.as_millis(),
            receipt: value.answer.as_ref().ok().map(Into::into),
            refusal: value.answer.as_ref().err().map(Into::into),
        }
    }
}

impl TryFrom<pb::AnsweredRequest> for RequestRecord {
    type Error = Halt;

    fn try_from(value: pb::AnsweredRequest) -> Result<Self, Halt> {
        let actor = required("actor", value.actor)?.try_into()?;
        let Request { id, fingerprint } = required("request", value.request)?.try_into()?;
        Ok(Self {
            key: RequestKey { actor, id },
            order: value.order,
            fingerprint,
            revision: Revision(value.revision),
            at: moment(value.at_ms),
            answer: match (value.receipt, value.refusal) {
                (Some(receipt), None) => Ok(receipt.try_into()?),
                (None, Some(refusal)) => Err(refusal.try_into()?),
                _ => return Err(bad("answer", "is not exactly one of receipt and refusal")),
            },
        })
    }
}
