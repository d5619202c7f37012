//! What the machine and its tasks use, and whether it is short of anything.

mod pressure;
mod proc;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Mono, Timestamp};
use quorate_model::{NodeCondition, TaskId};
use quorate_wire::common::{NodeUsage, TaskUsage, timestamp};
use tokio::sync::watch;

use crate::config::{AgentConfig, Pressure, Storage};
use crate::runtime::Counters;
use crate::worker::Worker;
use pressure::{Disk, Sample, judge};
pub(crate) use proc::groups as groups_use;

/// Between two measurements.
const PERIOD: Duration = Duration::from_secs(10);
/// Tasks that a measurement names, at most: the busiest.
const MOST_TASKS: usize = 100;

/// A measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    /// When it was made.
    pub(crate) at: Timestamp,
    /// As it is told.
    pub(crate) told: NodeUsage,
}

/// The machine, measured again and again.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The agent's data directory; `None` = a simulated machine, which uses what its tasks use.
    folder: Option<PathBuf>,
    limits: Option<Pressure>,
    conditions: watch::Sender<BTreeMap<NodeCondition, String>>,
    usage: Mutex<Option<Measured>>,
}

/// What the next measurement is compared with.
struct Before {
    at: Mono,
    busy: Duration,
    tasks: BTreeMap<TaskId, Counters>,
}

impl Machine {
    /// The machine of that agent, looked at once.
    pub(crate) fn new(config: &AgentConfig) -> Self {
        let folder = match &config.storage {
            Storage::Folder(path) => Some(path.clone()),
            Storage::Memory => None,
        };
        let machine = Self {
            folder,
            limits: config.pressure,
            conditions: watch::Sender::default(),
            usage: Mutex::default(),
        };
        machine.judge(&[]);
        machine
    }

    /// Its troubles.
    pub(crate) fn conditions(&self) -> watch::Receiver<BTreeMap<NodeCondition, String>> {
        self.conditions.subscribe()
    }

    /// The newest measurement.
    pub(crate) fn usage(&self) -> Option<Measured> {
        lock(&self.usage).clone()
    }

    /// Measures for as long as it is polled.
    pub(crate) async fn measure(&self, worker: &Worker) {
        let clock = worker.clock();
        let mut before =
            Before { at: clock.monotonic(), busy: proc::busy().unwrap_or_default(), tasks: BTreeMap::new() };
        loop {
            clock.sleep(PERIOD).await;
            self.judge(&worker.data_roots());
            let tasks = worker.counters().await;
            let now = Before { at: clock.monotonic(), busy: proc::busy().unwrap_or_default(), tasks };
            let at = clock.now();
            *lock(&self.usage) = Some(Measured { at, told: self.told(&before, &now, at) });
            before = now;
        }
    }

    fn told(&self, before: &Before, now: &Before, at: Timestamp) -> NodeUsage {
        let span = now.at.since(before.at);
        let tasks = busiest(&before.tasks, &now.tasks, span);
        let mut usage = NodeUsage { time: Some(timestamp(at)), ..NodeUsage::default() };
        match &self.folder {
            None => {
                usage.cpu_millis = tasks.iter().map(|task| task.cpu_millis).sum();
                usage.memory_bytes = now.tasks.values().map(|task| task.memory_bytes).sum();
            }
            Some(folder) => {
                usage.cpu_millis = millis(now.busy.saturating_sub(before.busy), span);
                usage.memory_bytes =
                    proc::memory().map_or(0, |memory| memory.total.saturating_sub(memory.available));
                if let Some(disk) = proc::disk(folder) {
                    (usage.disk_bytes, usage.disk_capacity_bytes) = (disk.used, disk.capacity);
                }
            }
        }
        usage.tasks = tasks;
        usage
    }

    /// Looks at disk and memory. What changed is told to all who follow [`Self::conditions`].
    fn judge(&self, roots: &[PathBuf]) {
        let (Some(limits), Some(folder)) = (&self.limits, &self.folder) else { return };
        let named = std::iter::once(folder).chain(roots);
        let disks = named.filter_map(|path| Some(Disk { path: path.clone(), space: proc::disk(path)? }));
        let sample = Sample { disks: disks.collect(), memory: proc::memory() };
        self.conditions.send_if_modified(|known| {
            let now = judge(known, &sample, limits);
            for (condition, text) in now.iter().filter(|(condition, _)| !known.contains_key(condition)) {
                tracing::warn!(
                    condition = condition.as_str(),
                    text,
                    "the node takes no new tasks; running ones go on"
                );
            }
            for condition in known.keys().filter(|condition| !now.contains_key(condition)) {
                tracing::info!(condition = condition.as_str(), "the node's trouble is over");
            }
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}

/// What each task used between two counts, the busiest first.
fn busiest(
    before: &BTreeMap<TaskId, Counters>,
    now: &BTreeMap<TaskId, Counters>,
    span: Duration,
) -> Vec<TaskUsage> {
    let used = |(id, counters): (&TaskId, &Counters)| {
        // A count that went back began anew with a restart.
        let earlier = before.get(id).map(|old| old.cpu).filter(|cpu| *cpu <= counters.cpu);
        let spent = earlier.map_or(Duration::ZERO, |earlier| counters.cpu.saturating_sub(earlier));
        TaskUsage {
            task_id: id.0,
            cpu_millis: millis(spent, span),
            memory_bytes: counters.memory_bytes,
            pids: counters.pids,
        }
    };
    let mut all: Vec<TaskUsage> = now.iter().map(used).collect();
    all.sort_by_key(|task| std::cmp::Reverse((task.cpu_millis, task.memory_bytes)));
    all.truncate(MOST_TASKS);
    all
}

/// Thousandths of a core that `spent` is of `span`.
fn millis(spent: Duration, span: Duration) -> u64 {
    let share = spent.as_micros().saturating_mul(1_000).checked_div(span.as_micros()).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(millis: u64, memory_bytes: u64) -> Counters {
        Counters { cpu: Duration::from_millis(millis), memory_bytes, pids: 1 }
    }

    #[test]
    fn the_busiest_tasks_come_first_and_only_so_many() {
        let before = BTreeMap::from([(TaskId(1), counters(1_000, 5)), (TaskId(2), counters(9_000, 5))]);
        let now = BTreeMap::from([
            (TaskId(1), counters(6_000, 7)),
            (TaskId(2), counters(10, 5)),
            (TaskId(3), counters(4_000, 9)),
        ]);
        let told = busiest(&before, &now, Duration::from_secs(10));
        let seen: Vec<_> =
            told.iter().map(|task| (task.task_id, task.cpu_millis, task.memory_bytes)).collect();
        assert_eq!(
            seen,
            [(1, 500, 7), (3, 0, 9), (2, 0, 5)],
            "a first count and one that went back tell nothing"
        );
        let many = (0..500).map(|id| (TaskId(id), counters(id, 1))).collect();
        let told = busiest(&BTreeMap::new(), &many, Duration::from_secs(10));
        assert_eq!(told.len(), MOST_TASKS);
        assert_eq!(millis(Duration::from_secs(1), Duration::ZERO), 0);
    }
}
