//! The pure heart of a task: from what is wanted and what is seen to the next move.
//!
//! [`step`] knows no clock, no runtime and no network. The runner feeds it, stores the [`Record`] it returns (which is
//! what gets reported) and performs the [`Action`]. Every rule of a task's life on a node is here: the ladder of
//! observed states, restarts in place, what counts as rejected and what as failed.

use std::sync::Arc;
use std::time::Duration;

use quorate_base::{Timestamp, format_duration};
use quorate_model::{RestartPolicy, TaskState, TaskStatus};

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
}

impl Record {
    /// A task that was just taken.
    #[must_use]
    pub fn accepted(now: Timestamp) -> Self {
        let status = TaskStatus::by_manager(TaskState::Accepted, now);
        Self { status, retry_at: None, recent: Vec::new() }
    }
}

/// A container as its runtime shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There is none.
    Absent,
    /// Created, never started.
    Created,
    /// Running.
    Running {
        /// What runs it: container id, or `pid:start time`.
        instance: Arc<str>,
        /// When it began, as far as the runtime knows.
        since: Option<Timestamp>,
    },
    /// Ended.
    Exited(Exit),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exit {
    /// Its exit code; 128 + n for signal n; `None` when nobody could learn it.
    pub code: Option<i32>,
    /// More than the code says, e.g. that it ran out of memory.
    pub detail: String,
}

impl Exit {
    /// Whether it counts as a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.code != Some(0)
    }

    fn text(&self) -> String {
        match (self.code, self.detail.as_str()) {
            (Some(code), "") => format!("exit {code}"),
            (Some(code), detail) => format!("exit {code} ({detail})"),
            (None, "") => "ended, exit code unknown".to_owned(),
            (None, detail) => detail.to_owned(),
        }
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
    let mut turn = Turn { order, record: record.clone(), now };
    // A clock that was set back must not lengthen the window.
    turn.record.recent.iter_mut().for_each(|at| *at = (*at).min(now));
    let action = turn.decide(view);
    if turn.record.status != record.status {
        turn.record.status.at = now;
    }
    Step { record: turn.record, action }
}

struct Turn<'a> {
    order: &'a Order,
    record: Record,
    now: Timestamp,
}

impl Turn<'_> {
    fn decide(&mut self, view: &View) -> Action {
        let winding_down = self.order.removed
            || self.order.desired >= TaskState::Shutdown
            || self.record.status.state.is_terminal();
        if let Some(fault) = &view.fault {
            return if winding_down { self.cannot_end(fault) } else { self.faulted(fault) };
        }
        let Some(seen) = &view.seen else { return Action::Inspect };
        if winding_down {
            return self.wind_down(seen);
        }
        if view.started {
            // The attempt was made: an end that is seen now is its end.
            self.record.retry_at = None;
        }
        self.advance(seen, view)
    }

    /// Whatever keeps a container from being stopped or removed is tried for ever: it must not be left behind.
    fn cannot_end(&mut self, fault: &Fault) -> Action {
        if !self.record.status.state.is_terminal() && fault.class != FaultClass::Unavailable {
            self.reason(&fault.message);
        }
        Action::BackOff
    }

    fn wind_down(&mut self, seen: &Seen) -> Action {
        if let Seen::Running { .. } = seen {
            return Action::Stop;
        }
        if !self.record.status.state.is_terminal() {
            if let Seen::Exited(exit) = seen {
                self.record.status.exit_code = exit.code;
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
            (Seen::Running { instance, since }, _) => self.running(instance, *since, view.started),
            (_, Some(wait)) if !wait.is_zero() => Action::Wait(wait),
            (Seen::Exited(_), Some(_)) => self.start(),
            (Seen::Exited(exit), None) => self.ended(exit),
            (Seen::Created, None) if view.started || self.record.status.state >= TaskState::Running => {
                self.ended(&Exit { code: None, detail: "ended, and nobody saw how".to_owned() })
            }
            (Seen::Created, _) => self.start(),
            (Seen::Absent, None) if self.record.status.state >= TaskState::Starting => {
                let gone = Exit { code: None, detail: "its container is gone".to_owned() };
                self.ended(&gone)
            }
            (Seen::Absent, _) => {
                self.raise(TaskState::Preparing);
                if self.order.pull && !view.pulled { Action::Pull } else { Action::Create }
            }
        }
    }

    /// What is left of the wait before the next attempt, never longer than the policy's longest wait, so that a clock
    /// that was set back cannot park a task; `None` when no attempt is due.
    fn wait(&self) -> Option<Duration> {
        let at = self.record.retry_at?;
        Some(at.since(self.now).min(self.order.restart.max_delay))
    }

    fn running(&mut self, instance: &Arc<str>, since: Option<Timestamp>, started: bool) -> Action {
        let known =
            self.record.status.state == TaskState::Running && self.record.status.instance == *instance;
        let began = since.unwrap_or(self.now);
        let anew = since.is_some() && self.record.status.running_since != since;
        let idle = !self.record.status.is_up() || self.record.retry_at.is_some();
        if !known || anew || started || idle {
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
        self.record.status.exit_code = exit.code;
        let text = exit.text();
        match self.grant(exit.is_failure()) {
            Some((attempt, wait)) => {
                self.record.status.restarts = self.record.status.restarts.saturating_add(1);
                // The state cannot go back; that nothing runs is said by the beginning it lacks.
                self.record.status.running_since = None;
                let most = self.order.restart.attempts;
                self.reason(&format!(
                    "{text}, restarting in {} ({attempt} of {most})",
                    format_duration(wait)
                ));
                Action::Wait(wait)
            }
            None => self.give_up(exit, &text),
        }
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

    fn reason(&mut self, text: &str) {
        if *self.record.status.reason != *text {
            self.record.status = self.record.status.clone().with_reason(text);
        }
    }
}

#[cfg(test)]
mod tests;
