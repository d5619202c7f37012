//! Groups of equal tasks and what they need.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use quorate_base::time::Timestamp;
use quorate_model::{Constraint, JobId, JobSpec, JobVersion, Resources, RuntimeKind, Strategy, TaskId};
use quorate_state::State;

/// Tasks of one job and version: what holds for one holds for all.
pub(crate) struct Group<'a> {
    pub(crate) job: JobId,
    pub(crate) spec: &'a JobSpec,
    pub(crate) priority: u8,
    /// Oldest first; never empty.
    pub(crate) tasks: Vec<TaskId>,
}

/// The groups among `pending`, in the order in which they are served.
pub(crate) fn collect<'a>(view: &'a State, pending: &[TaskId], now: Timestamp) -> Vec<Group<'a>> {
    let mut by_version: BTreeMap<(JobId, JobVersion), BTreeSet<TaskId>> = BTreeMap::new();
    for task in pending.iter().filter_map(|id| view.task(*id)) {
        if task.is_unplaced() && task.not_before <= now {
            by_version.entry((task.job, task.version)).or_default().insert(task.id);
        }
    }
    let mut groups: Vec<Group<'a>> = by_version
        .into_iter()
        .filter_map(|((id, version), tasks)| {
            let job = view.job(id)?;
            // The priority is the job's newest: raising it must not replace its tasks.
            let priority = job.spec()?.priority;
            Some(Group {
                job: id,
                spec: job.specs.get(&version)?,
                priority,
                tasks: tasks.into_iter().collect(),
            })
        })
        .collect();
    groups.sort_by_key(|group| (Reverse(group.priority), group.tasks.first().copied()));
    groups
}

/// What depends on the node alone: groups of one class share their candidates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    pub(crate) runtimes: BTreeSet<RuntimeKind>,
    pub(crate) constraints: Vec<Constraint>,
}

/// A bound on tasks of one job per node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Most {
    pub(crate) job: JobId,
    pub(crate) per_node: u32,
}

/// All that decides whether a node fits: groups with equal needs share their explanation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) class: Class,
    cpu_millis: u64,
    memory_bytes: u64,
    pub(crate) ports: BTreeSet<(u16, bool)>,
    pub(crate) most: Option<Most>,
    pub(crate) strategy: Strategy,
}

impl Need {
    pub(crate) fn of(view: &State, group: &Group<'_>) -> Self {
        let spec = group.spec;
        let reserve = spec.reserve();
        let per_node = spec.placement.max_per_node;
        Self {
            class: Class {
                runtimes: spec.containers.values().map(|c| c.runtime).collect(),
                constraints: spec.placement.constraints.clone(),
            },
            cpu_millis: reserve.cpu_millis,
            memory_bytes: reserve.memory_bytes,
            ports: spec.host_ports().collect(),
            most: (per_node > 0).then_some(Most { job: group.job, per_node }),
            strategy: spec.placement.strategy.unwrap_or(view.settings().strategy),
        }
    }

    pub(crate) fn reserve(&self) -> Resources {
        Resources { cpu_millis: self.cpu_millis, memory_bytes: self.memory_bytes }
    }
}
