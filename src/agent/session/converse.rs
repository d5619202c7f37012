//! The body of a session: sets in, heartbeats and statuses out.

use quorate_base::Mono;
use quorate_model::TaskId;
use quorate_wire::agent::{
    AssignmentSet, Heartbeat, Report, SessionRequest, StatusBatch, session_request, session_response,
};
use tokio::sync::mpsc::error::SendError;

use super::link::Link;
use super::set::Set;
use super::{End, Session, SessionState, Welcome};

/// Statuses in one message: some hundred kilobytes at most.
const BATCH: usize = 500;

impl Session {
    /// Until the session ends.
    pub(super) async fn converse(&self, address: &str, mut link: Link, welcome: Welcome) -> End {
        let clock = &self.core.clock;
        let (mut set, outbound) = (Set::default(), link.outbound());
        let mut offer = self.core.runtimes.offer();
        offer.mark_unchanged();
        let mut beat = clock.monotonic().saturating_add(welcome.heartbeat);
        // Since when statuses wait for an acknowledgement without any coming.
        let mut unacknowledged: Option<Mono> = None;
        loop {
            let patience = unacknowledged.map(|since| since.saturating_add(welcome.lease));
            let (body, sends_status) = tokio::select! {
                message = link.next() => match self.take(address, &welcome, &mut set, message).await {
                    Ok(acknowledged) => {
                        if acknowledged {
                            let open = self.core.reporter.sent() > 0;
                            unacknowledged = open.then(|| clock.monotonic());
                        }
                        continue;
                    }
                    Err(end) => return end,
                },
                () = clock.sleep_until(beat) => {
                    beat = clock.monotonic().saturating_add(welcome.heartbeat);
                    (session_request::Body::Heartbeat(Heartbeat { applied_sequence: set.number().unwrap_or(0) }), false)
                }
                permit = async { self.core.reporter.ready().await; outbound.reserve().await } => match permit {
                    Ok(_permit) => (session_request::Body::Status(self.batch()), true),
                    Err(SendError(())) => return End::Broken("the session broke".to_owned()),
                },
                _ = offer.changed() => return End::FactsChanged,
                () = async {
                    match patience {
                        Some(deadline) => clock.sleep_until(deadline).await,
                        None => std::future::pending().await,
                    }
                } => return End::Broken("it acknowledges no status: it cannot commit".to_owned()),
            };
            if sends_status && unacknowledged.is_none() {
                unacknowledged = Some(clock.monotonic());
            }
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

    fn batch(&self) -> StatusBatch {
        let batch = self.core.reporter.take(BATCH);
        let statuses = batch.into_iter().map(|(task, status)| (&Report { task, status }).into()).collect();
        StatusBatch { statuses }
    }

    /// Deals with a message; whether it was an acknowledgement.
    async fn take(
        &self,
        address: &str,
        welcome: &Welcome,
        set: &mut Set,
        message: Result<session_response::Body, End>,
    ) -> Result<bool, End> {
        match message? {
            session_response::Body::Complete(complete) => {
                self.apply(set, complete, true).await?;
                let leader = welcome.leader.clone();
                tracing::info!(%address, %leader, tasks = self.worker.count(), "session stands");
                self.state.send_replace(SessionState::Connected { address: address.to_owned(), leader });
                Ok(false)
            }
            session_response::Body::Increment(increment) => {
                self.apply(set, increment, false).await?;
                Ok(false)
            }
            session_response::Body::Ack(ack) => {
                for mark in ack.marks {
                    self.core.reporter.acknowledge(TaskId(mark.task_id), mark.seq);
                }
                Ok(true)
            }
            session_response::Body::Redirect(redirect) => {
                self.learn(redirect.managers);
                let leader =
                    Some(redirect.leader_address).filter(|leader| !leader.is_empty() && leader != address);
                Err(End::Redirected(leader))
            }
            session_response::Body::Refusal(refusal) => {
                Err(End::Refused(format!("{}: {}", refusal.reason, refusal.message)))
            }
            session_response::Body::Welcome(_) => Err(End::Broken("it said welcome twice".to_owned())),
        }
    }

    async fn apply(&self, set: &mut Set, message: AssignmentSet, complete: bool) -> Result<(), End> {
        self.check_fence(message.fence.unwrap_or_default())?;
        let changes = set.take(message, complete).map_err(End::Gap)?;
        self.worker.apply(changes).await;
        Ok(())
    }
}
