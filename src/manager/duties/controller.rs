//! Drives the reconcilers: signal, snapshot, plan, propose, again.
//!
//! Level-triggered and single-flight. A pass that changed something is
//! followed by another, until nothing is left to do; then the driver sleeps
//! until the state changes or a plan's own time has come.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use quorate_base::{
    tasks::{TaskGroup, TaskKind},
    time::Timestamp,
};
use quorate_model::{Revision, Term};
use quorate_orchestrator::{Outcome, Reconciler, Tick, registry};
use quorate_state::{Command, Receipt, State};
use quorate_telemetry::metrics;
use tracing::{debug, warn};

use crate::{
    core::Core,
    duties::{actor, liveness::Liveness},
    proposer::{Committed, WriteError},
};

/// Changes within this time are answered by one pass.
const QUIET: Duration = Duration::from_millis(2);
/// A pass runs at least this often, whatever was missed.
const PERIOD: Duration = Duration::from_secs(5);
/// Pause after a refused or failed proposal, so that a wrong plan cannot spin.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Starts the driver in the term's group.
pub(super) fn start(core: &Core, term: Term, liveness: Arc<Liveness>, group: &TaskGroup) {
    let driver = Driver { core: core.clone(), term, liveness, reconcilers: Arc::new(registry()) };
    group.spawn(TaskKind::critical("controller"), driver.run());
}

struct Driver {
    core: Core,
    term: Term,
    liveness: Arc<Liveness>,
    reconcilers: Arc<Vec<Box<dyn Reconciler>>>,
}

/// What a pass found.
struct Pass {
    commands: Vec<Command>,
    wake_in: Duration,
    seen: Revision,
}

impl Driver {
    async fn run(self) -> Result<(), WriteError> {
        let mut applied = self.core.node.applied();
        loop {
            let pass = self.plan().await?;
            if pass.commands.is_empty() {
                let change = applied.wait_for(|now| *now > pass.seen);
                if let Ok(Err(_)) = tokio::time::timeout(pass.wake_in, change).await {
                    return Ok(());
                }
                tokio::time::sleep(QUIET).await;
                continue;
            }
            if !self.propose(pass.commands).await? {
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Plans off the async workers: a pass over a large state takes milliseconds.
    async fn plan(&self) -> Result<Pass, WriteError> {
        let view = self.core.node.view();
        let silence = self.liveness.silence(&view);
        let next_silence = silence.next;
        let clock_now = self.core.clock.now();
        let now = clock_now.max(view.now());
        let reconcilers = self.reconcilers.clone();
        let clock = self.core.clock.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let started = clock.monotonic();
            let outcome = reconcile(&reconcilers, &view, &Tick { now, overdue: &silence.overdue });
            metrics::scheduler_pass_duration(clock.monotonic().since(started));
            (outcome, view.applied().index)
        });
        let (outcome, seen) = planned.await.map_err(|_| WriteError::Stopped)?;
        let own = outcome.wake_at.map(|at| at.since(now));
        let wake_in = [own, next_silence].into_iter().flatten().fold(PERIOD, Duration::min);
        Ok(Pass { commands: outcome.commands, wake_in: wake_in.max(Duration::from_millis(1)), seen })
    }

    /// Proposes all commands of a pass. `false` = something was refused.
    async fn propose(&self, commands: Vec<Command>) -> Result<bool, WriteError> {
        let kinds = count_kinds(&commands);
        debug!(?kinds, "proposing a plan");
        let proposer = &self.core.proposer;
        let decisions: Vec<_> = commands.iter().map(decision).collect();
        let writes =
            commands.into_iter().map(|c| proposer.submit_fenced(actor(&self.core.name), self.term, c));
        let mut clean = true;
        for (result, decision) in join_all(writes).await.into_iter().zip(decisions) {
            if let (Some(decision), Ok(Committed { receipt: Receipt::Changed { changed, refused }, .. })) =
                (decision, &result)
            {
                metrics::scheduler_decisions(decision, u64::from(*changed));
                metrics::scheduler_decisions("refused", refused.len() as u64);
            }
            match result {
                // Nothing of it fitted: apply and plan disagree, and planning again at once would spin.
                Ok(Committed { receipt: Receipt::Changed { changed: 0, refused }, .. })
                    if !refused.is_empty() =>
                {
                    debug!(count = refused.len(), "a part of a plan changed nothing; planning again");
                    clean = false;
                }
                Ok(_) => {}
                Err(WriteError::Rejected(rejection)) => {
                    debug!(%rejection, "part of a plan was refused; planning again");
                    clean = false;
                }
                // Not the leader for a moment: a quorum has not answered of late. If it lasts, the term ends.
                Err(
                    error @ (WriteError::Unknown
                    | WriteError::Overloaded
                    | WriteError::NotLeader
                    | WriteError::TooLarge { .. }),
                ) => {
                    warn!(%error, "part of a plan was not written; planning again");
                    clean = false;
                }
                Err(error @ WriteError::Stopped) => return Err(error),
            }
        }
        Ok(clean)
    }
}

/// What a command decides about the tasks in it, if it is one of the scheduler's.
fn decision(command: &Command) -> Option<&'static str> {
    match command {
        Command::AssignTasks { .. } => Some("placed"),
        Command::ExplainTasks { .. } => Some("unplaceable"),
        _ => None,
    }
}

fn reconcile(reconcilers: &[Box<dyn Reconciler>], view: &State, tick: &Tick<'_>) -> Outcome {
    let mut all = Outcome::default();
    for reconciler in reconcilers {
        let mut one = reconciler.reconcile(view, tick);
        all.commands.append(&mut one.commands);
        all.wake_at = earliest(all.wake_at, one.wake_at);
    }
    all
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

fn count_kinds(commands: &[Command]) -> BTreeMap<u16, usize> {
    let mut kinds = BTreeMap::new();
    for command in commands {
        *kinds.entry(command.kind().number()).or_insert(0) += 1;
    }
    kinds
}
