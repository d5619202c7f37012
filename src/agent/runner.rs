//! Drives one task: asks `step` for the next move, writes down, reports, performs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Backoff, Clock, Delays, Mono, Rng};
use quorate_model::{TaskEventKind, TaskId, TaskState};
use quorate_telemetry::metrics;
use tokio::sync::watch;

use crate::ledger::{Change, Contents, Ledger};
use crate::reporter::Reporter;
use crate::runtime::set::Runtimes;
use crate::runtime::{Runtime, Work};
use crate::step::{Action, Fault, FaultClass, Order, Seen, Step, View, is_news, step};

/// Between looks at a runtime in trouble.
const TROUBLE: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(10));
/// Reports of one life of the agent, at most, before they could meet those of the next.
const SEQ_BITS: u32 = 20;

/// What all parts of an agent share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ledger: Ledger,
    pub(crate) reporter: Reporter,
    pub(crate) runtimes: Runtimes,
    pub(crate) clock: Clock,
    pub(crate) rng: std::sync::Mutex<Rng>,
    /// Starts of this agent so far.
    pub(crate) starts: u64,
}

impl Core {
    /// The number of a task's next report. An agent that was killed may have reported more than its ledger holds: each
    /// start leaves a gap that nobody fills.
    pub(crate) fn next_seq(&self, last: u64) -> u64 {
        last.saturating_add(1).max(self.starts.checked_shl(SEQ_BITS).unwrap_or(u64::MAX))
    }

    /// An independent stream of randomness.
    pub(crate) fn fork(&self, purpose: &str) -> Rng {
        lock(&self.rng).fork(purpose)
    }
}

/// What the leader wants of a task, as far as it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) desired: TaskState,
    pub(crate) removed: bool,
    pub(crate) restarts_asked: u32,
}

/// What a step came to.
struct Turn {
    action: Action,
    /// Whether a restart that a user asked for is now done for good.
    restarts: bool,
    change: Change,
}

/// Drives one task.
#[derive(Debug)]
pub(crate) struct Runner {
    core: Arc<Core>,
    id: TaskId,
    work: Work,
    runtime: Arc<dyn Runtime>,
    order: Order,
    wish: watch::Receiver<Wish>,
    view: View,
    trouble: Delays,
    /// When it took the task, if it is new; gone once it reported that it runs.
    taken: Option<Mono>,
}

impl Runner {
    /// A runner for `work`; its task is in the ledger.
    pub(crate) fn new(
        core: Arc<Core>,
        work: Work,
        restart: quorate_model::RestartPolicy,
        runtime: Arc<dyn Runtime>,
        wish: watch::Receiver<Wish>,
    ) -> Self {
        let pull = work.spec.image.is_some();
        let order = Order { desired: TaskState::Ready, removed: false, restart, pull, restarts_asked: 0 };
        let trouble = TROUBLE.delays(core.fork("trouble"));
        let id = work.unit.task;
        let fresh = core
            .ledger
            .read()
            .tasks
            .get(&id)
            .is_some_and(|held| held.record.status.state <= TaskState::Accepted);
        let taken = fresh.then(|| core.clock.monotonic());
        let view = View { adopting: !fresh, ..View::default() };
        Self { core, id, work, runtime, order, wish, view, trouble, taken }
    }

    /// Runs until the task is forgotten, or until nobody wishes anything any more.
    pub(crate) async fn run(mut self) {
        loop {
            let Wish { desired, removed, restarts_asked } = *self.wish.borrow_and_update();
            (self.order.desired, self.order.removed) = (desired, removed);
            self.order.restarts_asked = restarts_asked;
            let Some(Turn { action, restarts, change }) = self.decide() else { return };
            if restarts {
                // Before it is started: an agent that dies now must not restart it once more.
                self.core.ledger.durable(change).await;
            }
            if action == Action::Forget {
                self.forget();
                return;
            }
            if !self.perform(action).await {
                return;
            }
        }
    }

    /// One step, written down and reported. `None` when the task is gone.
    fn decide(&mut self) -> Option<Turn> {
        let now = self.core.clock.now();
        let core = &self.core;
        let take_turn = |contents: &mut Contents| {
            let Some(held) = contents.tasks.get_mut(&self.id) else { return (None, false) };
            let Step { mut record, action } = step(&self.order, &held.record, &self.view, now);
            let news = is_news(&held.record.status, &record.status);
            if news {
                record.status.seq = core.next_seq(held.record.status.seq);
                let status = &record.status;
                tracing::info!(task = %self.id, state = %status.state, reason = &*status.reason, "task");
                // Under the ledger's lock, so that reports of a task never overtake each other.
                if !self.order.removed {
                    core.reporter.report(self.id, status.clone());
                }
            }
            let running = news && record.status.state == TaskState::Running;
            let changed = record != held.record;
            let restarts = record.restarts_done != held.record.restarts_done;
            held.record = record;
            (Some((action, running, restarts)), changed)
        };
        let (turn, change) = core.ledger.change_if(take_turn);
        let (action, running, restarts) = turn?;
        if running && let Some(taken) = self.taken.take() {
            metrics::agent_task_start_duration("running", self.core.clock.monotonic().since(taken));
        }
        (self.view.fault, self.view.started, self.view.done) = (None, false, None);
        self.view.adopting &= self.view.seen.is_none();
        Some(Turn { action, restarts, change })
    }

    /// Performs an action. False when nobody wishes anything any more.
    async fn perform(&mut self, action: Action) -> bool {
        let runtime = Arc::clone(&self.runtime);
        match action {
            Action::Inspect => {
                let seen = runtime.inspect(&self.work.unit).await;
                self.saw("inspect", seen.map_err(unavailable));
            }
            Action::Pull => match changed_or(&mut self.wish, runtime.pull(&self.work)).await {
                Some(Ok(())) => (self.view.pulled, self.view.done) = (true, Some(TaskEventKind::Pulled)),
                Some(Err(fault)) => self.saw("pull", Err(fault)),
                None => {}
            },
            Action::Create => {
                let seen = runtime.create(&self.work).await;
                self.view.done = matches!(seen, Ok(Seen::Created)).then_some(TaskEventKind::Created);
                self.saw("create", seen);
            }
            Action::Start => {
                let seen = runtime.start(&self.work).await;
                // Absent: there was nothing to start.
                self.view.started = seen.as_ref().is_ok_and(|seen| *seen != Seen::Absent);
                self.saw("start", seen);
            }
            Action::AwaitExit => {
                if let Some(seen) = changed_or(&mut self.wish, runtime.wait(&self.work.unit)).await {
                    self.saw("wait", seen.map_err(unavailable));
                }
            }
            Action::Stop => {
                let seen = runtime.stop(&self.work.unit, Some(&self.work.spec.stop)).await;
                self.saw("stop", seen);
            }
            Action::Remove => {
                let removed = runtime.remove(&self.work.unit).await;
                self.saw("remove", removed.map(|()| Seen::Absent));
            }
            Action::Wait(span) => {
                changed_or(&mut self.wish, self.core.clock.sleep(span)).await;
            }
            Action::BackOff => {
                let span = self.trouble.next_delay();
                changed_or(&mut self.wish, self.core.clock.sleep(span)).await;
            }
            Action::Rest | Action::Forget => return self.wish.changed().await.is_ok(),
        }
        // The worker drops its end when it is gone itself.
        self.wish.has_changed().is_ok()
    }

    fn saw(&mut self, operation: &str, result: Result<Seen, Fault>) {
        match result {
            Ok(seen) => {
                self.view.seen = Some(seen);
                self.trouble.reset();
            }
            Err(fault) => {
                let runtime = self.runtime.kind().as_str();
                metrics::agent_driver_errors(runtime, operation, 1);
                tracing::warn!(task = %self.id, runtime, operation, %fault, "runtime operation failed");
                self.view.seen = None;
                self.view.fault = Some(fault);
            }
        }
    }

    fn forget(&self) {
        self.core.ledger.change(|contents| contents.tasks.remove(&self.id));
        self.core.reporter.acknowledge(self.id, u64::MAX);
        tracing::info!(task = %self.id, "task removed");
    }
}

/// A look that failed says nothing about the task, whatever the runtime makes of it.
fn unavailable(fault: Fault) -> Fault {
    Fault { class: FaultClass::Unavailable, ..fault }
}

/// Awaits `future` unless the wish changes first, which drops it.
async fn changed_or<T>(wish: &mut watch::Receiver<Wish>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = wish.changed() => None,
        result = future => Some(result),
    }
}
