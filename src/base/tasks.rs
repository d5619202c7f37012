//! Supervised task groups: the only place that spawns work.
//!
//! Each task belongs to a [`TaskGroup`], so that its owner can stop it, wait for its end and learn of its failure. A
//! failure or a panic is a value that reaches the group's hook, and, where the kind says so, stops the group. Groups
//! form a tree: cancelling one cancels the groups below it, and its shutdown waits for theirs.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::sync::lock;

/// How long a shutdown waits for tasks to be gone once it has aborted them. Aborting drops a future at its next await;
/// only code that never awaits outlives this.
const ABORT_WAIT: Duration = Duration::from_secs(1);

/// What a task's failure or panic does, beyond reaching the group's hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Cancels the group and becomes the answer of [`TaskGroup::failed`]. For work that the group cannot do without.
    StopGroup,
    /// Nothing more. For work on behalf of one peer or one request.
    LogOnly,
}

/// What the cancellation of its group does to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCancel {
    /// Drops the future at its current await.
    Drop,
    /// Lets the future run to its end: it watches [`TaskGroup::cancelled`] itself. Aborted past the deadline of
    /// [`TaskGroup::shutdown`].
    Drain,
}

/// What a task is called and what its ends mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskKind {
    /// Named in failures and shutdown reports.
    pub name: &'static str,
    /// What its failure does.
    pub on_error: OnError,
    /// What the group's cancellation does to it.
    pub on_cancel: OnCancel,
}

impl TaskKind {
    /// A task whose failure stops the group, dropped when the group is cancelled.
    pub const fn critical(name: &'static str) -> Self {
        Self { name, on_error: OnError::StopGroup, on_cancel: OnCancel::Drop }
    }

    /// A task whose failure is only reported, dropped when the group is cancelled.
    pub const fn best_effort(name: &'static str) -> Self {
        Self { name, on_error: OnError::LogOnly, on_cancel: OnCancel::Drop }
    }

    /// The same, but run to its end after the group's cancellation, which it watches itself.
    pub const fn drains(self) -> Self {
        Self { on_cancel: OnCancel::Drain, ..self }
    }
}

/// A task that ended with an error or a panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task} {}: {reason}", if *.panicked { "panicked" } else { "failed" })]
pub struct TaskFailure {
    /// The groups from the root down and the task, joined by `/`.
    pub task: String,
    /// The error's text or the panic's message.
    pub reason: String,
    /// Whether it panicked.
    pub panicked: bool,
    /// What it did to the group.
    pub on_error: OnError,
}

/// How a shutdown went. Tasks are named as in [`TaskFailure::task`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Tasks that were aborted because they still ran at the deadline.
    pub aborted: Vec<String>,
    /// Those of them that still run: threads, or code that does not await.
    pub stuck: Vec<String>,
}

impl ShutdownReport {
    /// Whether every task ended by itself in time.
    pub const fn is_clean(&self) -> bool {
        self.aborted.is_empty() && self.stuck.is_empty()
    }
}

type FailureHook = Arc<dyn Fn(&TaskFailure) + Send + Sync>;

/// A named set of tasks with one owner, one cancellation and one fate. A clone is the same group.
#[derive(Clone)]
pub struct TaskGroup(Arc<Group>);

struct Group {
    path: String,
    /// Asks the tasks to end.
    cancel: CancellationToken,
    /// Drops the tasks that did not.
    abort: CancellationToken,
    tracker: TaskTracker,
    parent: Option<TaskGroup>,
    first_failure: watch::Sender<Option<TaskFailure>>,
    tree: Arc<Tree>,
}

/// What all groups of one root share.
struct Tree {
    on_failure: FailureHook,
    next_task: AtomicU64,
    /// The names of the tasks that run now.
    running: Mutex<BTreeMap<u64, String>>,
}

impl TaskGroup {
    /// A root group. `on_failure` sees each failure and panic of its tasks and of the groups below, once, on the task's
    /// own thread: this is where failures are logged.
    pub fn new(name: &str, on_failure: impl Fn(&TaskFailure) + Send + Sync + 'static) -> Self {
        let tree = Tree {
            on_failure: Arc::new(on_failure),
            next_task: AtomicU64::new(0),
            running: Mutex::new(BTreeMap::new()),
        };
        Self(Arc::new(Group {
            path: name.to_owned(),
            cancel: CancellationToken::new(),
            abort: CancellationToken::new(),
            tracker: TaskTracker::new(),
            parent: None,
            first_failure: watch::Sender::new(None),
            tree: Arc::new(tree),
        }))
    }

    /// A group below this one: cancelled and awaited with it, stoppable by itself. Its failures do not stop this group;
    /// its owner watches [`TaskGroup::failed`].
    pub fn child(&self, name: &str) -> Self {
        Self(Arc::new(Group {
            path: format!("{}/{name}", self.0.path),
            cancel: self.0.cancel.child_token(),
            abort: self.0.abort.child_token(),
            tracker: TaskTracker::new(),
            parent: Some(self.clone()),
            first_failure: watch::Sender::new(None),
            tree: Arc::clone(&self.0.tree),
        }))
    }

    /// The names of the groups from the root down to this one, joined by `/`.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Runs `future` in this group. In a cancelled group it is dropped unpolled, unless its kind drains.
    ///
    /// Must be called within a tokio runtime.
    pub fn spawn<E: fmt::Display>(
        &self,
        kind: TaskKind,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let running = self.register(kind);
        let group = self.clone();
        let future = Box::pin(future);
        // The tracker's own spawn: `running` holds the group's and its ancestors' tokens as well.
        self.0.tracker.spawn(async move {
            let cancelled = async {
                match kind.on_cancel {
                    OnCancel::Drop => group.0.cancel.cancelled().await,
                    OnCancel::Drain => group.0.abort.cancelled().await,
                }
            };
            tokio::select! {
                biased;
                () = cancelled => {}
                ended = catch_panic(future) => group.settle(kind, &running.name, ended),
            }
            drop(running);
        });
    }

    /// Runs `body` on an operating-system thread of its own that this group waits for. It cannot be aborted: it watches
    /// [`TaskGroup::is_cancelled`] or ends when the channel it reads closes.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn_thread<E: fmt::Display>(
        &self,
        kind: TaskKind,
        body: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<()> {
        let running = self.register(kind);
        let group = self.clone();
        spawn_thread(kind.name, move || {
            let ended = catch_unwind(AssertUnwindSafe(body)).map_err(panic_message);
            group.settle(kind, &running.name, ended);
            drop(running);
        })?;
        Ok(())
    }

    /// Asks all tasks of this group and of the groups below it to end. Returns at once; there is no way back.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// Whether the group was cancelled, by its owner, from above, or by a failure.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Waits until the group is cancelled.
    pub async fn cancelled(&self) {
        self.0.cancel.cancelled().await;
    }

    /// The token behind [`TaskGroup::cancelled`], for code that takes one.
    pub fn token(&self) -> &CancellationToken {
        &self.0.cancel
    }

    /// Waits for the first failure or panic of a task of this group whose kind says [`OnError::StopGroup`]. Waits for
    /// ever if there is none: select it against other ends.
    pub async fn failed(&self) -> TaskFailure {
        let mut failure = self.0.first_failure.subscribe();
        loop {
            if let Some(failure) = failure.borrow_and_update().clone() {
                return failure;
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The failure that stopped this group, if one did.
    pub fn failure(&self) -> Option<TaskFailure> {
        self.0.first_failure.borrow().clone()
    }

    /// Cancels the group and waits until all its tasks, and those of the groups below, are gone. Tasks that still run
    /// after `deadline` are aborted.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        self.cancel();
        self.0.tracker.close();
        if tokio::time::timeout(deadline, self.0.tracker.wait()).await.is_ok() {
            return ShutdownReport::default();
        }
        let aborted = self.running();
        self.0.abort.cancel();
        let gone = tokio::time::timeout(ABORT_WAIT, self.0.tracker.wait()).await.is_ok();
        ShutdownReport { aborted, stuck: if gone { Vec::new() } else { self.running() } }
    }

    /// The tasks of this group and of the groups below that run now, named as in [`TaskFailure::task`].
    pub fn running(&self) -> Vec<String> {
        let below = format!("{}/", self.0.path);
        lock(&self.0.tree.running).values().filter(|name| name.starts_with(&below)).cloned().collect()
    }

    /// Enters a task into the books: its name, and one tracker token of this group and of each group above.
    fn register(&self, kind: TaskKind) -> Running {
        let name = format!("{}/{}", self.0.path, kind.name);
        let mut tokens = Vec::new();
        let mut group = Some(self);
        while let Some(current) = group {
            tokens.push(current.0.tracker.token());
            group = current.0.parent.as_ref();
        }
        let tree = Arc::clone(&self.0.tree);
        let id = tree.next_task.fetch_add(1, Ordering::Relaxed);
        lock(&tree.running).insert(id, name.clone());
        Running { id, name, tree, _tokens: tokens }
    }

    /// Deals with a task's end: `Err` is a panic's message.
    fn settle<E: fmt::Display>(&self, kind: TaskKind, task: &str, ended: Result<Result<(), E>, String>) {
        let (reason, panicked) = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => (error.to_string(), false),
            Err(message) => (message, true),
        };
        let failure = TaskFailure { task: task.to_owned(), reason, panicked, on_error: kind.on_error };
        (self.0.tree.on_failure)(&failure);
        if kind.on_error == OnError::StopGroup {
            self.0.first_failure.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(failure);
                is_first
            });
            self.cancel();
        }
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup")
            .field("path", &self.0.path)
            .field("cancelled", &self.is_cancelled())
            .field("running", &self.running())
            .finish()
    }
}

/// A task in the books; leaving them is its end.
struct Running {
    id: u64,
    name: String,
    tree: Arc<Tree>,
    _tokens: Vec<TaskTrackerToken>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Before the tokens go, so that nobody who waited for the end still reads the name.
        lock(&self.tree.running).remove(&self.id);
    }
}

/// Starts a named operating-system thread that belongs to no group: its owner keeps the handle and joins it.
///
/// # Errors
/// When the operating system refuses another thread.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs `future`; a panic in it becomes its message.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => std::task::Poll::Ready(Err(panic_message(payload))),
        }
    })
    .await
}

fn panic_message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload.downcast_ref::<&str>().copied().unwrap_or("no message").to_owned(),
    }
}

#[cfg(test)]
mod tests;
