//! What the tasks use, and how far their starts are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;
use quorate_base::Clock;
use quorate_model::{ContainerSpec, RuntimeKind, TaskId, TaskState};
use quorate_wire::common::TaskProgress;

use super::Worker;
use crate::ledger::Held;
use crate::runtime::{Counters, Unit};

/// Starts that a heartbeat tells of, at most.
const MOST_STARTS: usize = 100;

impl Worker {
    /// The agent's clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.core.clock
    }

    /// Where the runtimes keep their containers.
    pub(crate) fn data_roots(&self) -> Vec<PathBuf> {
        self.core.runtimes.all().filter_map(|runtime| runtime.data_root()).collect()
    }

    /// What the running tasks have used so far. A runtime that does not answer is left out.
    pub(crate) async fn counters(&self) -> BTreeMap<TaskId, Counters> {
        let mut running: BTreeMap<RuntimeKind, Vec<Unit>> = BTreeMap::new();
        {
            let contents = self.core.ledger.read();
            for held in contents.tasks.values().filter(|held| held.record.status.is_up()) {
                let (Some(unit), Some(spec)) = (self.unit(held, &contents.cluster), spec_of(held)) else {
                    continue;
                };
                running.entry(spec.runtime).or_default().push(unit);
            }
        }
        let counted = running.iter().filter_map(|(kind, units)| {
            let runtime = self.core.runtimes.get(*kind)?;
            Some(async move { runtime.usage(units).await })
        });
        join_all(counted.collect::<Vec<_>>()).await.into_iter().flatten().collect()
    }

    /// The pulls that tasks wait for.
    pub(crate) fn progress(&self) -> Vec<TaskProgress> {
        let contents = self.core.ledger.read();
        let preparing = |held: &&Held| held.record.status.state == TaskState::Preparing;
        let pulls = contents.tasks.iter().filter(|(_, held)| preparing(held)).filter_map(|(id, held)| {
            let spec = spec_of(held)?;
            let pull = self.core.runtimes.get(spec.runtime)?.pulling(spec)?;
            Some(TaskProgress {
                task_id: id.0,
                activity: format!("pulling {}", spec.image.as_deref().unwrap_or_default()),
                done_bytes: pull.done_bytes,
                total_bytes: pull.total_bytes,
            })
        });
        pulls.take(MOST_STARTS).collect()
    }
}

/// What the task's one container runs.
fn spec_of(held: &Held) -> Option<&ContainerSpec> {
    held.assigned.workload.as_ref().map(Arc::as_ref)?.containers.values().next()
}
