//! `ReadLogs`.

use std::{collections::BTreeSet, time::Duration};

use futures::TryFutureExt as _;
use quorate_base::{
    Backoff,
    tasks::{TaskGroup, TaskKind},
};
use quorate_model::{Name, TaskId, TaskState};
use quorate_wire::{
    agent::{self as agent, relay_order::Order, relay_request::Body},
    api::{self as pb, task_service_client::TaskServiceClient},
    status::{ApiError, Reason},
};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use tracing::debug;

use crate::api::output::{Answers, Gone, Output};

use super::{
    PATIENCE, Placed, Relays, lost,
    merge::{self, Piece},
    passed_on, placed,
    select::{MOST_TASKS, Query, Source},
};

/// Pieces of one task that may wait to be merged.
const AHEAD: usize = 4;
/// Tasks of one node that are read at once for one reader.
const MOST_PER_NODE: usize = 32;
/// How long a change of the job's tasks may go unnoticed by who follows it.
const LOOK: Duration = Duration::from_millis(500);
/// How long an agent may say nothing to who does not follow.
const SILENCE: Duration = Duration::from_secs(10);
/// Between tries to reach the agent of a task that is followed.
const AGAIN: Backoff = Backoff::doubling(Duration::from_millis(200), Duration::from_secs(5));

impl Relays {
    /// Reads logs, here or at the leader.
    pub(in crate::api) async fn read_logs(
        &self,
        request: Request<pb::ReadLogsRequest>,
    ) -> Result<Response<Answers<pb::ReadLogsResponse>>, Status> {
        let query = Query::read(request.get_ref())?;
        if let Some(leader) = self.router.leader(&request).await? {
            let request = self.router.mark(request.into_inner());
            let answers = TaskServiceClient::new(leader).read_logs(request).await.map_err(lost)?;
            return Ok(Response::new(passed_on(answers.into_inner())));
        }
        let leading = self.leading()?;
        let view = self.core.view(None).await?;
        let sources = query.sources(&view)?;
        if let ([only], true, false) = (sources.as_slice(), query.is_single(), query.follow) {
            // Nothing to read is an error here, not an empty log.
            placed(&view, only.task.clone())?;
        }
        let room = self.room()?;
        let (output, answers) = Output::new(PATIENCE);
        let reader = Reader { relays: self.clone(), group: leading.group.clone(), query, output };
        leading.group.spawn(TaskKind::best_effort("logs"), async move {
            // The reader went away, or was told why it ends.
            let _gone = reader.run(sources).await;
            drop(room);
            Ok::<(), std::convert::Infallible>(())
        });
        Ok(Response::new(answers))
    }
}

/// One call, on the leader.
struct Reader {
    relays: Relays,
    group: TaskGroup,
    query: Query,
    output: Output<pb::ReadLogsResponse>,
}

impl Reader {
    async fn run(mut self, sources: Vec<Source>) -> Result<(), Gone> {
        let meta = Some(self.relays.core.meta(&self.relays.core.node.view()));
        self.output.send(pb::ReadLogsResponse { meta, ..Default::default() }).await?;
        let (sources, left_out) = bounded(sources);
        if !left_out.is_empty() {
            let notices = left_out.iter().map(|source| notice(source, TOO_MANY, true)).collect();
            self.output.send(pb::ReadLogsResponse { notices, ..Default::default() }).await?;
        }
        if self.query.follow { self.follow(sources).await } else { self.merge(sources).await }
    }

    /// What was written so far, by time.
    async fn merge(mut self, sources: Vec<Source>) -> Result<(), Gone> {
        let single = self.query.is_single();
        let (fail, mut failed) = mpsc::channel(1);
        let mut pieces = Vec::new();
        for source in sources {
            let (send, receive) = mpsc::channel(AHEAD);
            pieces.push(receive);
            let (relays, fail) = (self.relays.clone(), fail.clone());
            self.group.spawn(TaskKind::best_effort("log"), async move {
                let read = read(&relays, &source, &mut None, &send, Some(SILENCE)).await;
                match read {
                    Ok(()) | Err(Trouble::Gone) => {}
                    Err(Trouble::Failed(error)) if single => {
                        let _gone = fail.try_send(error);
                    }
                    Err(Trouble::Failed(error)) => {
                        let _gone = send.send(Piece::Notice(notice(&source, &error.message, true))).await;
                    }
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        drop(fail);
        merge::by_time(pieces, &mut self.output).await?;
        self.output.end(failed.recv().await);
        Ok(())
    }

    /// What is written from now on, too; tasks that come later join.
    async fn follow(mut self, sources: Vec<Source>) -> Result<(), Gone> {
        let (send, mut pieces) = mpsc::channel(AHEAD);
        let mut known: BTreeSet<TaskId> = BTreeSet::new();
        let mut next = sources;
        let mut applied = self.relays.core.node.applied();
        loop {
            for source in next.drain(..) {
                if known.insert(source.task.id) {
                    self.spawn_follower(source, send.clone());
                }
            }
            applied.mark_unchanged();
            let view = self.relays.core.node.view();
            // One strong end is ours: followers are those beyond it.
            let idle = send.strong_count() == 1;
            if idle && pieces.is_empty() && !self.query.awaits_more(&view) {
                self.output.end(None);
                return Ok(());
            }
            tokio::select! {
                () = self.output.closed() => return Err(Gone::Left),
                piece = pieces.recv() => {
                    let Some(piece) = piece else { return Ok(()) };
                    merge::as_it_comes(piece, &mut pieces, &mut self.output).await?;
                }
                // Bounded in how often it looks: a busy cluster changes a thousand times per second.
                () = self.relays.core.clock.sleep(LOOK) => {
                    let view = self.relays.core.node.view();
                    match self.query.sources(&view) {
                        Ok(sources) if known.len() < MOST_TASKS => next = sources,
                        Ok(_) => {}
                        // The job was purged.
                        Err(error) if !self.query.is_single() => debug!(%error, "the job is gone"),
                        Err(_) => {}
                    }
                }
            }
        }
    }

    fn spawn_follower(&self, source: Source, send: mpsc::Sender<Piece>) {
        let relays = self.relays.clone();
        self.group.spawn(TaskKind::best_effort("log"), async move {
            // A reader that is gone is no trouble.
            let _gone = follow(&relays, source, &send).await;
            Ok::<(), std::convert::Infallible>(())
        });
    }
}

const TOO_MANY: &str = "not read: too many tasks at once; ask for it alone";

/// The sources that are read, and those that are too many.
fn bounded(sources: Vec<Source>) -> (Vec<Source>, Vec<Source>) {
    let mut per_node = std::collections::BTreeMap::new();
    let mut count = 0;
    sources.into_iter().partition(|source| {
        let here = per_node.entry(source.task.node).or_insert(0_usize);
        *here += 1;
        let taken = *here <= MOST_PER_NODE && count < MOST_TASKS;
        count += usize::from(taken);
        taken
    })
}

/// Why a log was not read to its end.
enum Trouble {
    Gone,
    Failed(ApiError),
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Reads one task's log through one relay. `cursor` follows what was handed on.
async fn read(
    relays: &Relays,
    source: &Source,
    cursor: &mut Option<String>,
    send: &mpsc::Sender<Piece>,
    silence: Option<Duration>,
) -> Result<(), Trouble> {
    let view = relays.core.node.view();
    let task = view.task(source.task.id).cloned().unwrap_or_else(|| source.task.clone());
    let Placed { node, name, .. } = placed(&view, task)?;
    let mut order = source.order.clone();
    if let Some(cursor) = cursor {
        (order.cursor, order.tail) = (cursor.clone(), None);
    }
    let mut link = relays.dispatcher.open_relay(node, &name, Order::Logs(order)).await?;
    loop {
        let said = match silence {
            None => tokio::select! {
                () = send.closed() => return Err(Trouble::Gone),
                said = link.hear() => said?,
            },
            Some(limit) => tokio::time::timeout(limit, link.hear()).await.map_err(|_| cut_off(&name))??,
        };
        let piece = match said {
            Some(Body::Done(_)) => return Ok(()),
            // Also a broken connection looks like this.
            None => return Err(cut_off(&name).into()),
            Some(Body::Lines(lines)) => {
                let lines: Vec<_> = lines.lines.into_iter().map(|l| line(source, name.as_str(), l)).collect();
                let Some(last) = lines.last() else { continue };
                let reached = last.cursor.clone();
                send.send(Piece::Lines(lines)).await.map_err(|_| Trouble::Gone)?;
                *cursor = Some(reached);
                continue;
            }
            Some(Body::Notice(text)) => Piece::Notice(notice(source, &text, false)),
            Some(_) => continue,
        };
        send.send(piece).await.map_err(|_| Trouble::Gone)?;
    }
}

fn cut_off(node: &Name) -> ApiError {
    let text = format!("the agent of node {node} stopped in the middle of the log");
    ApiError::new(Reason::AgentUnreachable, text).with("node", node)
}

/// Follows one task until it has ended and everything was handed on, over lost agents and late starts.
async fn follow(relays: &Relays, source: Source, send: &mpsc::Sender<Piece>) -> Result<(), Gone> {
    let mut delays = AGAIN.delays(quorate_base::rand::Rng::from_entropy());
    let (mut cursor, mut said) = (None, String::new());
    loop {
        let before = cursor.clone();
        let outcome = read(relays, &source, &mut cursor, send, None).await;
        if cursor != before {
            delays.reset();
            said.clear();
        }
        let view = relays.core.node.view();
        let state = view.task(source.task.id).map(|t| t.status.state);
        let ended = state.is_none_or(TaskState::is_terminal);
        match outcome {
            Err(Trouble::Gone) => return Err(Gone::Left),
            Ok(()) if ended => {
                let text = state.map_or("it is forgotten".to_owned(), |state| format!("it is {state}"));
                return tell(send, &source, &text, true).await;
            }
            Ok(()) => {}
            Err(Trouble::Failed(error)) => {
                let passing = matches!(
                    error.reason,
                    Reason::AgentUnreachable | Reason::TaskNotRunning | Reason::Overloaded
                ) || !ended
                    && matches!(error.reason, Reason::LogNotFound | Reason::TaskNotFound);
                if !passing || ended && error.reason != Reason::AgentUnreachable {
                    return tell(send, &source, &error.message, true).await;
                }
                if said != error.message {
                    tell(send, &source, &error.message, false).await?;
                    said = error.message;
                }
            }
        }
        tokio::select! {
            () = send.closed() => return Err(Gone::Left),
            () = relays.core.clock.sleep(delays.next_delay()) => {}
        }
    }
}

fn tell(
    send: &mpsc::Sender<Piece>,
    source: &Source,
    text: &str,
    ended: bool,
) -> impl Future<Output = Result<(), Gone>> + use<> {
    let (send, piece) = (send.clone(), Piece::Notice(notice(source, text, ended)));
    async move { send.send(piece).map_err(|_| Gone::Left).await }
}

fn notice(source: &Source, text: &str, ended: bool) -> pb::LogNotice {
    pb::LogNotice { task: source.task.id.to_string(), text: text.to_owned(), ended }
}

fn line(source: &Source, node: &str, line: agent::RelayLine) -> pb::LogLine {
    let stream = if line.stderr { pb::LogStream::Stderr } else { pb::LogStream::Stdout };
    pb::LogLine {
        task: source.task.id.to_string(),
        slot: source.task.slot.0,
        node: node.to_owned(),
        time: line.time,
        stream: stream.into(),
        data: line.data,
        unfinished: line.unfinished,
        cursor: line.cursor,
    }
}
