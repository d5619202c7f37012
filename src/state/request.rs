//! Memory of answered requests: what makes a retry exact-once.
//!
//! Refusals are answers, too: the late first try of a call whose retry was
//! refused must not take effect behind the caller's back.
//!
//! Bounded by age and by count; part of the image, so a retry after a leader
//! change or a restart still finds its answer.

use std::{sync::Arc, time::Duration};

use quorate_base::{id::RequestId, time::Timestamp};
use quorate_model::Revision;

use crate::{Actor, Receipt, Rejection, Request, State};

/// Answers are remembered for an hour …
pub const MAX_AGE: Duration = Duration::from_secs(3600);
/// … but never more than this many.
pub const MAX_COUNT: usize = 100_000;

/// Who used which id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// Principal.
    pub actor: Actor,
    /// The caller's id.
    pub id: RequestId,
}

/// An answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Who asked what.
    pub key: RequestKey,
    /// Order of arrival, for eviction.
    pub order: u64,
    /// Hash of the command.
    pub fingerprint: u64,
    /// Revision at which it was answered.
    pub revision: Revision,
    /// Replicated time of the answer.
    pub at: Timestamp,
    /// The answer.
    pub answer: Result<Receipt, Rejection>,
}

impl State {
    /// The answer that was given to the same request before.
    #[must_use]
    pub fn replay(&self, actor: &Actor, request: &Request) -> Option<Result<Arc<RequestRecord>, Rejection>> {
        let key = RequestKey { actor: actor.clone(), id: request.id.clone() };
        let record = self.requests.get(&key)?;
        Some(if record.fingerprint == request.fingerprint {
            Ok(record.clone())
        } else {
            Err(Rejection::RequestReused { id: request.id.clone() })
        })
    }

    /// Remembers an answer and forgets what is too old or too many.
    pub(crate) fn remember(
        &mut self,
        actor: &Actor,
        request: &Request,
        revision: Revision,
        answer: &Result<Receipt, Rejection>,
    ) {
        if answer.as_ref().is_err_and(|refusal| !refusal.is_remembered()) {
            return;
        }
        let order = self.meta.next_request;
        self.meta.next_request += 1;
        self.put_request(RequestRecord {
            key: RequestKey { actor: actor.clone(), id: request.id.clone() },
            order,
            fingerprint: request.fingerprint,
            revision,
            at: self.meta.now,
            answer: answer.clone(),
        });
        while let Some(oldest) = self.oldest_request() {
            let old = self.meta.now.saturating_sub(MAX_AGE) > oldest.at;
            if !old && self.requests.len() <= MAX_COUNT {
                break;
            }
            self.drop_request(&oldest);
        }
    }

    pub(crate) fn put_request(&mut self, record: RequestRecord) {
        self.request_order.insert(record.order, record.key.clone());
        self.requests.insert(record.key.clone(), Arc::new(record));
    }

    fn oldest_request(&self) -> Option<Arc<RequestRecord>> {
        let (_, key) = self.request_order.get_min()?;
        self.requests.get(key).cloned()
    }

    fn drop_request(&mut self, record: &RequestRecord) {
        self.request_order.remove(&record.order);
        self.requests.remove(&record.key);
    }
}
