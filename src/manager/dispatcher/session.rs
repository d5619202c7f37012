//! One agent's session with the leader.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use quorate_base::rand::Rng;
use quorate_model::{InvalidList, Name, NodeFacts, NodeId, NodeStatus};
use quorate_state::{Actor, Command, Receipt, Rejection, State};
use quorate_telemetry::metrics;
use quorate_wire::{
    agent::{self as pb, session_request, session_response},
    common::duration,
};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use tracing::{info, warn};

use crate::{
    core::Leading,
    dispatcher::{
        Dispatcher, Handle, agent_addresses,
        set::{self, Told},
        statuses,
    },
    proposer::WriteError,
};

/// Changes of a node's tasks within this time go out as one message.
const QUIET: Duration = Duration::from_millis(1);
/// Status batches of one agent under way at once.
const REPORTS_IN_FLIGHT: usize = 8;
/// Messages of an agent that are still looked at after a newer session has taken over, for the count.
const MOST_LATE: usize = 64;
/// Heartbeats per lease.
const BEATS_PER_LEASE: u32 = 5;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// The agent went silent.
    #[error("agent {0} was silent for a whole lease")]
    Silent(Name),
    /// The stream broke.
    #[error("the stream broke: {0}")]
    Broken(Box<Status>),
    /// The agent does not read.
    #[error("the agent does not read its messages")]
    NotReading,
    /// The log could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The agent was refused.
    #[error("the agent was refused: {0}")]
    Refused(String),
}

/// The leader's end of a session.
pub(super) struct Session {
    dispatcher: Dispatcher,
    leading: Leading,
    outbox: mpsc::Sender<Result<pb::SessionResponse, Status>>,
    inbound: Streaming<pb::SessionRequest>,
}

/// What was told to the agent so far.
struct Stage {
    node: NodeId,
    name: Name,
    /// Identity of the agent's data directory.
    agent: String,
    lease: Duration,
    told: Told,
    sequence: u64,
}

impl Session {
    pub(super) fn new(
        dispatcher: Dispatcher,
        leading: Leading,
        outbox: mpsc::Sender<Result<pb::SessionResponse, Status>>,
        inbound: Streaming<pb::SessionRequest>,
    ) -> Self {
        Self { dispatcher, leading, outbox, inbound }
    }

    pub(super) async fn run(mut self, hello: pb::Hello) -> Result<(), SessionError> {
        let (node, name) = match self.register(&hello).await {
            Ok(registered) => registered,
            Err(SessionError::Refused(text)) => return Err(SessionError::Refused(text)),
            Err(error) => {
                // Most often: this manager just lost its leadership.
                self.send_body(redirect_body(&self.dispatcher)).await?;
                return Err(error);
            }
        };
        self.leading.liveness.heard(node);
        let handle = self.dispatcher.enter(node, &self.outbox);
        // Counted as lost between its registration and here, it has to register again.
        let view = self.dispatcher.core.node.view();
        if view.node(node).is_none_or(|n| n.status != NodeStatus::Ready) {
            self.dispatcher.leave(node, &handle);
            return self.send_body(redirect_body(&self.dispatcher)).await;
        }
        info!(node = %name, term = self.leading.fence.term.0, "agent session opened");
        let ended = self.serve((node, name.clone(), hello.agent_id), &handle).await;
        self.dispatcher.leave(node, &handle);
        info!(node = %name, "agent session closed");
        ended
    }

    /// Checks who dials and writes it to the log when it is news.
    async fn register(&self, hello: &pb::Hello) -> Result<(NodeId, Name), SessionError> {
        let view = self.dispatcher.core.node.view();
        let cluster = view.cluster().map(|c| c.to_string()).unwrap_or_default();
        if !hello.cluster_id.is_empty() && hello.cluster_id != cluster {
            let text = format!(
                "this agent belongs to cluster {}, these managers to cluster {cluster}: point it at its own managers, \
                 or give it an empty data directory to join this cluster",
                hello.cluster_id
            );
            return self.refuse("WRONG_CLUSTER", text).await;
        }
        let name = match Name::parse("node", &hello.node) {
            Ok(name) => name,
            Err(invalid) => return self.refuse("INVALID_FACTS", invalid.to_string()).await,
        };
        let facts = match hello.facts.clone().map(NodeFacts::try_from) {
            Some(Ok(facts)) => facts,
            Some(Err(invalid)) => return self.refuse("INVALID_FACTS", invalid.to_string()).await,
            None => return self.refuse("INVALID_FACTS", "facts: required".to_owned()).await,
        };
        if let Some(known) = view.node_named(&name)
            && known.agent == hello.agent_id
            && known.status == NodeStatus::Ready
            && known.facts == facts
        {
            return Ok((known.id, name));
        }
        // From here on it counts as heard: the controller may look before the answer is here. Another agent that
        // asks for the name renews nothing.
        if let Some(known) = view.node_named(&name)
            && known.agent == hello.agent_id
        {
            self.leading.liveness.heard(known.id);
        }
        let command =
            Command::RegisterNode { name: name.clone(), agent: hello.agent_id.clone(), facts: facts.into() };
        let actor = Actor::Agent(name.clone());
        let written =
            self.dispatcher.core.proposer.submit_fenced(actor, self.leading.fence.term, command).await;
        match written {
            Ok(committed) => match committed.receipt {
                Receipt::Node { id } => Ok((id, name)),
                other => self.refuse("INTERNAL", format!("unexpected receipt {other:?}")).await,
            },
            Err(WriteError::Rejected(rejection @ Rejection::NodeNameTaken { .. })) => {
                self.refuse("NODE_NAME_TAKEN", rejection.to_string()).await
            }
            Err(WriteError::Rejected(Rejection::Invalid(InvalidList(list)))) => {
                self.refuse("INVALID_FACTS", InvalidList(list).to_string()).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn serve(&mut self, who: (NodeId, Name, String), handle: &Handle) -> Result<(), SessionError> {
        let mut stage = self.open(who).await?;
        let mut reports = FuturesUnordered::new();
        let silence = tokio::time::sleep(stage.lease);
        tokio::pin!(silence);
        let clock = self.dispatcher.core.clock.clone();
        let resync = clock.sleep(self.until_resync());
        tokio::pin!(resync);
        loop {
            tokio::select! {
                biased;
                () = self.leading.group.cancelled() => {
                    // A last word, if there is room for it: the term's end waits for nobody.
                    let body = Some(redirect_body(&self.dispatcher));
                    let _full = self.outbox.try_send(Ok(pb::SessionResponse { body }));
                    return Ok(());
                }
                () = handle.superseded.cancelled() => {
                    self.discard();
                    return Ok(());
                }
                Some(done) = reports.next(), if !reports.is_empty() => {
                    let written: Result<pb::StatusAck, WriteError> = done;
                    // While the log was slow nothing was read: that is no silence of the agent.
                    self.leading.liveness.heard(stage.node);
                    silence.as_mut().reset(self.silent_at(&stage));
                    self.send_body(session_response::Body::Ack(written?)).await?;
                }
                message = self.inbound.message(), if reports.len() < REPORTS_IN_FLIGHT => {
                    let Some(message) = message.map_err(|s| SessionError::Broken(Box::new(s)))? else { return Ok(()) };
                    self.leading.liveness.heard(stage.node);
                    silence.as_mut().reset(self.silent_at(&stage));
                    match message.body {
                        Some(session_request::Body::Status(batch)) => reports.push(self.report(&stage, batch).await?),
                        Some(session_request::Body::Heartbeat(beat)) => self.heartbeat(&mut stage, beat).await?,
                        Some(session_request::Body::Facts(facts)) => {
                            self.changed(&stage, facts).await?;
                            silence.as_mut().reset(self.silent_at(&stage));
                        }
                        // A second hello says nothing new, and kinds that only newer agents know say nothing at all.
                        Some(session_request::Body::Hello(_)) | None => {}
                    }
                }
                () = handle.dirty.notified() => {
                    tokio::time::sleep(QUIET).await;
                    self.advance(&mut stage).await?;
                }
                () = &mut resync => {
                    self.complete(&mut stage, "periodic").await?;
                    resync.set(clock.sleep(self.until_resync()));
                }
                () = &mut silence, if reports.len() < REPORTS_IN_FLIGHT => return Err(SessionError::Silent(stage.name)),
            }
        }
    }

    /// When an agent that says nothing from now on was silent for a whole lease.
    fn silent_at(&self, stage: &Stage) -> tokio::time::Instant {
        let at = self.dispatcher.core.clock.monotonic().saturating_add(stage.lease);
        tokio::time::Instant::from_std(at.instant().into_std())
    }

    /// Welcome and the complete set.
    async fn open(&self, (node, name, agent): (NodeId, Name, String)) -> Result<Stage, SessionError> {
        let core = &self.dispatcher.core;
        let view = core.node.view();
        let lease = view.settings().node_lease;
        let welcome = pb::Welcome {
            fence: Some(self.fence()),
            cluster_id: view.cluster().map(|c| c.to_string()).unwrap_or_default(),
            leader: core.name.to_string(),
            heartbeat: Some(duration(lease / BEATS_PER_LEASE)),
            lease: Some(duration(lease)),
            managers: agent_addresses(&view),
            node_id: node.0,
        };
        self.send_body(session_response::Body::Welcome(welcome)).await?;
        let told = set::wanted(&view, node);
        let stage = Stage { node, name, agent, lease, told, sequence: 1 };
        self.tell(&view, &stage).await?;
        Ok(stage)
    }

    /// Tells what changed since the last message.
    async fn advance(&self, stage: &mut Stage) -> Result<(), SessionError> {
        let view = self.dispatcher.core.node.view();
        let wanted = set::wanted(&view, stage.node);
        let change = set::difference(&view, &stage.told, &wanted);
        if change.is_empty() {
            return Ok(());
        }
        let message = pb::AssignmentSet {
            fence: Some(self.fence()),
            applies_to: stage.sequence,
            results_in: stage.sequence + 1,
            assignments: change.assignments,
            removals: change.removals,
            set_hash: set::hash(&wanted),
        };
        stage.sequence += 1;
        stage.told = wanted;
        metrics::agent_assignments_sent("incremental", 1);
        self.send_body(session_response::Body::Increment(message)).await
    }

    /// Writes statuses to the log, beside the session's other work.
    async fn report(
        &self,
        stage: &Stage,
        batch: pb::StatusBatch,
    ) -> Result<impl Future<Output = Result<pb::StatusAck, WriteError>> + use<>, SessionError> {
        let count = batch.statuses.len();
        if count > statuses::MAX_BATCH {
            metrics::agent_statuses_refused("too-many", count as u64);
            let text = format!("a batch of {count} statuses is too large: at most {}", statuses::MAX_BATCH);
            return self.refuse("BATCH_TOO_LARGE", text).await;
        }
        let core = self.dispatcher.core.clone();
        Ok(statuses::write(core, self.leading.clone(), stage.node, stage.name.clone(), batch))
    }

    /// What a heartbeat tells. An agent that holds another set than the newest one that it was told gets it anew.
    async fn heartbeat(&self, stage: &mut Stage, beat: pb::Heartbeat) -> Result<(), SessionError> {
        let differs = beat.applied_sequence == stage.sequence && beat.set_hash != set::hash(&stage.told);
        self.dispatcher.memory.note(stage.node, beat);
        if differs {
            warn!(node = %stage.name, sequence = stage.sequence, "the agent holds another set than it was told");
            self.complete(stage, "mismatch").await?;
        }
        Ok(())
    }

    /// The complete set, within a session: what runs as it should is not touched by it.
    async fn complete(&self, stage: &mut Stage, reason: &str) -> Result<(), SessionError> {
        metrics::agent_resyncs(reason, 1);
        let view = self.dispatcher.core.node.view();
        stage.told = set::wanted(&view, stage.node);
        stage.sequence += 1;
        self.tell(&view, stage).await
    }

    /// Sends all of `stage.told` under its number.
    async fn tell(&self, view: &State, stage: &Stage) -> Result<(), SessionError> {
        let complete = set::difference(view, &Told::new(), &stage.told);
        let message = pb::AssignmentSet {
            fence: Some(self.fence()),
            applies_to: 0,
            results_in: stage.sequence,
            assignments: complete.assignments,
            removals: Vec::new(),
            set_hash: set::hash(&stage.told),
        };
        metrics::agent_assignments_sent("complete", 1);
        self.send_body(session_response::Body::Complete(message)).await
    }

    /// How long until the next complete set: not of all agents at once.
    fn until_resync(&self) -> Duration {
        let resync = self.dispatcher.resync;
        Rng::from_entropy().duration_between(resync - resync / 5, resync)
    }

    /// A node's machine changed.
    async fn changed(&self, stage: &Stage, facts: pb::NodeFacts) -> Result<(), SessionError> {
        let hello = pb::Hello {
            node: stage.name.to_string(),
            agent_id: stage.agent.clone(),
            facts: Some(facts),
            ..pb::Hello::default()
        };
        self.register(&hello).await.map(|_| ())
    }

    /// The words of a session that a newer one has replaced have no effect; statuses among them are counted.
    fn discard(&mut self) {
        for _ in 0..MOST_LATE {
            let Some(Ok(Some(message))) = self.inbound.message().now_or_never() else { return };
            if let Some(session_request::Body::Status(batch)) = message.body {
                metrics::agent_statuses_refused("superseded", batch.statuses.len() as u64);
            }
        }
    }

    fn fence(&self) -> pb::Fence {
        let fence = self.leading.fence;
        pb::Fence { epoch: fence.epoch.0, term: fence.term.0 }
    }

    async fn refuse<T>(&self, reason: &str, message: String) -> Result<T, SessionError> {
        let refusal = pb::Refusal { reason: reason.to_owned(), message: message.clone() };
        self.send_body(session_response::Body::Refusal(refusal)).await?;
        Err(SessionError::Refused(message))
    }

    /// An agent whose outbox stays full for a whole lease is cut off.
    async fn send_body(&self, body: session_response::Body) -> Result<(), SessionError> {
        let lease = self.dispatcher.core.node.view().settings().node_lease;
        let sent = self.outbox.send_timeout(Ok(pb::SessionResponse { body: Some(body) }), lease).await;
        sent.map_err(|_| SessionError::NotReading)
    }
}

fn redirect_body(dispatcher: &Dispatcher) -> session_response::Body {
    dispatcher.redirect().body.unwrap_or(session_response::Body::Redirect(pb::Redirect::default()))
}
