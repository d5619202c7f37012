//! The runtimes of one agent, and which of them answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorate_base::{Backoff, Clock, Rng};
use quorate_model::RuntimeKind;
use tokio::sync::watch;

use super::{Owner, Runtime, Unit};
use crate::step::Fault;

/// The longest that a start waits for a runtime's first answer.
const FIRST_PROBE: Duration = Duration::from_secs(5);
/// The longest that one may take to list its containers: a set of assignments waits for it.
const LIST: Duration = Duration::from_secs(10);
/// How often a silent runtime is asked again.
const PROBE: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(15));
/// How long a runtime that answered may be silent before the node no longer offers it: longer than the engine's restart.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// Runtimes that answer, with their versions.
pub(crate) type Offer = BTreeMap<RuntimeKind, String>;

/// The runtimes that an agent was told to offer.
#[derive(Debug)]
pub(crate) struct Runtimes {
    all: BTreeMap<RuntimeKind, Arc<dyn Runtime>>,
    offer: watch::Sender<Offer>,
    clock: Clock,
}

impl Runtimes {
    pub(crate) fn new(all: Vec<Arc<dyn Runtime>>, clock: Clock) -> Self {
        let all = all.into_iter().map(|runtime| (runtime.kind(), runtime)).collect();
        Self { all, offer: watch::Sender::default(), clock }
    }

    /// The runtime of that kind, whether it answers or not; `None` when the agent was not told to offer it.
    pub(crate) fn get(&self, kind: RuntimeKind) -> Option<&Arc<dyn Runtime>> {
        self.all.get(&kind)
    }

    /// All that the agent was told to offer.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Runtime>> {
        self.all.values()
    }

    /// Which answer.
    pub(crate) fn offer(&self) -> watch::Receiver<Offer> {
        self.offer.subscribe()
    }

    /// All containers of `owner`, each with its runtime. A runtime that does not answer is left out; it is asked again
    /// when it answers.
    pub(crate) async fn list(&self, owner: &Owner) -> Vec<(Arc<dyn Runtime>, Unit)> {
        let lists = self.all.values().map(|runtime| async move {
            let listed = tokio::time::timeout(LIST, runtime.list(owner)).await;
            match listed.unwrap_or_else(|_| Err(Fault::unavailable("no answer yet"))) {
                Ok(units) => units.into_iter().map(|unit| (Arc::clone(runtime), unit)).collect(),
                Err(fault) => {
                    tracing::warn!(runtime = runtime.kind().as_str(), %fault, "cannot list containers");
                    Vec::new()
                }
            }
        });
        join_all(lists).await.concat()
    }

    /// Asks each runtime once, so that the first session tells the leader of all.
    pub(crate) async fn probe_once(&self) {
        let probes = self.all.values().map(|runtime| async move {
            let answer = tokio::time::timeout(FIRST_PROBE, runtime.probe()).await;
            let late = || Err(Fault::unavailable("no answer yet"));
            self.note(runtime.kind(), answer.unwrap_or_else(|_| late()).as_ref());
        });
        join_all(probes).await;
    }

    /// Keeps the offer true for as long as it is polled.
    pub(crate) async fn monitor(&self, mut rng: Rng) {
        let watches =
            self.all.values().map(|runtime| self.watch(runtime.as_ref(), rng.fork(runtime.kind().as_str())));
        join_all(watches.collect::<Vec<_>>()).await;
    }

    async fn watch(&self, runtime: &dyn Runtime, rng: Rng) {
        let mut delays = PROBE.delays(rng);
        let mut answered = self.clock.monotonic();
        loop {
            let answer = runtime.probe().await;
            if answer.is_ok() {
                self.note(runtime.kind(), answer.as_ref());
                delays.reset();
                runtime.changed().await;
                answered = self.clock.monotonic();
                continue;
            }
            let offered = self.offer.borrow().contains_key(&runtime.kind());
            if offered && self.clock.monotonic().since(answered) >= LOST_AFTER {
                self.note(runtime.kind(), answer.as_ref());
            }
            self.clock.sleep(delays.next_delay()).await;
        }
    }

    fn note(&self, kind: RuntimeKind, answer: Result<&String, &Fault>) {
        let name = kind.as_str();
        let changed = self.offer.send_if_modified(|offer| match answer {
            Ok(version) => offer.insert(kind, version.clone()).as_ref() != Some(version),
            Err(_) => offer.remove(&kind).is_some(),
        });
        match answer {
            Ok(version) if changed => tracing::info!(runtime = name, version, "runtime answers"),
            Err(fault) => {
                tracing::warn!(runtime = name, %fault, "runtime does not answer: not offered until it does");
            }
            Ok(_) => {}
        }
    }
}
