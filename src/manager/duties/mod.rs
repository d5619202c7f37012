//! What the leader does, in three phases: elected → barrier applied → duties start.
//!
//! All duties of a term run in one task group, bound to the term, and are gone
//! before the next one can start. They keep no memory that decides: a new
//! leader goes on from the state alone.

mod controller;
pub mod liveness;
mod members;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use quorate_base::tasks::{TaskGroup, TaskKind};
use quorate_model::{Epoch, Name, Settings, Term};
use quorate_state::{Actor, Command, Rejection};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    core::{Core, Fence, Leading},
    dispatcher::Dispatcher,
    duties::liveness::Liveness,
    proposer::WriteError,
};

/// How long the duties of a term may take to end.
const STOP_DEADLINE: Duration = Duration::from_secs(2);
/// Pause after a failed start of duties.
const RETRY: Duration = Duration::from_millis(50);

/// Follows the leadership and runs the duties while this manager leads.
pub struct Duties {
    core: Core,
    dispatcher: Dispatcher,
    leading: watch::Sender<Option<Leading>>,
    initial: Settings,
}

impl Duties {
    /// Starts following in `group`; the result tells what services need while duties run.
    pub fn start(
        core: Core,
        dispatcher: Dispatcher,
        initial: Settings,
        leading: watch::Sender<Option<Leading>>,
        group: &TaskGroup,
    ) {
        let duties = Self { core, dispatcher, leading, initial };
        let terms = group.child("duties");
        group.spawn(TaskKind::critical("leadership").drains(), duties.follow(terms));
    }

    async fn follow(self, terms: TaskGroup) -> Result<(), std::convert::Infallible> {
        let mut leadership = self.core.node.leadership();
        loop {
            let now = leadership.borrow_and_update().clone();
            if now.me && !terms.is_cancelled() {
                let term = terms.child(&format!("term-{}", now.term));
                let lost = leadership.wait_for(|l| !l.me || l.term != now.term);
                tokio::select! {
                    biased;
                    () = terms.cancelled() => {}
                    _ = lost => {}
                    () = self.lead(now.term, &term) => {}
                }
                self.leading.send_replace(None);
                let report = term.shutdown(STOP_DEADLINE).await;
                info!(term = now.term.0, clean = report.is_clean(), "leader duties ended");
                continue;
            }
            tokio::select! {
                biased;
                () = terms.cancelled() => return Ok(()),
                changed = leadership.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    /// Runs until the term's group fails; the caller ends it when leadership is lost.
    async fn lead(&self, term: Term, group: &TaskGroup) {
        info!(term = term.0, "elected; waiting until everything before this term is applied");
        while let Err(error) = self.core.node.read_index().await {
            warn!(term = term.0, %error, "the barrier of the new term failed; trying again");
            tokio::time::sleep(RETRY).await;
        }
        while let Err(error) = self.prepare(term).await {
            warn!(term = term.0, %error, "the leader's first writes failed; trying again");
            tokio::time::sleep(RETRY).await;
        }
        let view = self.core.node.view();
        let fence = Fence { epoch: view.epoch(), term };
        let liveness = Arc::new(Liveness::new(self.core.clock.clone()));
        let leading = Leading { fence, group: group.clone(), liveness: liveness.clone() };
        members::start(&self.core, term, group);
        controller::start(&self.core, term, liveness, group);
        self.dispatcher.start_term(&self.core, group);
        self.leading.send_replace(Some(leading));
        info!(term = term.0, revision = view.applied().index.0, "leader duties started");
        let failure = group.failed().await;
        warn!(term = term.0, %failure, "a leader duty failed; starting all of them again");
    }

    /// Names a new cluster and gives it its first settings.
    async fn prepare(&self, term: Term) -> Result<(), WriteError> {
        let view = self.core.node.view();
        if view.cluster().is_some() {
            return Ok(());
        }
        let actor = Actor::Manager(self.core.name.clone());
        let settings = Command::UpdateSettings { settings: self.initial.clone() };
        self.core.proposer.submit_fenced(actor.clone(), term, settings).await?;
        let identity = self.core.node.identity();
        // A leader was elected, so the cluster was formed, so it has its identity.
        let Some(cluster) = identity.cluster else { return Err(WriteError::Unknown) };
        let init = Command::InitCluster { cluster, epoch: Epoch(identity.epoch) };
        match self.core.proposer.submit_fenced(actor, term, init).await {
            Ok(_) | Err(WriteError::Rejected(Rejection::AlreadyInitialised)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The actor of a manager's own commands.
fn actor(name: &Name) -> Actor {
    Actor::Manager(name.clone())
}
