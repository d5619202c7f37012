//! Watchers. One goes by the words of the protocol alone: when its stream breaks, it goes on at the next manager after the
//! last revision that it has whole. Another leaves that to the client crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use quorate_base::sync::lock;
use quorate_base::{Clock, TaskGroup, TaskKind};
use quorate_client::WatchEvent;
use quorate_wire::api::{
    Change, ChangeKind, Job, ObjectKind, Task, WatchRequest, WatchResponse, change::Object,
};
use tokio::sync::watch;
use tonic::Status;

use crate::api::Api;
use crate::check::watches::{Event, Kind, Watched};

/// Rest after a stream that ended or was refused.
const REST: Duration = Duration::from_millis(20);

/// What a watcher saw so far.
#[derive(Debug)]
pub struct Watcher {
    seen: Arc<Mutex<Watched>>,
    broken: Arc<Mutex<u64>>,
    reached: watch::Receiver<u64>,
}

impl Watcher {
    /// Watches the jobs and tasks of a namespace, first at the manager `first`, in a task below `group`.
    pub fn start(name: &str, managers: &[Api], first: usize, namespace: &str, group: &TaskGroup) -> Self {
        let seen = Arc::new(Mutex::new(Watched { name: name.to_owned(), ..Watched::default() }));
        let (reach, reached) = watch::channel(0);
        let broken = Arc::default();
        let mut book = Book { seen: Arc::clone(&seen), reach, whole: false, pending: Vec::new() };
        let (managers, asked, breaks) = (managers.to_vec(), asked(namespace), Arc::clone(&broken));
        group.spawn(TaskKind::critical("watcher"), async move {
            for index in first.. {
                let Some(api) = managers.get(index % managers.len()) else { break };
                let resumed = book.whole;
                let ended = book.follow(api, asked.clone()).await;
                // A manager that is dead or not caught up refuses; the next one may not. What is wrong for good is not.
                if let Err(Fault::Wrong(text)) = ended {
                    return Err(format!("{} at {}: {text}", book.name(), api.name));
                }
                *lock(&breaks) += u64::from(resumed);
                Clock::system().sleep(REST).await;
            }
            Ok(())
        });
        Self { seen, broken, reached }
    }

    /// The same by the client crate, which resumes by itself.
    pub fn through(client: &quorate_client::Client, name: &str, namespace: &str, group: &TaskGroup) -> Self {
        let seen = Arc::new(Mutex::new(Watched { name: name.to_owned(), ..Watched::default() }));
        let (reach, reached) = watch::channel(0);
        let broken = Arc::default();
        let mut watch = client.watch(asked(namespace));
        let (book, breaks) = (Arc::clone(&seen), Arc::clone(&broken));
        group.spawn(TaskKind::critical("watcher"), async move {
            loop {
                let event = watch.next().await.map_err(|error| error.to_string())?;
                let mut seen = lock(&book);
                let at = match event {
                    WatchEvent::Snapshot { revision, changes } => {
                        let objects = changes.iter().map(described).collect::<Result<_, _>>()?;
                        (seen.since, seen.snapshot) = (revision, objects);
                        revision
                    }
                    WatchEvent::Changes { revision, changes, .. } => {
                        for change in &changes {
                            seen.events.push(event_of(revision, change)?);
                        }
                        revision
                    }
                    WatchEvent::Bookmark { revision, .. } => revision,
                    WatchEvent::Moved { .. } => {
                        *lock(&breaks) += 1;
                        continue;
                    }
                    WatchEvent::Restarted { reason } => {
                        return Err::<(), _>(format!("{} has to begin again: {reason}", seen.name));
                    }
                };
                reach.send_replace(at);
            }
        });
        Self { seen, broken, reached }
    }

    /// Waits until it has seen everything up to a revision.
    ///
    /// # Errors
    /// When it has not within `limit`.
    pub async fn reached(&mut self, revision: u64, limit: Duration) -> Result<()> {
        let waited = self.reached.wait_for(|at| *at >= revision);
        let ended = tokio::time::timeout(limit, waited).await.map(|ended| ended.is_ok());
        let (at, name) = (*self.reached.borrow(), self.seen().name);
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => bail!("{name} broke off"),
            Err(_) => bail!("{name} is at revision {at} of {revision}"),
        }
    }

    /// All that it saw.
    pub fn seen(&self) -> Watched {
        lock(&self.seen).clone()
    }

    /// How often its stream broke.
    pub fn broken(&self) -> u64 {
        *lock(&self.broken)
    }
}

/// Why a stream ended.
enum Fault {
    /// It broke: go on elsewhere.
    Broken,
    /// The manager said what it must not say.
    Wrong(String),
}

impl From<Status> for Fault {
    fn from(_: Status) -> Self {
        Self::Broken
    }
}

struct Book {
    seen: Arc<Mutex<Watched>>,
    reach: watch::Sender<u64>,
    /// The snapshot is complete.
    whole: bool,
    /// Changes of a revision that is not finished.
    pending: Vec<Event>,
}

impl Book {
    fn name(&self) -> String {
        lock(&self.seen).name.clone()
    }

    async fn follow(&mut self, api: &Api, asked: WatchRequest) -> Result<(), Fault> {
        self.pending.clear();
        if !self.whole {
            lock(&self.seen).snapshot.clear();
        }
        let start_revision = if self.whole { *self.reach.borrow() } else { 0 };
        let mut stream = api.watch(WatchRequest { start_revision, ..asked }).await?;
        while let Some(message) = stream.message().await? {
            self.note(message).map_err(Fault::Wrong)?;
        }
        Err(Fault::Broken)
    }

    fn note(&mut self, message: WatchResponse) -> Result<(), String> {
        let WatchResponse { revision, changes, partial, snapshot, bookmark, .. } = message;
        let reached = *self.reach.borrow();
        if snapshot {
            if self.whole {
                return Err(format!("a snapshot at revision {revision} on a stream that was resumed"));
            }
            for change in changes {
                let (key, content) = described(&change)?;
                if lock(&self.seen).snapshot.insert(key.clone(), content).is_some() {
                    return Err(format!("{key} is in the snapshot twice"));
                }
            }
        } else {
            for change in changes {
                self.pending.push(event_of(revision, &change)?);
            }
        }
        if bookmark && !self.whole {
            (self.whole, lock(&self.seen).since) = (true, revision);
        } else if !self.whole {
            return Ok(());
        }
        if revision < reached {
            return Err(format!("revision {revision} after {reached}"));
        }
        if !partial {
            lock(&self.seen).events.append(&mut self.pending);
            self.reach.send_replace(revision);
        }
        Ok(())
    }
}

/// The jobs and tasks of a namespace.
fn asked(namespace: &str) -> WatchRequest {
    WatchRequest {
        kinds: [ObjectKind::Job, ObjectKind::Task].map(i32::from).to_vec(),
        namespace: namespace.to_owned(),
        ..WatchRequest::default()
    }
}

fn event_of(revision: u64, change: &Change) -> Result<Event, String> {
    let (key, content) = described(change)?;
    Ok(Event { revision, kind: kind(change)?, key, content })
}

fn kind(change: &Change) -> Result<Kind, String> {
    match change.kind() {
        ChangeKind::Created => Ok(Kind::Created),
        ChangeKind::Updated => Ok(Kind::Updated),
        ChangeKind::Deleted => Ok(Kind::Deleted),
        other @ (ChangeKind::Unspecified | ChangeKind::Present) => {
            Err(format!("a change after the snapshot is {other:?}"))
        }
    }
}

fn described(change: &Change) -> Result<(String, String), String> {
    match &change.object {
        Some(Object::Job(job)) => Ok(of_job(job)),
        Some(Object::Task(task)) => Ok(of_task(task)),
        other => Err(format!("{other:?} was not asked for")),
    }
}

/// A job as it is compared; its counts are those of the moment of sending.
pub fn of_job(job: &Job) -> (String, String) {
    let compared = Job { counts: None, converged: false, ..job.clone() };
    (format!("job {}", job.name), format!("{compared:?}"))
}

/// A task as it is compared.
pub fn of_task(task: &Task) -> (String, String) {
    (format!("task {}", task.id), format!("{task:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let seen = Arc::new(Mutex::new(Watched::default()));
        Book { seen, reach: watch::Sender::new(0), whole: false, pending: Vec::new() }
    }

    fn message(revision: u64, kind: ChangeKind, names: &[&str]) -> WatchResponse {
        let change = |name: &&str| Change {
            kind: kind.into(),
            object: Some(Object::Job(Job { name: (*name).to_owned(), ..Job::default() })),
        };
        let changes = names.iter().map(change).collect();
        WatchResponse { revision, changes, ..WatchResponse::default() }
    }

    fn snapshot(revision: u64, names: &[&str]) -> WatchResponse {
        WatchResponse { snapshot: true, partial: true, ..message(revision, ChangeKind::Present, names) }
    }

    fn bookmark(revision: u64) -> WatchResponse {
        WatchResponse { bookmark: true, revision, ..WatchResponse::default() }
    }

    #[test]
    fn a_snapshot_ends_with_its_bookmark_and_changes_with_their_revision() {
        let mut book = book();
        for said in [snapshot(5, &["a"]), snapshot(5, &["b"]), bookmark(5)] {
            book.note(said).unwrap();
        }
        let more = WatchResponse { partial: true, ..message(6, ChangeKind::Created, &["c"]) };
        book.note(more).unwrap();
        assert_eq!((*book.reach.borrow(), lock(&book.seen).events.len()), (5, 0), "not whole yet");
        book.note(message(6, ChangeKind::Updated, &["a"])).unwrap();
        book.note(bookmark(9)).unwrap();
        let seen = lock(&book.seen).clone();
        assert_eq!((*book.reach.borrow(), seen.since, seen.snapshot.len(), seen.events.len()), (9, 5, 2, 2));
    }

    #[test]
    fn what_a_manager_must_not_say_is_found() {
        let begun = || {
            let mut book = book();
            book.note(snapshot(5, &["a"])).unwrap();
            book.note(bookmark(5)).unwrap();
            book
        };
        for wrong in [
            snapshot(6, &["b"]),
            message(4, ChangeKind::Updated, &["a"]),
            message(6, ChangeKind::Present, &["a"]),
            bookmark(4),
        ] {
            assert!(begun().note(wrong.clone()).is_err(), "{wrong:?}");
        }
        let mut twice = book();
        twice.note(snapshot(5, &["a"])).unwrap();
        assert!(twice.note(snapshot(5, &["a"])).is_err());
    }
}
