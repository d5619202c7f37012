//! The body of a session: sets in, heartbeats and statuses out.

use futures::future::BoxFuture;
use quorate_base::{Mono, Timestamp};
use quorate_model::TaskId;
use quorate_wire::agent::{
    AssignmentSet, Heartbeat, Report, SessionRequest, StatusBatch, session_request, session_response,
};
use tokio::sync::mpsc::error::SendError;

use super::link::Link;
use super::set::Set;
use super::{End, Session, SessionState, Welcome};
use crate::worker::Changes;

/// Statuses in one message: some hundred kilobytes at most.
const BATCH: usize = 500;

/// What a message asks for.
enum Taken {
    /// Statuses were acknowledged.
    Acknowledged,
    /// Nothing is left to do.
    Passed,
    /// These changes are to be applied, resulting in this set.
    Apply(Changes, Applied),
}

/// A set as it is told to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Applied {
    number: u64,
    hash: u64,
}

/// The state of a conversation.
struct Talk<'a> {
    set: Set,
    /// The set that is being applied, one after the other. Meanwhile nothing is read, but heartbeats go on.
    applying: Option<BoxFuture<'a, (Applied, bool)>>,
    /// The newest set that is applied.
    applied: Applied,
    /// Whether a complete set was applied.
    stands: bool,
    /// The measurement that was sent last, by its moment.
    measured: Option<Timestamp>,
    /// When the next heartbeat is due.
    beat: Mono,
    /// Since when statuses wait for an acknowledgement without any coming.
    unacknowledged: Option<Mono>,
}

impl Session {
    /// Until the session ends.
    pub(super) async fn converse(&self, address: &str, mut link: Link, welcome: Welcome) -> End {
        let clock = &self.core.clock;
        let outbound = link.outbound();
        let mut offer = self.core.runtimes.offer();
        offer.mark_unchanged();
        let beat = clock.monotonic().saturating_add(welcome.heartbeat);
        let mut conditions = self.machine.conditions();
        conditions.mark_unchanged();
        let mut talk = Talk {
            set: Set::default(),
            applying: None,
            applied: Applied::default(),
            stands: false,
            measured: None,
            beat,
            unacknowledged: None,
        };
        loop {
            let patience = talk.unacknowledged.map(|since| since.saturating_add(welcome.lease));
            let reading = talk.applying.is_none();
            let body = tokio::select! {
                message = link.next(), if reading => {
                    match message.and_then(|message| self.take(address, &mut talk.set, message)) {
                        Ok(taken) => self.follow(&mut talk, taken),
                        Err(end) => return end,
                    }
                    continue;
                }
                (applied, complete) = pending_or(talk.applying.as_mut()) => {
                    (talk.applying, talk.applied) = (None, applied);
                    if complete && !std::mem::replace(&mut talk.stands, true) {
                        self.stands(address, &welcome.leader);
                    }
                    continue;
                }
                () = clock.sleep_until(talk.beat) => {
                    talk.beat = clock.monotonic().saturating_add(welcome.heartbeat);
                    session_request::Body::Heartbeat(self.heartbeat(&mut talk))
                }
                permit = async { self.core.reporter.ready().await; outbound.reserve().await } => match permit {
                    Ok(_permit) => {
                        talk.unacknowledged.get_or_insert_with(|| clock.monotonic());
                        session_request::Body::Status(self.batch())
                    }
                    Err(SendError(())) => return End::Broken("the session broke".to_owned()),
                },
                // An error means that the other end is gone: then the agent ends.
                Ok(()) = offer.changed() => session_request::Body::Facts((&self.facts()).into()),
                Ok(()) = conditions.changed() => session_request::Body::Facts((&self.facts()).into()),
                () = pending_or(patience.map(|deadline| Box::pin(clock.sleep_until(deadline)))), if reading => {
                    return End::Broken("it acknowledges no status: it cannot commit".to_owned());
                }
            };
            // A queue that stays full for a lease is a connection that is dead and does not know it.
            let sent = tokio::select! {
                sent = outbound.send(SessionRequest { body: Some(body) }) => sent.is_ok(),
                () = clock.sleep(welcome.lease) => false,
            };
            if !sent {
                return End::Broken("the session broke".to_owned());
            }
        }
    }

    fn follow<'a>(&'a self, talk: &mut Talk<'a>, taken: Taken) {
        match taken {
            Taken::Passed => {}
            Taken::Acknowledged => {
                let open = self.core.reporter.sent() > 0;
                talk.unacknowledged = open.then(|| self.core.clock.monotonic());
            }
            Taken::Apply(changes, applied) => {
                let complete = changes.complete;
                talk.applying = Some(Box::pin(async move {
                    self.worker.apply(changes).await;
                    (applied, complete)
                }));
            }
        }
    }

    fn stands(&self, address: &str, leader: &str) {
        tracing::info!(address, leader, tasks = self.worker.count(), "session stands");
        self.state
            .send_replace(SessionState::Connected { address: address.to_owned(), leader: leader.to_owned() });
    }

    fn heartbeat(&self, talk: &mut Talk<'_>) -> Heartbeat {
        let usage = self.machine.usage().filter(|usage| talk.measured != Some(usage.at));
        if let Some(usage) = &usage {
            talk.measured = Some(usage.at);
        }
        Heartbeat {
            applied_sequence: talk.applied.number,
            set_hash: talk.applied.hash,
            usage: usage.map(|usage| usage.told),
            progress: self.worker.progress(),
            orphans: self.worker.orphans(),
        }
    }

    fn batch(&self) -> StatusBatch {
        let batch = self.core.reporter.take(BATCH);
        let statuses = batch.into_iter().map(|(task, status)| (&Report { task, status }).into()).collect();
        StatusBatch { statuses }
    }

    fn take(&self, address: &str, set: &mut Set, message: session_response::Body) -> Result<Taken, End> {
        match message {
            session_response::Body::Complete(complete) => self.changes(set, complete, true),
            session_response::Body::Increment(increment) => self.changes(set, increment, false),
            session_response::Body::Ack(ack) => {
                for mark in ack.marks {
                    self.core.reporter.acknowledge(TaskId(mark.task_id), mark.seq);
                }
                Ok(Taken::Acknowledged)
            }
            session_response::Body::Redirect(redirect) => Err(self.redirected(address, redirect)),
            session_response::Body::Refusal(refusal) => {
                Err(End::Refused(format!("{}: {}", refusal.reason, refusal.message)))
            }
            session_response::Body::OpenRelay(open) => {
                self.relays.open(address, open.relay_id);
                Ok(Taken::Passed)
            }
            session_response::Body::Welcome(_) => Err(End::Broken("it said welcome twice".to_owned())),
        }
    }

    fn changes(&self, set: &mut Set, message: AssignmentSet, complete: bool) -> Result<Taken, End> {
        self.check_fence(message.fence.unwrap_or_default())?;
        let number = message.results_in;
        let changes = set.take(message, complete).map_err(End::Gap)?;
        Ok(Taken::Apply(changes, Applied { number, hash: set.hash() }))
    }
}

/// Awaits what there is; without anything it waits for ever.
async fn pending_or<T>(future: Option<impl Future<Output = T> + Unpin>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
