//! Relays: streams of their own with an agent, for what is no business of the session.
//!
//! Agents open no port, so the leader asks over the session ([`pb::OpenRelay`]) and the agent dials back with the
//! relay's id. One relay carries one order: a log, a command, a signal, the digest of an image.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use quorate_base::{id::RequestIds, sync::lock};
use quorate_model::{Name, NodeId};
use quorate_wire::{
    agent::{self as pb, relay_request, relay_response, session_response},
    status::{ApiError, Reason},
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::dispatcher::Dispatcher;

/// Relays that may wait for their agents at once.
const MOST_WAITING: usize = 1024;
/// How long an agent may take to dial back.
const DIAL_DEADLINE: Duration = Duration::from_secs(5);
/// Messages to an agent that may wait in one relay.
const OUTBOX: usize = 16;

/// The leader's end of a relay. Dropping it ends the relay, and with it what the agent does.
pub(crate) struct Link {
    say: mpsc::Sender<Result<pb::RelayResponse, Status>>,
    hear: Streaming<pb::RelayRequest>,
    node: Name,
}

/// A relay that its agent has not dialled yet.
struct Waiting {
    node: Name,
    order: pb::RelayOrder,
    taken: oneshot::Sender<Link>,
}

/// Relays that wait for their agents.
pub(super) struct Relays {
    ids: RequestIds,
    waiting: Mutex<BTreeMap<String, Waiting>>,
}

/// Takes a relay off the list when nobody waits for it any more.
struct Entry<'a> {
    relays: &'a Relays,
    id: &'a str,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        lock(&self.relays.waiting).remove(self.id);
    }
}

impl Relays {
    pub(super) fn new(ids: RequestIds) -> Self {
        Self { ids, waiting: Mutex::default() }
    }
}

impl Dispatcher {
    /// Whether a node's agent has a session here.
    pub(crate) fn has_session(&self, node: NodeId) -> bool {
        lock(&self.sessions).contains_key(&node)
    }

    /// Opens a relay with a node's agent, which begins with `order`. Only the leader has sessions.
    ///
    /// # Errors
    /// [`Reason::AgentUnreachable`] when the agent has no session here or does not dial back, [`Reason::Overloaded`]
    /// when too many relays wait.
    pub(crate) async fn open_relay(
        &self,
        node: NodeId,
        name: &Name,
        order: pb::relay_order::Order,
    ) -> Result<Link, ApiError> {
        let Some(handle) = lock(&self.sessions).get(&node).cloned() else {
            let text = format!("the agent of node {name} has no session with the leader");
            return Err(unreachable(name, text));
        };
        let id = self.relays.ids.generate().to_string();
        let (taken, link) = oneshot::channel();
        let order = pb::RelayOrder { order: Some(order) };
        {
            let mut waiting = lock(&self.relays.waiting);
            if waiting.len() >= MOST_WAITING {
                let error =
                    ApiError::new(Reason::Overloaded, "too many agents are being asked at the moment");
                return Err(error.after(crate::core::RETRY_AFTER));
            }
            waiting.insert(id.clone(), Waiting { node: name.clone(), order, taken });
        }
        let _entry = Entry { relays: &self.relays, id: &id };
        let body = session_response::Body::OpenRelay(pb::OpenRelay { relay_id: id.clone() });
        let message = Ok(pb::SessionResponse { body: Some(body) });
        let asked = match handle.outbox.upgrade() {
            Some(outbox) => outbox.send_timeout(message, DIAL_DEADLINE).await.is_ok(),
            None => false,
        };
        if !asked {
            return Err(unreachable(name, format!("the session of node {name} ended")));
        }
        match tokio::time::timeout(DIAL_DEADLINE, link).await {
            Ok(Ok(link)) => Ok(link),
            _ => Err(unreachable(name, format!("the agent of node {name} did not dial back within 5s"))),
        }
    }

    /// An agent dials: gives its relay to who waits for it.
    pub(super) async fn take_relay(
        &self,
        request: Request<Streaming<pb::RelayRequest>>,
    ) -> Result<Response<ReceiverStream<Result<pb::RelayResponse, Status>>>, Status> {
        let mut hear = request.into_inner();
        let first = tokio::time::timeout(DIAL_DEADLINE, hear.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no hello within 5s"))??;
        let Some(relay_request::Body::Hello(hello)) = first.and_then(|m| m.body) else {
            return Err(Status::invalid_argument("the first message of a relay must be a hello"));
        };
        let waiting = {
            let mut all = lock(&self.relays.waiting);
            let meant = all.get(&hello.relay_id).is_some_and(|waiting| waiting.node.as_str() == hello.node);
            if meant { all.remove(&hello.relay_id) } else { None }
        };
        let Some(Waiting { node, order, taken }) = waiting else {
            return Err(Status::not_found("nobody waits for this relay on this manager and node"));
        };
        let (say, answers) = mpsc::channel(OUTBOX);
        let order = pb::RelayResponse { body: Some(relay_response::Body::Order(order)) };
        // A fresh channel has room.
        let _full = say.try_send(Ok(order));
        let _gone = taken.send(Link { say, hear, node });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

fn unreachable(node: &Name, text: String) -> ApiError {
    ApiError::new(Reason::AgentUnreachable, text).with("node", node)
}

/// What a message of an agent means to who gave the order.
pub(crate) type Said = Option<relay_request::Body>;

impl Link {
    /// The next word of the agent; `None` at the end of the relay.
    ///
    /// # Errors
    /// The fault that the agent names, or [`Reason::AgentUnreachable`] when the stream breaks.
    pub(crate) async fn hear(&mut self) -> Result<Said, ApiError> {
        hear(&mut self.hear, &self.node).await
    }

    /// Both directions apart, to be used at the same time.
    pub(crate) fn split(self) -> (Speaker, Listener) {
        (Speaker(self.say), Listener { hear: self.hear, node: self.node })
    }
}

/// The way to the agent. Dropping it ends the relay.
pub(crate) struct Speaker(mpsc::Sender<Result<pb::RelayResponse, Status>>);

impl Speaker {
    /// Says something to the agent. False when the relay has ended.
    pub(crate) async fn say(&self, body: relay_response::Body) -> bool {
        self.0.send(Ok(pb::RelayResponse { body: Some(body) })).await.is_ok()
    }
}

/// The way from the agent.
pub(crate) struct Listener {
    hear: Streaming<pb::RelayRequest>,
    node: Name,
}

impl Listener {
    /// As [`Link::hear`].
    ///
    /// # Errors
    /// As [`Link::hear`].
    pub(crate) async fn hear(&mut self) -> Result<Said, ApiError> {
        hear(&mut self.hear, &self.node).await
    }
}

async fn hear(stream: &mut Streaming<pb::RelayRequest>, node: &Name) -> Result<Said, ApiError> {
    match stream.message().await {
        Ok(Some(pb::RelayRequest { body: Some(relay_request::Body::Fault(fault)) })) => {
            let reason = Reason::from_word(&fault.reason).unwrap_or(Reason::Internal);
            Err(ApiError::new(reason, fault.message).with("node", node))
        }
        Ok(Some(message)) => Ok(message.body),
        Ok(None) => Ok(None),
        Err(status) => {
            Err(unreachable(node, format!("the stream with node {node} broke: {}", status.message())))
        }
    }
}
