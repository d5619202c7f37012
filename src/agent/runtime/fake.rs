//! Simulated containers, for tests and load experiments.
//!
//! A container's environment programs it:
//!
//! | variable | meaning | when absent |
//! |---|---|---|
//! | `FAKE_RUN_FOR` | how long it runs, e.g. `250ms` | until it is stopped |
//! | `FAKE_EXIT` | its exit code when it ends by itself | 0 |
//! | `FAKE_FAIL_PULL` | the pull fails for good with this text | it succeeds |
//! | `FAKE_FAIL_START` | the start fails for good with this text | it succeeds |
//! | `FAKE_IGNORE_STOP` | any value: only SIGKILL ends it | it ends at once |
//!
//! The [`FakeStore`] is the machine: it outlives the runtime that an agent holds, so a test can "restart" an agent and
//! let it adopt what ran.

mod streams;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use quorate_base::sync::lock;
use quorate_base::{Clock, Mono, parse_duration};
use quorate_model::{RuntimeKind, StopPolicy, TaskId};
use quorate_wire::status::ApiError;
use tokio::sync::{Notify, mpsc};

use super::streams::{Exec, LogItem, LogRead};
use super::{Counters, Owner, Runtime, Unit, Work};
use crate::step::{Cause, Exit, Fault, Seen};

/// The simulated machine. A clone is the same machine.
#[derive(Debug, Clone, Default)]
pub struct FakeStore(Arc<Store>);

#[derive(Debug, Default)]
struct Store {
    containers: Mutex<BTreeMap<Unit, Fake>>,
    /// Something changed that a waiter may wait for.
    changed: Notify,
}

#[derive(Debug, Clone)]
struct Fake {
    spec: Work,
    starts: u64,
    state: State,
    /// What it wrote.
    output: Vec<streams::Written>,
    /// Signals that it got.
    signals: Vec<Signal>,
}

#[derive(Debug, Clone)]
enum State {
    Created,
    Running { ends: Option<Mono>, since: quorate_base::Timestamp },
    Exited(Exit),
}

impl FakeStore {
    /// An empty machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends a running container from outside with `code`, as a crash would. False when it does not run.
    pub fn crash(&self, unit: &Unit, code: i32) -> bool {
        let crashed = match lock(&self.0.containers).get_mut(unit) {
            Some(fake) if matches!(fake.state, State::Running { .. }) => {
                fake.state = State::Exited(Exit { code: Some(code), ..Exit::default() });
                true
            }
            _ => false,
        };
        self.0.changed.notify_waiters();
        crashed
    }

    /// How often each container was started, by its unit.
    #[must_use]
    pub fn starts(&self) -> BTreeMap<Unit, u64> {
        lock(&self.0.containers).iter().map(|(unit, fake)| (unit.clone(), fake.starts)).collect()
    }

    /// Runs `change` on the container and says what is then seen.
    fn with(&self, clock: &Clock, unit: &Unit, change: impl FnOnce(&mut Fake)) -> Seen {
        let mut containers = lock(&self.0.containers);
        let Some(fake) = containers.get_mut(unit) else { return Seen::Absent };
        fake.settle(clock);
        change(fake);
        let seen = fake.seen(unit);
        drop(containers);
        self.0.changed.notify_waiters();
        seen
    }

    /// Like [`FakeStore::with`], but wakes nobody.
    fn with_quietly(&self, clock: &Clock, unit: &Unit) -> Seen {
        let mut containers = lock(&self.0.containers);
        let Some(fake) = containers.get_mut(unit) else { return Seen::Absent };
        fake.settle(clock);
        fake.seen(unit)
    }

    fn ends(&self, unit: &Unit) -> Option<Mono> {
        match lock(&self.0.containers).get(unit)?.state {
            State::Running { ends, .. } => ends,
            _ => None,
        }
    }
}

impl Fake {
    const fn new(spec: Work) -> Self {
        Self { spec, starts: 0, state: State::Created, output: Vec::new(), signals: Vec::new() }
    }

    fn env(&self, key: &str) -> Option<&str> {
        self.spec.spec.env.get(key).map(String::as_str)
    }

    /// Ends what has run its time.
    fn settle(&mut self, clock: &Clock) {
        if let State::Running { ends: Some(ends), .. } = self.state
            && clock.monotonic() >= ends
        {
            let code = self.env("FAKE_EXIT").and_then(|code| code.parse().ok()).unwrap_or(0);
            self.state = State::Exited(Exit { code: Some(code), ..Exit::default() });
        }
    }

    fn start(&mut self, clock: &Clock) -> Result<(), Fault> {
        if matches!(self.state, State::Running { .. }) {
            return Ok(());
        }
        if let Some(text) = self.env("FAKE_FAIL_START") {
            return Err(Fault::permanent(format!("cannot start: {text}")));
        }
        let span = match self.env("FAKE_RUN_FOR").map(parse_duration) {
            None => None,
            Some(Ok(span)) => Some(span),
            Some(Err(error)) => return Err(Fault::permanent(format!("FAKE_RUN_FOR: {error}"))),
        };
        self.starts += 1;
        self.write(clock.now(), false, &format!("started {}", self.starts));
        let ends = span.map(|span| clock.monotonic().saturating_add(span));
        self.state = State::Running { ends, since: clock.now() };
        Ok(())
    }

    fn seen(&self, unit: &Unit) -> Seen {
        match &self.state {
            State::Created => Seen::Created,
            State::Running { since, .. } => Seen::Running {
                instance: format!("fake:{}:{}", unit.task, self.starts).into(),
                since: Some(*since),
            },
            State::Exited(exit) => Seen::Exited(exit.clone()),
        }
    }
}

/// Runs simulated containers on a [`FakeStore`].
#[derive(Debug, Clone)]
pub struct FakeRuntime {
    store: FakeStore,
    clock: Clock,
}

impl FakeRuntime {
    /// A runtime of that machine.
    #[must_use]
    pub fn new(store: FakeStore, clock: Clock) -> Self {
        Self { store, clock }
    }

    async fn wait_for_end(&self, unit: &Unit) -> Seen {
        loop {
            let changed = self.store.0.changed.notified();
            let seen = self.store.with_quietly(&self.clock, unit);
            let Seen::Running { .. } = seen else { return seen };
            match self.store.ends(unit) {
                Some(ends) => tokio::select! {
                    () = changed => {}
                    () = self.clock.sleep_until(ends) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Signal and grace: what ignores the signal runs until its grace is over.
    async fn stop_gracefully(&self, unit: &Unit, policy: Option<&StopPolicy>) -> Seen {
        let default = StopPolicy::default();
        let policy = policy.unwrap_or(&default);
        let mut ignores = false;
        let signal = |fake: &mut Fake, signal: i32| {
            if let State::Running { .. } = fake.state {
                let cause = Cause::Signal(signal);
                fake.state = State::Exited(Exit { code: Some(128 + signal), cause, ..Exit::default() });
            }
        };
        let seen = self.store.with(&self.clock, unit, |fake| {
            ignores = fake.env("FAKE_IGNORE_STOP").is_some();
            if !ignores {
                signal(fake, 15);
            }
        });
        if !ignores {
            return seen;
        }
        tokio::select! {
            seen = self.wait_for_end(unit) => seen,
            () = self.clock.sleep(policy.grace) => self.store.with(&self.clock, unit, |fake| signal(fake, 9)),
        }
    }
}

impl Runtime for FakeRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Fake
    }

    fn probe(&self) -> BoxFuture<'_, Result<String, Fault>> {
        Box::pin(async { Ok("1".to_owned()) })
    }

    fn list<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Vec<Unit>, Fault>> {
        Box::pin(async move {
            let containers = lock(&self.store.0.containers);
            Ok(containers.keys().filter(|unit| unit.owner == *owner).cloned().collect())
        })
    }

    fn pull<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match work.spec.env.get("FAKE_FAIL_PULL") {
                Some(text) => Err(Fault::permanent(format!("cannot pull: {text}"))),
                None => Ok(()),
            }
        })
    }

    fn create<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let mut containers = lock(&self.store.0.containers);
            let fresh = || Fake::new(work.clone());
            let fake = containers.entry(work.unit.clone()).or_insert_with(fresh);
            fake.settle(&self.clock);
            Ok(fake.seen(&work.unit))
        })
    }

    fn start<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let mut started = Ok(());
            let seen = self.store.with(&self.clock, &work.unit, |fake| started = fake.start(&self.clock));
            started.map(|()| seen)
        })
    }

    fn inspect<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move { Ok(self.store.with_quietly(&self.clock, unit)) })
    }

    fn wait<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move { Ok(self.wait_for_end(unit).await) })
    }

    fn stop<'a>(
        &'a self,
        unit: &'a Unit,
        policy: Option<&'a StopPolicy>,
    ) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move { Ok(self.stop_gracefully(unit, policy).await) })
    }

    /// A hundredth of a core and a mebibyte each.
    fn usage<'a>(&'a self, units: &'a [Unit]) -> BoxFuture<'a, BTreeMap<TaskId, Counters>> {
        Box::pin(async move {
            let (containers, now) = (lock(&self.store.0.containers), self.clock.now());
            let used = units.iter().filter_map(|unit| match containers.get(unit)?.state {
                State::Running { since, .. } => {
                    let cpu = now.since(since) / 100;
                    Some((unit.task, Counters { cpu, memory_bytes: 1 << 20, pids: 1 }))
                }
                _ => None,
            });
            used.collect()
        })
    }

    fn logs<'a>(
        &'a self,
        unit: &'a Unit,
        read: &'a LogRead,
        sink: &'a mpsc::Sender<LogItem>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.read_logs(unit, read, sink))
    }

    fn exec<'a>(&'a self, exec: Exec<'a>) -> BoxFuture<'a, Result<i32, ApiError>> {
        Box::pin(self.echo(exec))
    }

    fn signal<'a>(&'a self, unit: &'a Unit, signal: Signal) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move { self.note_signal(unit, signal) })
    }

    /// All images are on the node alone.
    fn resolve<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<String, ApiError>> {
        Box::pin(async { Ok(String::new()) })
    }

    fn remove<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            lock(&self.store.0.containers).remove(unit);
            self.store.0.changed.notify_waiters();
            Ok(())
        })
    }
}
