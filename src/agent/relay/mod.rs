//! Relays: what the leader asks of this agent beside the session. Logs, commands, signals, digests of images.
//!
//! The leader asks for one over the session; the agent dials the same manager, on a connection of its own, so that a
//! reader that does not read holds up nothing else. One relay carries one order, in a task of its own, through bounded
//! queues; it ends when either end ends, when a newer leader is obeyed, or with the agent.

mod exec;
mod logs;
mod once;

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use quorate_base::{TaskGroup, TaskKind};
use quorate_model::{Name, RuntimeKind, TaskEvent, TaskEventKind, TaskId};
use quorate_pki::{Profile, Security};
use quorate_wire::agent::agent_service_client::AgentServiceClient;
use quorate_wire::agent::relay_order::Order;
use quorate_wire::agent::{
    Fence, RelayDone, RelayFault, RelayHello, RelayRequest, RelayResponse, ResolvedImage, SignalOrder,
    relay_request, relay_response,
};
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::runner::Core;
use crate::runtime::{Runtime, Work};
use crate::worker::Worker;
use once::Once;

/// Relays of one agent at once.
const MOST: usize = 64;
/// Relays beyond that whose refusal is being told.
const MOST_REFUSED: usize = 64;
/// Messages to a manager that may wait in one relay.
const OUTBOX: usize = 4;
/// The longest that a manager may take to take the call and to say its order.
const ORDER: Duration = Duration::from_secs(5);
/// How long what was said last may wait to be read: longer than managers wait for their own readers (30 s), so that the end
/// of a log is not lost on a slow one.
const LAST_WORDS: Duration = Duration::from_secs(40);
/// How often a relay looks whether a newer leader is obeyed.
const FENCE: Duration = Duration::from_millis(500);

/// Serves relays.
#[derive(Debug)]
pub(crate) struct Relays {
    core: Arc<Core>,
    worker: Arc<Worker>,
    security: Security,
    node: Name,
    tasks: TaskGroup,
    seats: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    /// Signals that were sent.
    once: Once,
}

/// An open relay: the way to the manager.
#[derive(Debug, Clone)]
struct Speaker(mpsc::Sender<RelayRequest>);

/// The manager went away.
#[derive(Debug)]
struct Gone;

/// Why an order was not carried out to its end.
#[derive(Debug)]
enum Ended {
    Gone,
    Failed(ApiError),
}

impl From<Gone> for Ended {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl Speaker {
    async fn say(&self, body: relay_request::Body) -> Result<(), Gone> {
        self.0.send(RelayRequest { body: Some(body) }).await.map_err(|_| Gone)
    }
}

impl Relays {
    pub(crate) fn new(
        core: Arc<Core>,
        worker: Arc<Worker>,
        security: Security,
        node: Name,
        tasks: TaskGroup,
    ) -> Self {
        let (seats, refusals) = (Arc::new(Semaphore::new(MOST)), Arc::new(Semaphore::new(MOST_REFUSED)));
        Self { core, worker, security, node, tasks, seats, refusals, once: Once::default() }
    }

    /// Dials the manager at `address` for the relay that it asked for. Returns at once.
    pub(crate) fn open(self: &Arc<Self>, address: &str, relay_id: String) {
        let seat = Arc::clone(&self.seats).try_acquire_owned().ok();
        let refusal = if seat.is_none() { Arc::clone(&self.refusals).try_acquire_owned().ok() } else { None };
        if seat.is_none() && refusal.is_none() {
            // The manager hears of it by its own deadline.
            tracing::warn!(address, "too many relays: not dialled");
            return;
        }
        let (relays, address) = (Arc::clone(self), address.to_owned());
        self.tasks.spawn(TaskKind::best_effort("relay"), async move {
            relays.relay(&address, relay_id, seat).await?;
            drop(refusal);
            Ok::<(), Status>(())
        });
    }

    async fn relay(
        &self,
        address: &str,
        relay_id: String,
        seat: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Status> {
        let fence = self.core.ledger.read().fence;
        let call = tokio::time::timeout(ORDER, self.dial(address, relay_id)).await;
        let late = |_| Status::deadline_exceeded(format!("{address} gave no order within 5s"));
        let (speaker, mut heard, order) = call.map_err(late)??;
        let serving = async {
            match order {
                _ if seat.is_none() => {
                    let text = format!("this agent serves {MOST} logs and commands already");
                    Err(Ended::Failed(ApiError::new(Reason::Overloaded, text)))
                }
                Order::Exec(order) => self.exec(order, &speaker, &mut heard).await,
                other => tokio::select! {
                    served = self.serve(other, &speaker) => served,
                    () = ended(&mut heard) => Err(Ended::Gone),
                },
            }
        };
        let served = tokio::select! {
            served = serving => served,
            () = self.superseded(fence) => {
                let text = "a newer leader is obeyed by now: ask again";
                Err(Ended::Failed(ApiError::new(Reason::AgentUnreachable, text)))
            }
        };
        if let Err(Ended::Failed(ApiError { reason, message, .. })) = served {
            let fault = RelayFault { reason: reason.as_str().to_owned(), message };
            let said = speaker.say(relay_request::Body::Fault(fault));
            let _gone = tokio::time::timeout(LAST_WORDS, said).await;
        }
        farewell(speaker, &mut heard).await;
        Ok(())
    }

    async fn dial(
        &self,
        address: &str,
        relay_id: String,
    ) -> Result<(Speaker, Streaming<RelayResponse>, Order), Status> {
        let endpoint = self.security.endpoint(Profile::Agent, address);
        let endpoint = endpoint.map_err(|error| Status::unavailable(format!("cannot dial: {error}")))?;
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| Status::unavailable(format!("cannot connect: {error}")))?;
        let (outbound, messages) = mpsc::channel(OUTBOX);
        let speaker = Speaker(outbound);
        let hello = RelayHello { relay_id, node: self.node.to_string() };
        // Its queue is empty, and the other end is here.
        let _ = speaker.say(relay_request::Body::Hello(hello)).await;
        let mut heard =
            AgentServiceClient::new(channel).relay(ReceiverStream::new(messages)).await?.into_inner();
        match heard.message().await?.and_then(|message| message.body) {
            Some(relay_response::Body::Order(order)) => match order.order {
                Some(order) => Ok((speaker, heard, order)),
                None => {
                    let message = "this agent does not know the order: upgrade it".to_owned();
                    let fault = RelayFault { reason: Reason::Unsupported.as_str().to_owned(), message };
                    let _gone = speaker.say(relay_request::Body::Fault(fault)).await;
                    farewell(speaker, &mut heard).await;
                    Err(Status::unimplemented("an order of an unknown kind"))
                }
            },
            _ => Err(Status::invalid_argument("the first word of a relay was no order")),
        }
    }

    async fn serve(&self, order: Order, speaker: &Speaker) -> Result<(), Ended> {
        match order {
            Order::Logs(order) => {
                self.logs(order, speaker).await?;
                // Without it the manager takes the log for one that was cut off.
                Ok(speaker.say(relay_request::Body::Done(RelayDone {})).await?)
            }
            Order::Signal(order) => {
                self.signal(&order).await?;
                Ok(speaker.say(relay_request::Body::Done(RelayDone {})).await?)
            }
            Order::Resolve(order) => {
                let runtime = self.core.runtimes.get(RuntimeKind::Docker);
                let runtime = runtime.or_else(|| self.core.runtimes.get(RuntimeKind::Fake));
                let Some(runtime) = runtime else {
                    let text = "this node has no runtime with images";
                    return Err(ApiError::new(Reason::Unsupported, text).into());
                };
                let digest = runtime.resolve(&order.image).await?;
                Ok(speaker.say(relay_request::Body::Image(ResolvedImage { digest })).await?)
            }
            // Served by itself: it listens, too.
            Order::Exec(_) => Ok(()),
        }
    }

    /// A task of this node, with what runs it.
    fn task(&self, id: u64) -> Result<(Work, Arc<dyn Runtime>), ApiError> {
        let unknown =
            || ApiError::new(Reason::TaskNotFound, format!("node {} does not have task t{id}", self.node));
        let found = self.worker.find(TaskId(id)).ok_or_else(unknown)?;
        found.map_err(|text| ApiError::new(Reason::TaskNotRunning, text))
    }

    async fn signal(&self, order: &SignalOrder) -> Result<(), ApiError> {
        let (work, runtime) = self.task(order.task_id)?;
        let signal = signal(&order.signal)?;
        let send = async {
            runtime.signal(&work.unit, signal).await?;
            self.note_signal(work.unit.task, signal);
            Ok(())
        };
        self.once.run(&order.request_id, send).await
    }

    /// Enters it into the task's history and reports it, though the task's state does not change.
    fn note_signal(&self, task: TaskId, signal: Signal) {
        let core = &self.core;
        let (kind, code, at) = (TaskEventKind::Signaled, Some(signal as i32), core.clock.now());
        core.ledger.change_if(|contents| {
            let Some(held) = contents.tasks.get_mut(&task) else { return ((), false) };
            let status = &mut held.record.status;
            if status.state.is_terminal() {
                return ((), false);
            }
            *status =
                status.clone().with_event(TaskEvent { kind, at, code, detail: Some(signal.as_str().into()) });
            status.seq = core.next_seq(status.seq);
            core.reporter.report(task, status.clone());
            ((), true)
        });
    }

    async fn superseded(&self, fence: Fence) {
        while self.core.ledger.read().fence <= fence {
            self.core.clock.sleep(FENCE).await;
        }
    }
}

/// Lets the manager read what was said: dropping the call at once would take it back. One that reads nothing any more is
/// not waited for.
async fn farewell(speaker: Speaker, heard: &mut Streaming<RelayResponse>) {
    drop(speaker);
    let _late = tokio::time::timeout(LAST_WORDS, ended(heard)).await;
}

/// Returns when the manager says nothing more.
async fn ended(heard: &mut Streaming<RelayResponse>) {
    while let Ok(Some(_)) = heard.message().await {}
}

/// A signal by its name.
fn signal(name: &str) -> Result<Signal, ApiError> {
    Signal::from_str(name).map_err(|_| {
        let text = format!("{name:?} is no signal of this node: names are those of kill(1), such as SIGHUP");
        ApiError::new(Reason::ArgumentInvalid, text)
    })
}
