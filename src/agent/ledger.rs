//! What the agent must not forget: its cluster, the newest fence it obeyed, the managers, its tasks.
//!
//! In memory, with an image on disk that follows it: one writer replaces the file as a whole, and whatever changed
//! meanwhile is in the next image (group commit). A disk that fails stops no task: the memory goes on, the writer tries
//! again, and the agent's status says why.

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Backoff, Clock, Rng};
use quorate_model::{Epoch, TaskId};
use quorate_wire::agent::{AssignedTask, Fence};
use tokio::sync::watch;

use crate::durable;
use crate::step::Record;

pub(crate) use file::Damaged;

/// How long a failed write waits for the next one.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30));

/// A task that the agent holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Held {
    /// What the managers said; its workload is always there.
    pub(crate) assigned: AssignedTask,
    /// The cluster's epoch in which its container got its name.
    pub(crate) epoch: Epoch,
    /// What became of it.
    pub(crate) record: Record,
}

/// All that is remembered.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Contents {
    /// The cluster; empty before the first session.
    pub(crate) cluster: Arc<str>,
    /// The newest fence that was obeyed.
    pub(crate) fence: Fence,
    /// Agent addresses of the managers, as the last leader named them.
    pub(crate) managers: Vec<String>,
    /// The tasks.
    pub(crate) tasks: BTreeMap<TaskId, Held>,
}

/// The contents and how far the disk follows them.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: Option<PathBuf>,
    contents: Mutex<Contents>,
    /// Changes so far.
    changed: watch::Sender<u64>,
    /// Changes on disk, and why it lags, if it does.
    written: watch::Sender<Written>,
}

#[derive(Debug, Clone, Default)]
struct Written {
    changes: u64,
    trouble: Option<String>,
}

/// A change's number, for [`Ledger::durable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change(u64);

impl Ledger {
    /// A ledger without a file.
    pub(crate) fn in_memory() -> Self {
        Self::new(None, Contents::default())
    }

    /// The ledger of `file`; an empty one, and what was wrong, when the file is damaged.
    pub(crate) fn open(file: PathBuf) -> (Self, Option<Damaged>) {
        match file::read(&file) {
            Ok(contents) => (Self::new(Some(file), contents), None),
            Err(damaged) => (Self::new(Some(file), Contents::default()), Some(damaged)),
        }
    }

    fn new(file: Option<PathBuf>, contents: Contents) -> Self {
        Self {
            file,
            contents: Mutex::new(contents),
            changed: watch::Sender::new(0),
            written: watch::Sender::new(Written::default()),
        }
    }

    /// Looks at the contents. Keep it short.
    pub(crate) fn read(&self) -> MutexGuard<'_, Contents> {
        lock(&self.contents)
    }

    /// Changes the contents.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> (T, Change) {
        self.change_if(|contents| (change(contents), true))
    }

    /// Changes the contents, or only looks at them: `change` says whether it changed anything.
    pub(crate) fn change_if<T>(&self, change: impl FnOnce(&mut Contents) -> (T, bool)) -> (T, Change) {
        let mut contents = lock(&self.contents);
        let (result, changed) = change(&mut contents);
        // Under the lock: an image that is taken later holds this change.
        if changed {
            self.changed.send_modify(|changes| *changes += 1);
        }
        (result, Change(*self.changed.borrow()))
    }

    /// Waits until `change` is on disk, or until a write has failed since: the agent then goes on without.
    pub(crate) async fn durable(&self, change: Change) {
        if self.file.is_none() {
            return;
        }
        let mut written = self.written.subscribe();
        // An error means that the sender is gone, and `self` holds it.
        let _ = written.wait_for(|written| written.changes >= change.0 || written.trouble.is_some()).await;
    }

    /// Why the disk does not follow; `None` when it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.written.borrow().trouble.clone()
    }

    /// Writes images for as long as it is polled.
    pub(crate) async fn write(&self, clock: &Clock, rng: Rng) {
        let Some(file) = &self.file else { return std::future::pending().await };
        let mut changed = self.changed.subscribe();
        let mut retry = RETRY.delays(rng);
        loop {
            let on_disk = self.written.borrow().changes;
            if changed.wait_for(|changes| *changes > on_disk).await.is_err() {
                return;
            }
            match self.write_once(file).await {
                Ok(()) => retry.reset(),
                Err(trouble) => {
                    tracing::error!(path = %file.display(), %trouble, "cannot write the ledger: tasks go on, but a restart of the agent would forget the newest changes");
                    self.written.send_modify(|written| written.trouble = Some(trouble));
                    clock.sleep(retry.next_delay()).await;
                }
            }
        }
    }

    /// Writes what is not on disk yet, for the end of the agent.
    pub(crate) async fn flush(&self) {
        let (Some(file), changes) = (&self.file, *self.changed.borrow()) else { return };
        if self.written.borrow().changes < changes
            && let Err(trouble) = self.write_once(file).await
        {
            tracing::error!(path = %file.display(), %trouble, "cannot write the ledger");
        }
    }

    async fn write_once(&self, file: &std::path::Path) -> Result<(), String> {
        let (bytes, changes) = {
            let contents = lock(&self.contents);
            (file::encode(&contents), *self.changed.borrow())
        };
        let path = file.to_owned();
        // An fsync may take long; the agent's other work goes on.
        let replaced = tokio::task::spawn_blocking(move || durable::replace(&path, &bytes)).await;
        let result = match replaced {
            Ok(result) => result.map_err(|error| durable::text(&error)),
            Err(error) => Err(error.to_string()),
        };
        result.map(|()| self.written.send_modify(|written| *written = Written { changes, trouble: None }))
    }
}

#[cfg(test)]
mod tests;
