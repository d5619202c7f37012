//! The pure heart of a task: from what is wanted and what is seen to the next move.
//!
//! [`step`] knows no clock, no runtime and no network. The runner feeds it, stores the [`Record`] it returns (which is
//! what gets reported) and performs the [`Action`]. Every rule of a task's life on a node is here: the ladder of
//! observed states, restarts in place, what counts as rejected and what as failed.

mod history;
mod seen;

use std::sync::Arc;
use std::time::Duration;

use quorate_base::{Timestamp, format_duration};
use quorate_model::{RestartPolicy, TaskEventKind, TaskState, TaskStatus};

pub(crate) use history::is_news;
use history::with_event;
pub use seen::{Cause, Exit, Seen};

/// Attempts that are remembered. A policy that allows more of them within its window allows them without end.
const MOST_REMEMBERED: usize = 256;

/// What the leader wants of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The desired state; only grows.
    pub desired: TaskState,
    /// Whether the managers gave the task up: stop it, remove its container, forget it.
    pub removed: bool,
    /// Restarts in place.
    pub restart: RestartPolicy,
    /// Whether something must be fetched before the container can be created.
    pub pull: bool,
    /// How often a user asked for a restart in place; only grows.
    pub restarts_asked: u32,
}

/// What the agent remembers of a task across its own restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The observed side, as reported. Its `seq` belongs to the runner.
    pub status: TaskStatus,
    /// Set while an end or a fault is answered by another attempt: not before this moment.
    pub retry_at: Option<Timestamp>,
    /// When the attempts within the window of the restart policy were granted, oldest first.
    pub recent: Vec<Timestamp>,
    /// How many of the restarts that a user asked for are done: each is done once, whoever dies meanwhile.
    pub restarts_done: u32,
}

impl Record {
    /// A task that was just taken.
    #[must_use]
    pub fn accepted(now: Timestamp) -> Self {
        let mut status = TaskStatus::by_manager(TaskState::Accepted, now);
        with_event(&mut status, TaskEventKind::Received, now, None, "");
        Self { status, retry_at: None, recent: Vec::new(), restarts_done: 0 }
    }
}

/// What an operation's failure means for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultClass {
    /// The runtime does not answer: says nothing about the task, try again until it does.
    Unavailable,
    /// May pass by itself: another attempt by the restart policy.
    Transient,
    /// Will not pass: the task ends.
    Permanent,
}

/// An operation of a runtime that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What it means.
    pub class: FaultClass,
    /// What failed and why, for users.
    pub message: String,
}

impl Fault {
    /// See [`FaultClass::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { class: FaultClass::Unavailable, message: message.into() }
    }

    /// See [`FaultClass::Transient`].
    pub fn transient(message: impl Into<String>) -> Self {
        Self { class: FaultClass::Transient, message: message.into() }
    }

    /// See [`FaultClass::Permanent`].
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { class: FaultClass::Permanent, message: message.into() }
    }
}

/// What the runner knows at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The container; `None` = must be looked at.
    pub seen: Option<Seen>,
    /// Whether the fetch was done in this life of the runner.
    pub pulled: bool,
    /// Whether the last action was a start that succeeded.
    pub started: bool,
    /// What the last action brought about, for the history.
    pub done: Option<TaskEventKind>,
    /// Whether the runner has not looked yet at a task that an earlier life of the agent, or of its ledger, began.
    pub adopting: bool,
    /// What the last action ended with, if it failed.
    pub fault: Option<Fault>,
}

/// The next move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the order changes.
    Rest,
    /// Look at the container.
    Inspect,
    /// Fetch what the container needs.
    Pull,
    /// Create the container.
    Create,
    /// Start the container.
    Start,
    /// Nothing until the container ends or the order changes.
    AwaitExit,
    /// Nothing for this long, or until the order changes.
    Wait(Duration),
    /// The runtime is in trouble: nothing for a growing while, then look again.
    BackOff,
    /// Signal, grace, SIGKILL.
    Stop,
    /// Remove the container.
    Remove,
    /// Nothing is left of the task: drop its record.
    Forget,
}

/// The record as it is now, and the next move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// To be stored and, where its status changed, reported, before the action is performed.
    pub record: Record,
    /// To be performed.
    pub action: Action,
}

/// Decides the next move of a task.
#[must_use]
pub fn step(order: &Order, record: &Record, view: &View, now: Timestamp) -> Step {
    let ended = record.status.state.is_terminal();
    let mut turn = Turn { order, record: record.clone(), ended, now };
    // A clock that was set back must not lengthen the window.
    turn.record.recent.iter_mut().for_each(|at| *at = (*at).min(now));
    if let Some(kind) = view.done {
        turn.event(kind, None, "");
    }
    let action = turn.decide(view);
    if is_news(&record.status, &turn.record.status) {
        turn.record.status.at = now;
    }
    Step { record: turn.record, action }
}

struct Turn<'a> {
    order: &'a Order,
    record: Record,
    /// Whether it had ended before: nothing happens to it any more.
    ended: bool,
    now: Timestamp,
}

impl Turn<'_> {
    fn decide(&mut self, view: &View) -> Action {
        let winding_down = self.order.removed
            || self.order.desired >= TaskState::Shutdown
            || self.record.status.state.is_terminal();
        if let Some(fault) = &view.fault {
            let ending = winding_down || self.restart_due();
            return if ending { self.cannot_end(fault) } else { self.faulted(fault) };
        }
        let Some(seen) = &view.seen else { return Action::Inspect };
        if winding_down {
            return self.wind_down(seen);
        }
        if view.started {
            // The attempt was made: an end that is seen now is its end.
            self.record.retry_at = None;
        }
        if self.restart_due() { self.restart(seen, view) } else { self.advance(seen, view) }
    }

    /// Whether a restart in place that a user asked for is still to be done.
    fn restart_due(&self) -> bool {
        self.order.restarts_asked > self.record.restarts_done
    }

    /// Stops what runs; what does not run is started at once, and that is no failure.
    fn restart(&mut self, seen: &Seen, view: &View) -> Action {
        if let Seen::Running { .. } = seen {
            self.raise(TaskState::Running);
            self.record.status.running_since = None;
            self.reason("restarting as asked");
            self.event(TaskEventKind::Stopping, None, "to restart it as asked");
            return Action::Stop;
        }
        self.record.restarts_done = self.order.restarts_asked;
        if self.record.status.state < TaskState::Starting {
            // It is about to start anyway; the next attempt comes at once.
            self.record.retry_at = None;
            return self.advance(seen, view);
        }
        if let (Seen::Exited(exit), None) = (seen, self.record.retry_at) {
            self.exited(exit);
        }
        let status = &mut self.record.status;
        (status.running_since, status.restarts) = (None, status.restarts.saturating_add(1));
        self.reason("restarting as asked");
        self.event(TaskEventKind::Restarting, None, "as asked");
        self.record.retry_at = Some(self.now);
        self.advance(seen, view)
    }

    /// Whatever keeps a container from being stopped or removed is tried for ever: it must not be left behind.
    fn cannot_end(&mut self, fault: &Fault) -> Action {
        if !self.record.status.state.is_terminal() && fault.class != FaultClass::Unavailable {
            self.reason(&fault.message);
            self.event(TaskEventKind::Fault, None, &fault.message);
        }
        Action::BackOff
    }

    fn wind_down(&mut self, seen: &Seen) -> Action {
        if let Seen::Running { .. } = seen {
            self.event(TaskEventKind::Stopping, None, "");
            return Action::Stop;
        }
        if !self.record.status.state.is_terminal() {
            if let Seen::Exited(exit) = seen {
                self.exited(exit);
            }
            self.end(TaskState::Shutdown, "stopped as desired");
        }
        let remove = self.order.removed || self.order.desired >= TaskState::Remove;
        match (remove, seen) {
            (true, Seen::Absent) if self.order.removed => Action::Forget,
            (true, Seen::Created | Seen::Exited(_)) => Action::Remove,
            _ => Action::Rest,
        }
    }

    fn advance(&mut self, seen: &Seen, view: &View) -> Action {
        match (seen, self.wait()) {
            (Seen::Running { instance, since }, _) => self.running(instance, *since, view),
            (_, Some(wait)) if !wait.is_zero() => Action::Wait(wait),
            (Seen::Exited(_), Some(_)) => self.start(),
            (Seen::Exited(exit), None) => self.ended(exit),
            (Seen::Created, None) if view.started || self.record.status.state >= TaskState::Running => {
                self.ended(&Exit::unseen("ended, and nobody saw how"))
            }
            (Seen::Created, _) => self.start(),
            (Seen::Absent, None) if self.record.status.state >= TaskState::Starting => {
                self.ended(&Exit::unseen("its container is gone"))
            }
            (Seen::Absent, _) => {
                self.raise(TaskState::Preparing);
                if self.order.pull && !view.pulled {
                    self.event(TaskEventKind::Pulling, None, "");
                    Action::Pull
                } else {
                    Action::Create
                }
            }
        }
    }

    /// What is left of the wait before the next attempt, never longer than the policy's longest wait, so that a clock
    /// that was set back cannot park a task; `None` when no attempt is due.
    fn wait(&self) -> Option<Duration> {
        let at = self.record.retry_at?;
        Some(at.since(self.now).min(self.order.restart.max_delay))
    }

    fn running(&mut self, instance: &Arc<str>, since: Option<Timestamp>, view: &View) -> Action {
        let known =
            self.record.status.state == TaskState::Running && self.record.status.instance == *instance;
        let began = since.unwrap_or(self.now);
        let anew = since.is_some() && self.record.status.running_since != since;
        let idle = !self.record.status.is_up() || self.record.retry_at.is_some();
        let news = !known || anew || view.started || idle;
        if view.adopting {
            self.event(TaskEventKind::Adopted, None, "");
        } else if news {
            self.event(TaskEventKind::Started, None, "");
        }
        if news {
            self.raise(TaskState::Running);
            self.record.retry_at = None;
            let status = &mut self.record.status;
            status.instance = Arc::clone(instance);
            status.running_since = Some(began);
            self.reason("");
        }
        Action::AwaitExit
    }

    fn start(&mut self) -> Action {
        self.raise(TaskState::Ready);
        if self.order.desired < TaskState::Running {
            return Action::Rest;
        }
        self.raise(TaskState::Starting);
        Action::Start
    }

    fn ended(&mut self, exit: &Exit) -> Action {
        let started = self.record.status.state >= TaskState::Starting;
        if !started {
            // It ran while nobody watched, so it began to run.
            self.raise(TaskState::Running);
        }
        self.exited(exit);
        let text = exit.text();
        match self.grant(exit.is_failure()) {
            Some((attempt, wait)) => {
                self.record.status.restarts = self.record.status.restarts.saturating_add(1);
                // The state cannot go back; that nothing runs is said by the beginning it lacks.
                self.record.status.running_since = None;
                let most = self.order.restart.attempts;
                let when = format!("in {} ({attempt} of {most})", format_duration(wait));
                self.reason(&format!("{text}, restarting {when}"));
                self.event(TaskEventKind::Restarting, None, &when);
                Action::Wait(wait)
            }
            None => self.give_up(exit, &text),
        }
    }

    fn exited(&mut self, exit: &Exit) {
        self.record.status.exit_code = exit.code;
        let (kind, code) = history::of_exit(exit);
        self.event(kind, code, &exit.detail);
    }

    fn give_up(&mut self, exit: &Exit, text: &str) -> Action {
        let policy = self.order.restart;
        let used_up = policy.attempts > 0 && policy.covers(exit.is_failure());
        if used_up {
            let window = format_duration(policy.window);
            self.end(
                TaskState::Failed,
                &format!("{text}, all {} restarts in {window} are used up", policy.attempts),
            );
        } else if exit.is_failure() {
            self.end(TaskState::Failed, text);
        } else {
            self.end(TaskState::Complete, "");
        }
        Action::Rest
    }

    fn faulted(&mut self, fault: &Fault) -> Action {
        let running = self.record.status.state >= TaskState::Running;
        let end = if self.record.status.state < TaskState::Starting {
            TaskState::Rejected
        } else {
            TaskState::Failed
        };
        if fault.class != FaultClass::Unavailable || !running {
            self.event(TaskEventKind::Fault, None, &fault.message);
        }
        match fault.class {
            FaultClass::Unavailable => {
                // A task that runs goes on running while its runtime is silent: nothing to tell.
                if !running {
                    self.reason(&fault.message);
                }
                Action::BackOff
            }
            FaultClass::Permanent => {
                self.end(end, &fault.message);
                Action::Inspect
            }
            FaultClass::Transient => match self.grant(true) {
                Some((attempt, wait)) => {
                    let most = self.order.restart.attempts;
                    self.reason(&format!(
                        "{}; trying again in {} ({attempt} of {most})",
                        fault.message,
                        format_duration(wait)
                    ));
                    Action::Wait(wait)
                }
                None => {
                    self.end(end, &fault.message);
                    Action::Inspect
                }
            },
        }
    }

    /// Grants another attempt if the policy has one left: its number within the window and the wait before it.
    fn grant(&mut self, failure: bool) -> Option<(u32, Duration)> {
        let policy = self.order.restart;
        self.record.retry_at = None;
        self.record.recent.retain(|at| self.now.since(*at) < policy.window);
        let used = u32::try_from(self.record.recent.len()).unwrap_or(u32::MAX);
        if !policy.covers(failure) || used >= policy.attempts {
            return None;
        }
        let attempt = used.saturating_add(1);
        if self.record.recent.len() >= MOST_REMEMBERED {
            self.record.recent.remove(0);
        }
        let wait = policy.wait(attempt);
        self.record.recent.push(self.now);
        self.record.retry_at = Some(self.now.saturating_add(wait));
        Some((attempt, wait))
    }

    fn end(&mut self, state: TaskState, reason: &str) {
        self.raise(state);
        self.record.retry_at = None;
        self.reason(reason);
    }

    /// Observed states never go down.
    fn raise(&mut self, state: TaskState) {
        self.record.status.state = self.record.status.state.max(state);
    }

    /// Enters an event into the history.
    fn event(&mut self, kind: TaskEventKind, code: Option<i32>, detail: &str) {
        if !self.ended {
            with_event(&mut self.record.status, kind, self.now, code, detail);
        }
    }

    fn reason(&mut self, text: &str) {
        if *self.record.status.reason != *text {
            self.record.status = self.record.status.clone().with_reason(text);
        }
    }
}

#[cfg(test)]
mod tests;
