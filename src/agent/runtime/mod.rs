//! What runs containers: one trait, three implementations.
//!
//! Every operation is idempotent, since an agent may die between performing it and remembering it: "already created",
//! "already running", "already gone" are successes. Nothing here decides; that is `step`'s.

pub mod docker;
pub mod fake;
pub mod process;
pub(crate) mod set;
pub mod shim;
pub mod streams;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use quorate_model::{
    ContainerSpec, Epoch, JobVersion, Name, Port, RuntimeKind, Slot, StopPolicy, TaskId, Volume,
};
use quorate_wire::status::ApiError;
use tokio::sync::mpsc;

use crate::step::{Cause, Exit, Fault, Seen};
use streams::{Exec, LogItem, LogRead};

/// Whose containers: those of one node in one cluster. Agents of several nodes may share one engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The cluster's identity.
    pub cluster: Arc<str>,
    /// The node's name.
    pub node: Name,
}

/// Names one container of one task for ever: in the runtime's own naming, its labels and its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Whose it is.
    pub owner: Owner,
    /// The cluster's epoch in which it was created; task ids repeat after a disaster recovery.
    pub epoch: Epoch,
    /// Its task.
    pub task: TaskId,
    /// Its name in the job.
    pub container: Name,
    /// Namespace of its job.
    pub namespace: Name,
    /// Its job.
    pub job: Name,
    /// Version of its job.
    pub version: JobVersion,
    /// Which replica.
    pub slot: Slot,
}

impl Unit {
    /// Whether both name the same container, whatever the epoch in which each was written down.
    #[must_use]
    pub fn is_same_task(&self, other: &Self) -> bool {
        Self { epoch: self.epoch, ..other.clone() } == *self
    }
}

impl fmt::Display for Unit {
    /// `quorate-<cluster, short>-<epoch>-t<id>-<container>`: unique on a machine, legal as a container's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The end of a ULID is its random part; the start is the time, alike for clusters of one day.
        let cluster = &self.owner.cluster;
        let short = cluster.get(cluster.len().saturating_sub(8)..).unwrap_or(cluster).to_ascii_lowercase();
        write!(f, "quorate-{short}-{}-{}-{}", self.epoch, self.task, self.container)
    }
}

/// A container to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Which.
    pub unit: Unit,
    /// What.
    pub spec: ContainerSpec,
    /// The job's volumes by name.
    pub volumes: BTreeMap<Name, Volume>,
    /// The job's ports by name.
    pub ports: BTreeMap<Name, Port>,
}

/// What a container has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Processor time since its start.
    pub cpu: Duration,
    /// Bytes of memory in use now, without caches that can be dropped.
    pub memory_bytes: u64,
    /// Processes now; 0 = not known.
    pub pids: u64,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullProgress {
    /// Bytes that are here.
    pub done_bytes: u64,
    /// Bytes in all, as far as known by now.
    pub total_bytes: u64,
}

/// Runs containers. All operations are idempotent.
///
/// Dropping a `pull` or a `wait` is safe; the others are run to their end.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// Which runtime it is.
    fn kind(&self) -> RuntimeKind;

    /// Whether it answers: its version.
    fn probe(&self) -> BoxFuture<'_, Result<String, Fault>>;

    /// Returns when an answer of [`Runtime::probe`] may have changed. Never, where it cannot change.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// All containers of `owner`, for adoption and for the removal of strangers.
    fn list<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Vec<Unit>, Fault>>;

    /// Fetches what `work` needs by its pull policy.
    fn pull<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<(), Fault>>;

    /// Creates the container, not started.
    fn create<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>>;

    /// Starts it, or starts it anew after its end.
    fn start<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>>;

    /// Looks at it.
    fn inspect<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>>;

    /// Waits until it does not run.
    fn wait<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>>;

    /// Signal, grace, SIGKILL; returns what is then seen. Without a policy (a stranger's container, whose specification
    /// nobody knows any more) the policy with which it was created counts.
    fn stop<'a>(
        &'a self,
        unit: &'a Unit,
        policy: Option<&'a StopPolicy>,
    ) -> BoxFuture<'a, Result<Seen, Fault>>;

    /// Removes it and all that belongs to it alone.
    fn remove<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<(), Fault>>;

    /// How far the pull is that a task with this container waits for; `None` when none is under way.
    fn pulling(&self, _spec: &ContainerSpec) -> Option<PullProgress> {
        None
    }

    /// What containers have used so far; those that do not run, or cannot be asked, are left out.
    fn usage<'a>(&'a self, units: &'a [Unit]) -> BoxFuture<'a, BTreeMap<TaskId, Counters>>;

    /// Gives the output of a container, of all its runs, in order. Returns at the end of what there is, or, when it is
    /// followed, when the container does not run. A sink that is full is waited for; one that is closed ends it.
    fn logs<'a>(
        &'a self,
        unit: &'a Unit,
        read: &'a LogRead,
        sink: &'a mpsc::Sender<LogItem>,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Runs a command in a container and returns its exit code, 128 and more for one that a signal ended.
    fn exec<'a>(&'a self, exec: Exec<'a>) -> BoxFuture<'a, Result<i32, ApiError>>;

    /// Signals the main process of a container.
    fn signal<'a>(&'a self, unit: &'a Unit, signal: Signal) -> BoxFuture<'a, Result<(), ApiError>>;

    /// The digest that an image reference stands for; empty when the image is on the node alone and has none.
    fn resolve<'a>(&'a self, _image: &'a str) -> BoxFuture<'a, Result<String, ApiError>> {
        Box::pin(async { Err(streams::unsupported("this runtime has no images")) })
    }

    /// The folder that fills up with containers, where the runtime has one beside the agent's data.
    fn data_root(&self) -> Option<PathBuf> {
        None
    }
}

/// The exit of a container that ended by `signal`, as shells number it.
pub(crate) fn by_signal(signal: i32) -> Exit {
    let name =
        nix::sys::signal::Signal::try_from(signal).map_or("an unknown signal", |signal| signal.as_str());
    Exit { code: Some(128 + signal), detail: format!("killed by {name}"), cause: Cause::Signal(signal) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn unit(task: u64) -> Unit {
        let name = |text: &str| Name::parse("name", text).unwrap();
        Unit {
            owner: Owner { cluster: "01ARYZ6S41TSV4RRFFQ69G5FAV".into(), node: name("n1") },
            epoch: Epoch(1),
            task: TaskId(task),
            container: name("main"),
            namespace: name("default"),
            job: name("web"),
            version: JobVersion(1),
            slot: Slot(0),
        }
    }

    #[test]
    fn names_are_those_of_the_architecture() {
        assert_eq!(unit(42).to_string(), "quorate-q69g5fav-1-t42-main");
    }

    #[test]
    fn another_epoch_is_the_same_task_and_another_version_is_not() {
        assert!(unit(1).is_same_task(&Unit { epoch: Epoch(2), ..unit(1) }));
        assert!(!unit(1).is_same_task(&Unit { version: JobVersion(2), ..unit(1) }));
    }

    #[test]
    fn a_signal_is_named() {
        let killed = by_signal(9);
        assert_eq!(
            (killed.code, killed.detail.as_str(), killed.cause),
            (Some(137), "killed by SIGKILL", Cause::Signal(9))
        );
    }
}
