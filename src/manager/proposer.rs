//! The only writer: packs what waits into shared log entries.
//!
//! One entry carries many commands, each with its own answer, so a busy
//! manager pays one replication round for hundreds of writes. The queue is
//! bounded: when it is full the caller is told at once.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use quorate_base::{tasks::TaskGroup, time::Clock};
use quorate_model::{Revision, Term};
use quorate_raft::{Node, ProposeError, Reply};
use quorate_state::{Actor, Command, Envelope, Receipt, Rejection, Request};
use quorate_telemetry::metrics;
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, debug};

/// Commands that may wait.
const QUEUE: usize = 8192;
/// Commands in one entry.
const BATCH: usize = 512;
/// Bytes in one entry, well below what peers accept in one message.
const BATCH_BYTES: usize = 1 << 20;
/// Entries under way at once.
const IN_FLIGHT: usize = 32;
/// How long a caller waits for its command before it is told that the outcome is unknown.
const DEADLINE: Duration = Duration::from_secs(10);

/// A committed and applied command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Revision of the write; of the first try when this was a retry.
    pub revision: Revision,
    /// What it gave.
    pub receipt: Receipt,
}

/// Why a write has no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The state machine refused it; nothing was changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// This manager is not the leader; nothing was done.
    #[error("this manager is not the leader")]
    NotLeader,
    /// It may or may not have been done.
    #[error("the outcome of the write is unknown")]
    Unknown,
    /// One log entry cannot hold it; nothing was done.
    #[error("the write has {bytes} bytes, but one log entry holds {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Too many writes wait; nothing was done.
    #[error("too many writes wait on this manager")]
    Overloaded,
    /// This manager is stopping; nothing was done.
    #[error("this manager is stopping")]
    Stopped,
}

impl WriteError {
    /// One fixed word per kind, for metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::NotLeader => "not_leader",
            Self::Unknown => "unknown",
            Self::TooLarge { .. } => "too_large",
            Self::Overloaded => "overloaded",
            Self::Stopped => "stopped",
        }
    }
}

struct Ask {
    envelope: Envelope,
    bytes: usize,
    answer: oneshot::Sender<Result<Committed, WriteError>>,
}

/// Cheap handle of the write path.
#[derive(Clone)]
pub struct Proposer {
    queue: mpsc::Sender<Ask>,
    clock: Clock,
}

impl Proposer {
    /// Starts the packing task in `group`.
    pub fn start(node: Node, clock: Clock, group: &TaskGroup) -> Self {
        let (queue, asks) = mpsc::channel(QUEUE);
        group.spawn(quorate_base::tasks::TaskKind::critical("proposer"), pack(node, clock.clone(), asks));
        Self { queue, clock }
    }

    /// Writes on behalf of a client. `bytes` is about the size of the encoded command.
    ///
    /// # Errors
    /// [`WriteError`]; its variants say what is known of the outcome.
    pub async fn submit(
        &self,
        actor: Actor,
        request: Option<Request>,
        command: Command,
        bytes: usize,
    ) -> Result<Committed, WriteError> {
        let request_id = request.as_ref().map(|request| tracing::field::display(request.id.clone()));
        // At every level: the lines within keep their request id.
        let span = tracing::error_span!("write", request_id);
        let told = async {
            let written = self.send(actor, request, None, command, bytes).await;
            match &written {
                Ok(committed) => debug!(revision = committed.revision.0, "written"),
                Err(error) => debug!(%error, "not written"),
            }
            written
        };
        told.instrument(span).await
    }

    /// Writes what a controller planned in `term`; refused in any other term.
    ///
    /// # Errors
    /// [`WriteError`]
    pub async fn submit_fenced(
        &self,
        actor: Actor,
        term: Term,
        command: Command,
    ) -> Result<Committed, WriteError> {
        let bytes = rough_size(&command);
        self.send(actor, None, Some(term), command, bytes).await
    }

    async fn send(
        &self,
        actor: Actor,
        request: Option<Request>,
        fence: Option<Term>,
        command: Command,
        bytes: usize,
    ) -> Result<Committed, WriteError> {
        let envelope =
            Envelope { proposed_at: self.clock.now(), fence, actor, request, trace: None, command };
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Ask { envelope, bytes, answer }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => WriteError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => WriteError::Stopped,
        })?;
        metrics::raft_proposals_pending(QUEUE.saturating_sub(self.queue.capacity()));
        match tokio::time::timeout(DEADLINE, answered).await {
            Ok(Ok(result)) => result,
            // The task ended with the command in its hands, or time is up: it may have been done.
            Ok(Err(_)) | Err(_) => Err(WriteError::Unknown),
        }
    }
}

#[cfg(test)]
impl Proposer {
    /// A proposer in front of this one that answers the first command of each kind with `error` itself.
    pub(crate) fn failing_once(&self, error: WriteError, group: &TaskGroup) -> Self {
        let (queue, mut asks) = mpsc::channel::<Ask>(QUEUE);
        let rest = self.queue.clone();
        let answer = async move {
            let mut failed = std::collections::BTreeSet::new();
            while let Some(ask) = asks.recv().await {
                if failed.insert(ask.envelope.command.kind().number()) {
                    let _gone = ask.answer.send(Err(error.clone()));
                } else {
                    rest.send(ask).await.map_err(|_| WriteError::Stopped)?;
                }
            }
            Ok::<(), WriteError>(())
        };
        group.spawn(quorate_base::tasks::TaskKind::critical("failing proposer"), answer);
        Self { queue, clock: self.clock.clone() }
    }
}

/// About how many bytes a controller's command takes in the log.
fn rough_size(command: &Command) -> usize {
    const PER_ITEM: usize = 12;
    const PER_REPORT: usize = 128;
    match command {
        Command::AssignTasks { placements } => placements.len() * PER_ITEM,
        Command::SetDesired { tasks, .. }
        | Command::OrphanTasks { tasks }
        | Command::RemoveTasks { tasks }
        | Command::RestartTasks { tasks } => tasks.len() * PER_ITEM,
        Command::ExplainTasks { groups } => groups.iter().map(|(_, t)| 512 + t.len() * PER_ITEM).sum(),
        Command::ReportStatuses { reports, .. } => {
            reports.iter().map(|r| PER_REPORT + r.status.reason.len() + r.status.instance.len()).sum()
        }
        Command::CreateTasks { groups, .. } => groups.len() * 2 * PER_ITEM,
        Command::RegisterNode { facts, .. } => {
            512 + facts.labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>()
        }
        Command::ApplyJob { .. } => 16 << 10,
        Command::ScaleJob { .. }
        | Command::DeleteJob { .. }
        | Command::SetJobStatus { .. }
        | Command::ForgetJob { .. }
        | Command::SetNodeStatus { .. }
        | Command::UpsertManager { .. }
        | Command::RemoveManager { .. }
        | Command::UpdateSettings { .. }
        | Command::InitCluster { .. } => 512,
    }
}

async fn pack(
    node: Node,
    clock: Clock,
    mut asks: mpsc::Receiver<Ask>,
) -> Result<(), std::convert::Infallible> {
    let mut in_flight = FuturesUnordered::new();
    let mut held: Option<Ask> = None;
    loop {
        let free = in_flight.len() < IN_FLIGHT;
        // What was held back goes first, and stays held while there is no room.
        let ready = if free { held.take() } else { None };
        let first = match ready {
            Some(ask) => ask,
            None => tokio::select! {
                biased;
                Some(()) = in_flight.next(), if !in_flight.is_empty() => continue,
                ask = asks.recv(), if free => match ask {
                    Some(ask) => ask,
                    None => break,
                },
            },
        };
        let mut bytes = first.bytes;
        let mut batch = vec![first];
        while batch.len() < BATCH {
            let Ok(ask) = asks.try_recv() else { break };
            bytes += ask.bytes;
            if bytes > BATCH_BYTES {
                held = Some(ask);
                break;
            }
            batch.push(ask);
        }
        in_flight.push(commit(node.clone(), clock.clone(), batch));
    }
    while in_flight.next().await.is_some() {}
    Ok(())
}

/// Proposes one entry and hands out the answers.
async fn commit(node: Node, clock: Clock, batch: Vec<Ask>) {
    let (envelopes, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(|a| (a.envelope, a.answer)).unzip();
    let started = clock.monotonic();
    let count = answers.len() as u64;
    let before = node.view().applied().index;
    match node.propose(envelopes).await {
        Ok(results) => {
            metrics::raft_commit_duration(clock.monotonic().since(started));
            metrics::raft_proposals_committed(count);
            // Older than the entry: the answer is that of an earlier call.
            let replays = results.iter().filter(|(revision, _)| *revision <= before).count();
            if replays > 0 {
                metrics::api_idempotent_replays(replays as u64);
            }
            for (answer, reply) in answers.into_iter().zip(results) {
                // A caller that gave up has no ear; the write is done all the same.
                let _gone = answer.send(committed(reply));
            }
        }
        Err(error) => {
            let error = match error {
                ProposeError::NotLeader { .. } => WriteError::NotLeader,
                ProposeError::TooLarge { bytes, limit } => WriteError::TooLarge { bytes, limit },
                ProposeError::Unknown | ProposeError::Stopped => WriteError::Unknown,
            };
            metrics::raft_proposals_failed(error.word(), count);
            for answer in answers {
                let _gone = answer.send(Err(error.clone()));
            }
        }
    }
}

fn committed((revision, outcome): Reply) -> Result<Committed, WriteError> {
    Ok(Committed { revision, receipt: outcome? })
}
