//! Talks to agents: they dial, the leader answers.
//!
//! Any manager accepts the dial; one that does not lead answers with a
//! redirect and ends the stream. The leader sends the complete set of the
//! node's tasks first, then chained increments, and writes the statuses that
//! come back to the log before it acknowledges them.

pub(crate) mod memory;
pub(crate) mod relay;
mod session;
mod set;
mod statuses;

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::Stream;
use quorate_base::{
    id::RequestIds,
    rand::Rng,
    sync::lock,
    tasks::{TaskGroup, TaskKind},
};
use quorate_model::{NodeId, NodeStatus};
use quorate_raft::Update;
use quorate_state::{Object, State};
use quorate_telemetry::metrics;
use quorate_wire::agent::{
    self as pb, agent_service_server::AgentService, session_request, session_response,
};
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use crate::core::{Core, Leading};

/// Messages to one agent that may wait; an agent that does not read is cut off.
const OUTBOX: usize = 64;
/// How long a dialled agent may take to say who it is.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);

/// One agent's session, as the rest of the dispatcher sees it.
#[derive(Clone)]
pub(crate) struct Handle {
    /// Its tasks changed.
    dirty: Arc<Notify>,
    /// A newer session of the node took over.
    superseded: CancellationToken,
    /// Messages to its agent, as long as the session lives.
    outbox: mpsc::WeakSender<Result<pb::SessionResponse, Status>>,
}

type Outbox = mpsc::Sender<Result<pb::SessionResponse, Status>>;

/// The sessions of this manager.
#[derive(Clone)]
pub struct Dispatcher {
    core: Core,
    leading: watch::Receiver<Option<Leading>>,
    sessions: Arc<Mutex<BTreeMap<NodeId, Handle>>>,
    relays: Arc<relay::Relays>,
    memory: Arc<memory::Memory>,
    /// How often an agent gets the complete set within its session, whether it asks for it or not.
    resync: Duration,
}

impl Dispatcher {
    /// A dispatcher that answers with redirects until duties run.
    #[must_use]
    pub fn new(core: Core, leading: watch::Receiver<Option<Leading>>, resync: Duration) -> Self {
        let ids = RequestIds::new(core.clock.clone(), Rng::from_entropy());
        let (sessions, memory) = (Arc::default(), Arc::default());
        Self { core, leading, sessions, relays: Arc::new(relay::Relays::new(ids)), memory, resync }
    }

    /// Starts to wake sessions at changes of their tasks, in the term's group.
    pub(crate) fn start_term(&self, core: &Core, group: &TaskGroup) {
        lock(&self.sessions).clear();
        self.memory.clear();
        let updates = core.node.updates();
        group.spawn(TaskKind::critical("dispatch"), wake(self.sessions.clone(), updates));
    }

    /// Enters a session; an older one of the node ends.
    fn enter(&self, node: NodeId, outbox: &Outbox) -> Handle {
        let handle = Handle {
            dirty: Arc::default(),
            superseded: CancellationToken::new(),
            outbox: outbox.downgrade(),
        };
        let mut sessions = lock(&self.sessions);
        if let Some(old) = sessions.insert(node, handle.clone()) {
            old.superseded.cancel();
        }
        metrics::agent_sessions(sessions.len());
        handle
    }

    /// Removes a session, unless a newer one has taken its place.
    fn leave(&self, node: NodeId, handle: &Handle) {
        let mut sessions = lock(&self.sessions);
        if sessions.get(&node).is_some_and(|h| Arc::ptr_eq(&h.dirty, &handle.dirty)) {
            sessions.remove(&node);
            self.memory.forget(node);
        }
        metrics::agent_sessions(sessions.len());
    }

    /// What agents told in passing.
    pub(crate) fn memory(&self) -> &memory::Memory {
        &self.memory
    }

    /// The nodes that have a session.
    pub(crate) fn connected(&self) -> Vec<NodeId> {
        lock(&self.sessions).keys().copied().collect()
    }

    /// What the duties of this term share, while this manager leads.
    pub(crate) fn leading(&self) -> Option<Leading> {
        self.leading.borrow().clone()
    }

    fn redirect(&self) -> pb::SessionResponse {
        let view = self.core.node.view();
        let leader = self.core.node.leadership().borrow().leader.clone().map(|l| l.name).unwrap_or_default();
        let leader_address = view.manager_named(&leader).map(|m| m.agent_addr.clone()).unwrap_or_default();
        let body = session_response::Body::Redirect(pb::Redirect {
            leader_address,
            managers: agent_addresses(&view),
        });
        pb::SessionResponse { body: Some(body) }
    }
}

/// Where agents reach the managers.
fn agent_addresses(view: &State) -> Vec<String> {
    view.managers().map(|m| m.agent_addr.clone()).filter(|a| !a.is_empty()).collect()
}

/// Marks the sessions whose tasks changed.
async fn wake(
    sessions: Arc<Mutex<BTreeMap<NodeId, Handle>>>,
    mut updates: broadcast::Receiver<Update>,
) -> Result<(), std::convert::Infallible> {
    loop {
        match updates.recv().await {
            Ok(Update::Changed { events, .. }) => {
                let sessions = lock(&sessions);
                for event in events.iter() {
                    match &event.object {
                        Object::Task(task) => {
                            if let Some(handle) = task.node.and_then(|node| sessions.get(&node)) {
                                handle.dirty.notify_one();
                            }
                        }
                        // It was heard too late: it has to register again.
                        Object::Node(node) if node.status == NodeStatus::Down => {
                            if let Some(handle) = sessions.get(&node.id) {
                                handle.superseded.cancel();
                            }
                        }
                        Object::Node(_) | Object::Job(_) | Object::Manager(_) | Object::Settings(_) => {}
                    }
                }
            }
            Ok(Update::Replaced { .. }) | Err(broadcast::error::RecvError::Lagged(_)) => {
                lock(&sessions).values().for_each(|handle| handle.dirty.notify_one());
            }
            Err(broadcast::error::RecvError::Closed) => return Ok(()),
        }
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<pb::SessionResponse, Status>> + Send>>;

#[tonic::async_trait]
impl AgentService for Dispatcher {
    type SessionStream = Answers;
    type RelayStream = ReceiverStream<Result<pb::RelayResponse, Status>>;

    async fn relay(
        &self,
        request: Request<Streaming<pb::RelayRequest>>,
    ) -> Result<Response<Self::RelayStream>, Status> {
        self.take_relay(request).await
    }

    async fn session(
        &self,
        request: Request<Streaming<pb::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(HELLO_DEADLINE, inbound.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no hello within 5s"))??;
        let Some(session_request::Body::Hello(hello)) = first.and_then(|m| m.body) else {
            return Err(Status::invalid_argument("the first message of a session must be a hello"));
        };
        let Some(leading) = self.leading.borrow().clone() else {
            let answer = futures::stream::iter([Ok(self.redirect())]);
            return Ok(Response::new(Box::pin(answer)));
        };
        let (outbox, answers) = mpsc::channel(OUTBOX);
        let session = session::Session::new(self.clone(), leading.clone(), outbox, inbound);
        leading.group.spawn(TaskKind::best_effort("session").drains(), async move {
            if let Err(error) = session.run(hello).await {
                warn!(%error, "an agent's session ended");
            }
            Ok::<(), std::convert::Infallible>(())
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
