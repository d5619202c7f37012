//! Containers of this node that no task has: told to the leader, and removed after a grace.
//!
//! A leader that was restored from an old image, or a set that is on its way, may yet want them: so they are never
//! removed at once, and what becomes wanted within the grace is taken up under the name that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Backoff, Mono, TaskKind, Timestamp};
use quorate_model::RuntimeKind;
use quorate_telemetry::metrics;
use quorate_wire::agent;
use quorate_wire::common::timestamp;

use super::Worker;
use crate::runtime::{Runtime, Unit};
use crate::step::Seen;

/// Between attempts to remove a container that nobody wants.
const PURGE: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));
/// Orphans that a heartbeat names, at most.
const MOST_TOLD: usize = 100;

/// Since when a container is known to have no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    runtime: RuntimeKind,
    since: Timestamp,
    due: Mono,
}

/// The containers that no task has.
#[derive(Debug)]
pub(super) struct Orphans {
    grace: Duration,
    known: Mutex<BTreeMap<Unit, Found>>,
    /// Those that are being removed.
    purging: Mutex<BTreeSet<Unit>>,
}

impl Orphans {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, known: Mutex::default(), purging: Mutex::default() }
    }

    /// All of them.
    pub(super) fn units(&self) -> Vec<Unit> {
        lock(&self.known).keys().cloned().collect()
    }

    /// Compares with what is found and held now. Returns those whose grace is over.
    fn update(
        &self,
        found: &BTreeMap<Unit, RuntimeKind>,
        held: &BTreeSet<Unit>,
        now: (Timestamp, Mono),
    ) -> Vec<Unit> {
        let mut known = lock(&self.known);
        known.retain(|unit, _| found.contains_key(unit) && !held.contains(unit));
        let strangers = found.iter().filter(|(unit, _)| !held.contains(*unit));
        for (unit, runtime) in strangers {
            let due = now.1.saturating_add(self.grace);
            let new = || {
                tracing::warn!(%unit, grace = ?self.grace, "no task of this node has this container: it is removed \
                    unless it is wanted within the grace");
                Found { runtime: *runtime, since: now.0, due }
            };
            known.entry(unit.clone()).or_insert_with(new);
        }
        metrics::agent_orphans(known.len());
        known.iter().filter(|(_, found)| found.due <= now.1).map(|(unit, _)| unit.clone()).collect()
    }

    /// When the next grace ends.
    fn next_due(&self) -> Option<Mono> {
        let (known, purging) = (lock(&self.known), lock(&self.purging));
        known.iter().filter(|(unit, _)| !purging.contains(*unit)).map(|(_, found)| found.due).min()
    }
}

impl Worker {
    /// For the leader: the first of them.
    pub(crate) fn orphans(&self) -> Vec<agent::Orphan> {
        let known = lock(&self.orphans.known);
        let told = known.iter().take(MOST_TOLD).map(|(unit, found)| agent::Orphan {
            task_id: unit.task.0,
            name: unit.to_string(),
            runtime: found.runtime.as_str().to_owned(),
            since: Some(timestamp(found.since)),
        });
        told.collect()
    }

    /// Looks for orphans whenever the set is known anew, a runtime answers anew or a grace ends, for as long as it is
    /// polled.
    pub(crate) async fn sweep_when_needed(self: &Arc<Self>) {
        let (mut told, mut offer) = (self.told.subscribe(), self.core.runtimes.offer());
        loop {
            if *told.borrow_and_update() {
                self.sweep().await;
            }
            let due = self.orphans.next_due();
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                changed = offer.changed() => if changed.is_err() { return },
                () = async { match due {
                    Some(due) => self.core.clock.sleep_until(due).await,
                    None => std::future::pending().await,
                } } => {}
            }
        }
    }

    async fn sweep(self: &Arc<Self>) {
        let owner = self.owner();
        let found = self.core.runtimes.list(&owner).await;
        let kinds = found.iter().map(|(runtime, unit)| (unit.clone(), runtime.kind())).collect();
        let now = (self.core.clock.now(), self.core.clock.monotonic());
        let due = self.orphans.update(&kinds, &self.held_units(), now);
        for (runtime, unit) in found.into_iter().filter(|(_, unit)| due.contains(unit)) {
            if !lock(&self.orphans.purging).insert(unit.clone()) {
                continue;
            }
            tracing::warn!(%unit, "removing a container that no task of this node has");
            let worker = Arc::clone(self);
            self.tasks.spawn(TaskKind::best_effort("purge"), async move {
                worker.purge(runtime.as_ref(), &unit).await;
                lock(&worker.orphans.purging).remove(&unit);
                Ok::<_, Infallible>(())
            });
        }
    }

    /// The containers that tasks have, or will have.
    fn held_units(&self) -> BTreeSet<Unit> {
        let contents = self.core.ledger.read();
        contents.tasks.values().filter_map(|held| self.unit(held, &contents.cluster)).collect()
    }

    async fn purge(&self, runtime: &dyn Runtime, unit: &Unit) {
        let mut delays = PURGE.delays(self.core.fork("purge"));
        while !self.held_units().contains(unit) {
            let gone = match runtime.stop(unit, None).await {
                Ok(Seen::Absent) => Ok(()),
                Ok(_) => runtime.remove(unit).await,
                Err(fault) => Err(fault),
            };
            let Err(fault) = gone else {
                let mut known = lock(&self.orphans.known);
                known.remove(unit);
                metrics::agent_orphans(known.len());
                return;
            };
            tracing::warn!(%unit, %fault, "cannot remove it; trying again");
            self.core.clock.sleep(delays.next_delay()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tests::unit;
    use quorate_base::Clock;

    #[test]
    fn an_orphan_is_due_after_its_grace_and_an_adopted_one_is_none() {
        let (orphans, clock) =
            (Orphans::new(Duration::from_secs(60)), Clock::manual(Timestamp::from_millis(1)));
        let found: BTreeMap<Unit, RuntimeKind> =
            [1, 2].map(|task| (unit(task), RuntimeKind::Fake)).into_iter().collect();
        let now = || (clock.now(), clock.monotonic());
        assert_eq!(orphans.update(&found, &BTreeSet::new(), now()), []);
        assert_eq!(orphans.units(), [unit(1), unit(2)]);
        clock.advance(Duration::from_secs(59));
        // Seen again, it is as old as it was; and one of them is wanted by now.
        assert_eq!(orphans.update(&found, &BTreeSet::from([unit(2)]), now()), []);
        assert_eq!(orphans.units(), [unit(1)]);
        clock.advance(Duration::from_secs(1));
        assert_eq!(orphans.next_due(), Some(clock.monotonic()));
        assert_eq!(orphans.update(&found, &BTreeSet::new(), now()), [unit(1)], "t2's grace begins anew");
        assert_eq!(orphans.update(&BTreeMap::new(), &BTreeSet::new(), now()), []);
        assert_eq!(orphans.next_due(), None);
    }
}
