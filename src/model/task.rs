//! Tasks and their states (SwarmKit's ladder: values grow and never go back).

use std::{fmt, sync::Arc};

use quorate_base::time::Timestamp;

use crate::{Explanation, JobId, JobVersion, NodeId, Revision, Slot, TaskId};

/// State of a task, as desired by the leader or as observed.
///
/// The numbers are SwarmKit's, spaced so that new ones fit between. An
/// observed state never goes down. Up to [`TaskState::Assigned`] the managers
/// write it, above the agent does, except [`TaskState::Orphaned`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum TaskState {
    /// Created, resources not allocated.
    New = 0,
    /// Waiting for a node.
    Pending = 64,
    /// A node was chosen; the last state written by a manager.
    Assigned = 192,
    /// The agent took it.
    Accepted = 256,
    /// Pulling the image, creating the container.
    Preparing = 320,
    /// Could start at once.
    Ready = 384,
    /// Starting.
    Starting = 448,
    /// Running.
    Running = 512,
    /// Ended by itself with exit code 0.
    Complete = 576,
    /// Stopped on request.
    Shutdown = 640,
    /// Failed at or after starting.
    Failed = 704,
    /// Refused or failed before starting.
    Rejected = 768,
    /// Desired only: delete after it stopped.
    Remove = 800,
    /// Its node is lost for too long; treated as gone.
    Orphaned = 832,
}

impl TaskState {
    /// All states in order.
    pub const ALL: [Self; 14] = [
        Self::New,
        Self::Pending,
        Self::Assigned,
        Self::Accepted,
        Self::Preparing,
        Self::Ready,
        Self::Starting,
        Self::Running,
        Self::Complete,
        Self::Shutdown,
        Self::Failed,
        Self::Rejected,
        Self::Remove,
        Self::Orphaned,
    ];

    /// The number that is stored and sent.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The state with that number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.number() == number)
    }

    /// Whether nothing runs any more and nothing ever will.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        self >= Self::Complete
    }

    /// Whether it ended in a way that a user would call a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Rejected | Self::Orphaned)
    }

    /// Whether the leader may desire it.
    #[must_use]
    pub fn may_be_desired(self) -> bool {
        matches!(self, Self::Ready | Self::Running | Self::Complete | Self::Shutdown | Self::Remove)
    }

    /// Whether an agent may report it.
    #[must_use]
    pub fn may_be_reported(self) -> bool {
        self > Self::Assigned && self != Self::Remove && self != Self::Orphaned
    }

    /// Lower-case word for users.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Pending => "pending",
            Self::Assigned => "assigned",
            Self::Accepted => "accepted",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Remove => "remove",
            Self::Orphaned => "orphaned",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Longest reason that is kept with a task, in bytes; longer ones are cut.
pub const MAX_REASON: usize = 512;

/// Most events that are kept with a task.
pub const MAX_EVENTS: usize = 10;
/// Longest detail of an event, in bytes; longer ones are cut.
pub const MAX_DETAIL: usize = 128;

/// What happened to a task on its node. The numbers are stored and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TaskEventKind {
    /// The agent took it.
    Received = 1,
    /// The pull of its image began.
    Pulling = 2,
    /// The image is there.
    Pulled = 3,
    /// Its container was created.
    Created = 4,
    /// Its container was started.
    Started = 5,
    /// It is healthy.
    Healthy = 6,
    /// It ended by itself; the code is its exit code.
    Exited = 7,
    /// The kernel ended it for lack of memory.
    OutOfMemory = 8,
    /// It was ended by a signal; the code is the signal's number.
    Killed = 9,
    /// A signal was sent to it; the code is the signal's number.
    Signaled = 10,
    /// It waits to be restarted in place.
    Restarting = 11,
    /// It was asked to stop.
    Stopping = 12,
    /// A step failed; the detail says which and why.
    Fault = 13,
    /// A restarted agent found it and took it up again.
    Adopted = 14,
}

impl TaskEventKind {
    /// All kinds, by number.
    pub const ALL: [Self; 14] = [
        Self::Received,
        Self::Pulling,
        Self::Pulled,
        Self::Created,
        Self::Started,
        Self::Healthy,
        Self::Exited,
        Self::OutOfMemory,
        Self::Killed,
        Self::Signaled,
        Self::Restarting,
        Self::Stopping,
        Self::Fault,
        Self::Adopted,
    ];

    /// The number that is stored and sent.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| u32::from(kind.number()) == number)
    }
}

/// One event of a task's history, by the node's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent {
    /// What.
    pub kind: TaskEventKind,
    /// When.
    pub at: Timestamp,
    /// Exit code or number of a signal.
    pub code: Option<i32>,
    /// In words, at most [`MAX_DETAIL`] bytes; `None` when the kind says it all.
    pub detail: Option<Arc<str>>,
}

/// What is known of a task: the observed side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// Observed state.
    pub state: TaskState,
    /// Number of the agent's report, growing per task; an older one is ignored. 0 = written by a manager.
    pub seq: u64,
    /// When the agent (or manager) saw it.
    pub at: Timestamp,
    /// When it last began to run; gone while it waits for a restart in place.
    pub running_since: Option<Timestamp>,
    /// Exit code of the last end.
    pub exit_code: Option<i32>,
    /// Restarts in place by the agent.
    pub restarts: u32,
    /// What runs it: container id, or `pid:start time`; empty while there is none.
    pub instance: Arc<str>,
    /// Why it is in that state, for users; at most [`MAX_REASON`] bytes.
    pub reason: Arc<str>,
    /// What happened on its node, oldest first; at most the newest [`MAX_EVENTS`].
    pub events: Arc<[TaskEvent]>,
}

impl TaskStatus {
    /// A status without agent's part.
    #[must_use]
    pub fn by_manager(state: TaskState, at: Timestamp) -> Self {
        Self {
            state,
            seq: 0,
            at,
            running_since: None,
            exit_code: None,
            restarts: 0,
            instance: Arc::from(""),
            reason: Arc::from(""),
            events: Arc::default(),
        }
    }

    /// Whether it runs at this moment. An observed state never goes back, so a task whose container ended and waits
    /// for its restart in place stays [`TaskState::Running`], but without a beginning.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == TaskState::Running && self.running_since.is_some()
    }

    /// The state as it is counted for users: what waits for a restart in place is starting.
    #[must_use]
    pub fn counted_state(&self) -> TaskState {
        if self.state == TaskState::Running && !self.is_up() { TaskState::Starting } else { self.state }
    }

    /// The same with one more event; the oldest goes when there are too many.
    #[must_use]
    pub fn with_event(mut self, event: TaskEvent) -> Self {
        let detail = event.detail.map(|text| Arc::from(cut(&text, MAX_DETAIL)));
        let from = (self.events.len() + 1).saturating_sub(MAX_EVENTS);
        let kept = self.events.iter().skip(from).cloned();
        self.events = kept.chain([TaskEvent { detail, ..event }]).collect();
        self
    }

    /// The same with the reason cut to its bound at a character border.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        self.reason = Arc::from(cut(reason, MAX_REASON));
        self
    }
}

/// The longest prefix of `text` with at most `most` bytes.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// One scheduled instance of a job: one slot, one node, never moved, never reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Dense number.
    pub id: TaskId,
    /// Whose it is.
    pub job: JobId,
    /// Which version of the job's specification it runs.
    pub version: JobVersion,
    /// Which replica it is.
    pub slot: Slot,
    /// How many tasks of the slot ended badly in a row before it; 0 for the first.
    pub attempt: u32,
    /// Where it runs; set once.
    pub node: Option<NodeId>,
    /// What the leader wants.
    pub desired: TaskState,
    /// How often a user asked for a restart in place; its agent restarts it when the number grows.
    pub restarts_asked: u32,
    /// Not to be started earlier (back-off after a failure).
    pub not_before: Timestamp,
    /// What is observed.
    pub status: TaskStatus,
    /// Why no node takes it, while pending.
    pub explanation: Option<Arc<Explanation>>,
    /// Revision of creation.
    pub created: Revision,
    /// When it was created.
    pub created_at: Timestamp,
    /// Revision of the last change.
    pub changed: Revision,
}

impl Task {
    /// Whether it occupies, or will occupy, resources on its node.
    #[must_use]
    pub fn holds_resources(&self) -> bool {
        self.node.is_some() && !self.status.state.is_terminal()
    }

    /// Whether it waits for a node.
    #[must_use]
    pub fn is_unplaced(&self) -> bool {
        self.node.is_none() && !self.status.state.is_terminal() && self.desired <= TaskState::Running
    }

    /// Whether it runs at this moment: see [`TaskStatus::is_up`].
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.status.is_up()
    }

    /// Whether the leader wants it and it has not ended.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.desired <= TaskState::Running && !self.status.state.is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_grow_and_read_back() {
        assert!(TaskState::ALL.is_sorted());
        for state in TaskState::ALL {
            assert_eq!(TaskState::from_number(state.number()), Some(state));
        }
        assert_eq!(TaskState::from_number(1), None);
    }

    #[test]
    fn event_kinds_read_back_and_the_newest_events_are_kept() {
        for kind in TaskEventKind::ALL {
            assert_eq!(TaskEventKind::from_number(kind.number().into()), Some(kind));
        }
        assert_eq!(TaskEventKind::from_number(99), None);
        let mut status = TaskStatus::by_manager(TaskState::Running, Timestamp::EPOCH);
        for i in 0..15 {
            let (kind, at) = (TaskEventKind::Exited, Timestamp::from_millis(i));
            status = status.with_event(TaskEvent { kind, at, code: Some(1), detail: None });
        }
        let times: Vec<u64> = status.events.iter().map(|e| e.at.as_millis()).collect();
        assert_eq!(times, (5..15).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let status = TaskStatus::by_manager(TaskState::Failed, Timestamp::from_millis(0))
            .with_reason(&"ä".repeat(400));
        assert_eq!(status.reason.len(), MAX_REASON);
        assert_eq!(cut("aä", 2), "a");
    }
}
