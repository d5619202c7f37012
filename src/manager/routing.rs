//! Writes reach the leader from any manager: a follower passes a call on once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt as _;
use quorate_base::{sync::lock, time::Mono};
use quorate_pki::Profile;
use quorate_raft::Leadership;
use quorate_telemetry::metrics;
use quorate_wire::{
    api::Page,
    status::{ApiError, Reason},
};
use tokio::sync::watch;
use tonic::{Request, Response, Status, metadata::AsciiMetadataValue, transport::Channel};

use crate::{
    api::pages::{Pages, expired},
    core::Core,
};

/// Marks a call that a follower passed on; a second hop is refused.
pub const FORWARDED_BY: &str = "quorate-forwarded-by";
/// How long a call may wait here for a leader, and how long it is tried while nothing was done for certain.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The most that a passed-on call may take.
const FORWARD_DEADLINE: Duration = Duration::from_secs(10);
/// Dialling the leader's API.
const CONNECT_DEADLINE: Duration = Duration::from_millis(500);

/// Sends writes to where they can be done.
#[derive(Clone)]
pub struct Router {
    core: Core,
    channels: Arc<Mutex<BTreeMap<String, Channel>>>,
    pages: Pages,
}

/// Another manager that a call is passed on to.
pub(crate) struct Peer {
    name: String,
    address: String,
}

/// Where a write can be done.
enum Route {
    Here,
    There { name: String, address: String },
}

impl Router {
    /// A router without connections yet.
    #[must_use]
    pub fn new(core: Core) -> Self {
        let pages = Pages::new(core.clone());
        Self { core, channels: Arc::default(), pages }
    }

    /// The lists that are being read.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The manager that keeps the list of a page; `None` = this one.
    ///
    /// # Errors
    /// [`Reason::PageTokenExpired`] when that manager is unknown, or the call was passed on once already.
    pub(crate) fn keeper<Q>(&self, request: &Request<Q>, page: &Page) -> Result<Option<Peer>, ApiError> {
        let Some(after) = page.after.as_ref().filter(|after| after.manager != self.core.name.as_str()) else {
            return Ok(None);
        };
        let (name, address) = (after.manager.clone(), self.core.api_address(&after.manager));
        if address.is_empty() || request.metadata().contains_key(FORWARDED_BY) {
            return Err(expired(&name));
        }
        Ok(Some(Peer { name, address }))
    }

    /// Asks the keeper of a list for its next page.
    ///
    /// # Errors
    /// Those of the read, and [`Reason::PageTokenExpired`] when the keeper does not answer.
    pub(crate) async fn ask<Q, A, F, FF>(
        &self,
        keeper: &Peer,
        body: Q,
        forward: F,
    ) -> Result<Response<A>, Status>
    where
        F: FnOnce(Channel, Request<Q>) -> FF,
        FF: Future<Output = Result<Response<A>, Status>>,
    {
        let gone = |_| Status::from(expired(&keeper.name));
        let channel = self.channel(&keeper.address).await.map_err(gone)?;
        let mut request = self.mark(body);
        request.set_timeout(FORWARD_DEADLINE);
        match tokio::time::timeout(FORWARD_DEADLINE, forward(channel, request)).await {
            Ok(Err(status)) if !ApiError::is_ours(&status) => {
                lock(&self.channels).remove(&keeper.address);
                Err(gone(String::new()))
            }
            Ok(answer) => answer,
            Err(_) => Err(gone(String::new())),
        }
    }

    /// Runs a write here when this manager leads, else at the leader.
    ///
    /// Tries again, for a short while, as long as it is certain that nothing was done.
    ///
    /// # Errors
    /// Those of the write, and [`Reason::NoLeader`].
    pub async fn write<Q, A, L, LF, F, FF>(
        &self,
        request: Request<Q>,
        local: L,
        forward: F,
    ) -> Result<Response<A>, Status>
    where
        Q: Clone,
        L: Fn(Q) -> LF,
        LF: Future<Output = Result<A, ApiError>>,
        F: Fn(Channel, Request<Q>) -> FF,
        FF: Future<Output = Result<Response<A>, Status>>,
    {
        let forwarded = request.metadata().contains_key(FORWARDED_BY);
        let body = request.into_inner();
        let give_up = self.core.clock.monotonic().saturating_add(PATIENCE);
        loop {
            let result = match self.route(give_up).await? {
                Route::Here => local(body.clone()).await.map(Response::new).map_err(Status::from),
                Route::There { name, .. } if forwarded => return Err(self.second_hop(&name).into()),
                Route::There { name, address } => self.pass_on(&name, &address, body.clone(), &forward).await,
            };
            match result {
                Err(status) if self.core.clock.monotonic() < give_up && nothing_done(&status) => {
                    self.wait_for_change(give_up).await
                }
                done => return done,
            }
        }
    }

    /// The way to the leader for a stream; `None` when this manager leads.
    ///
    /// # Errors
    /// [`Reason::NoLeader`], and [`Reason::NotLeader`] when the call was passed on once already.
    pub(crate) async fn leader<Q>(&self, request: &Request<Q>) -> Result<Option<Channel>, Status> {
        let forwarded = request.metadata().contains_key(FORWARDED_BY);
        match self.route(self.core.clock.monotonic().saturating_add(PATIENCE)).await? {
            Route::Here => Ok(None),
            Route::There { name, .. } if forwarded => Err(self.second_hop(&name).into()),
            Route::There { name, address } => {
                let channel = self.channel(&address).await;
                Ok(Some(channel.map_err(|why| self.unreachable(&name, &address, &why))?))
            }
        }
    }

    /// The body as a call that this manager passes on.
    pub(crate) fn mark<Q>(&self, body: Q) -> Request<Q> {
        let mut request = Request::new(body);
        if let Ok(me) = AsciiMetadataValue::try_from(self.core.name.as_str()) {
            request.metadata_mut().insert(FORWARDED_BY, me);
        }
        request
    }

    /// Waits until a leader is known.
    async fn route(&self, give_up: Mono) -> Result<Route, Status> {
        let mut leadership = self.core.node.leadership();
        let known = leadership.wait_for(|l| l.me || l.leader.is_some());
        let left = give_up.since(self.core.clock.monotonic());
        let Ok(Ok(now)) = tokio::time::timeout(left, known).await.map(|r| r.map(|l| l.clone())) else {
            return Err(self.core.no_leader().into());
        };
        if now.me {
            return Ok(Route::Here);
        }
        let name = now.leader.map(|l| l.name).unwrap_or_default();
        let address = self.core.api_address(&name);
        if address.is_empty() {
            return Err(self.core.no_leader().into());
        }
        Ok(Route::There { name, address })
    }

    /// Lets the next change of leadership come, a short while at the most.
    async fn wait_for_change(&self, give_up: Mono) {
        let mut leadership = self.core.node.leadership();
        leadership.mark_unchanged();
        let pause = give_up.since(self.core.clock.monotonic()).min(Duration::from_millis(20));
        let _quiet = tokio::time::timeout(pause, leadership.changed()).await;
    }

    fn second_hop(&self, leader: &str) -> ApiError {
        ApiError::new(
            Reason::NotLeader,
            "the call was passed on once already and this manager does not lead any more",
        )
        .with("manager", self.core.name.as_str())
        .with("leader", leader)
        .with("leader_address", self.core.api_address(leader))
        .after(crate::core::RETRY_AFTER)
    }

    async fn pass_on<Q, A, F, FF>(
        &self,
        name: &str,
        address: &str,
        body: Q,
        forward: &F,
    ) -> Result<Response<A>, Status>
    where
        F: Fn(Channel, Request<Q>) -> FF,
        FF: Future<Output = Result<Response<A>, Status>>,
    {
        let channel = self.channel(address).await.map_err(|why| {
            metrics::api_forwarded("unreachable", 1);
            self.unreachable(name, address, &why)
        })?;
        let mut request = self.mark(body);
        request.set_timeout(FORWARD_DEADLINE);
        let call = tokio::time::timeout(FORWARD_DEADLINE, forward(channel, request))
            .map(|answer| answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))));
        let result = while_it_leads(name, self.core.node.leadership(), call).await;
        metrics::api_forwarded(if result.is_ok() { "ok" } else { "failed" }, 1);
        result.map_err(|status| {
            if ApiError::is_ours(&status) {
                return status;
            }
            lock(&self.channels).remove(address);
            if never_connected(&status) {
                return self.unreachable(name, address, "the connection was refused");
            }
            // The connection broke under the call: the leader may have done it.
            let text = format!(
                "the connection to the leader {name} broke: the write may or may not have been done; \
                 try again with the same request id to find out"
            );
            ApiError::new(Reason::CommitTimeout, text).with("manager", self.core.name.as_str()).into()
        })
    }

    fn unreachable(&self, name: &str, address: &str, why: &str) -> Status {
        ApiError::new(Reason::NoLeader, format!("the leader {name} cannot be reached at {address}: {why}"))
            .with("manager", self.core.name.as_str())
            .after(crate::core::RETRY_AFTER)
            .into()
    }

    /// A connected channel: dialling apart from calling keeps "not reached" apart from "outcome unknown".
    async fn channel(&self, address: &str) -> Result<Channel, String> {
        if let Some(channel) = lock(&self.channels).get(address) {
            return Ok(channel.clone());
        }
        let endpoint = self.core.security.endpoint(Profile::Api, address).map_err(|e| e.to_string())?;
        let connected = tokio::time::timeout(CONNECT_DEADLINE, endpoint.connect()).await;
        let channel = match connected {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("no answer".to_owned()),
        };
        let mut channels = lock(&self.channels);
        // Managers are few; whatever is beyond them is an old address.
        if channels.len() >= 16 {
            channels.clear();
        }
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// The answer to a call at the leader `name`, or that it was deposed: a frozen one would keep the call until its deadline.
async fn while_it_leads<T>(
    name: &str,
    mut leadership: watch::Receiver<Leadership>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let deposed = leadership.wait_for(|l| l.leader.as_ref().is_none_or(|l| l.name != name));
    tokio::select! {
        answer = call => answer,
        _ = deposed => Err(Status::unavailable("it does not lead any more")),
    }
}

/// Whether an error is certain to mean that nothing was done and that another try may succeed.
fn nothing_done(status: &Status) -> bool {
    ApiError::is_ours(status)
        && matches!(ApiError::from_status(status).reason, Reason::NoLeader | Reason::NotLeader)
}

/// Whether the call failed while its channel was being connected: it never left this machine.
fn never_connected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use quorate_model::{RaftId, Term};
    use quorate_raft::LeaderInfo;

    use super::*;

    fn led_by(term: u64, name: Option<&str>) -> Leadership {
        let leader =
            name.map(|name| LeaderInfo { id: RaftId(1), name: name.to_owned(), addr: String::new() });
        Leadership { term: Term(term), leader, me: false }
    }

    #[tokio::test]
    async fn a_call_that_a_frozen_leader_keeps_ends_when_it_does_not_lead_any_more() {
        for next in [Some("m2"), None] {
            let (tell, leadership) = watch::channel(led_by(1, Some("m1")));
            let never = std::future::pending::<Result<(), Status>>();
            let mut call = std::pin::pin!(while_it_leads("m1", leadership, never));
            assert!(poll!(call.as_mut()).is_pending());
            tell.send_replace(led_by(2, Some("m1")));
            assert!(poll!(call.as_mut()).is_pending(), "it leads again");
            tell.send_replace(led_by(3, next));
            let std::task::Poll::Ready(Err(status)) = poll!(call) else { panic!("it waits for {next:?}") };
            assert_eq!(status.code(), tonic::Code::Unavailable);
        }
    }
}
