//! The one queue: what happens next, and in which order at the same moment.

use std::{cmp::Ordering, collections::BinaryHeap};

use quorate_model::{JobId, Slot, TaskId, TaskState, Term};
use quorate_state::{Envelope, Report};

/// Who waits for an entry's answer.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// The controller of the term.
    Controller,
    /// The dispatcher, to acknowledge reports.
    Reports { agent: usize, marks: Vec<(TaskId, u64)> },
    /// The dispatcher, to open a session.
    Session { agent: usize, conn: u64 },
    /// A client.
    Client { request: usize },
}

/// What an agent says.
#[derive(Debug, Clone)]
pub(super) enum Uplink {
    Hello,
    /// With the number of the set that is applied; 0 = none.
    Heartbeat {
        applied: u64,
    },
    Statuses(Vec<Report>),
    /// The increments do not fit together: send everything.
    Gap,
}

/// One task of an assignment set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) task: TaskId,
    pub(super) job: JobId,
    pub(super) slot: Slot,
    pub(super) desired: TaskState,
    /// Newest state that the managers know.
    pub(super) observed: TaskState,
    /// Number of the newest report that the managers know.
    pub(super) seq: u64,
    pub(super) batch: bool,
}

/// What a leader says to an agent.
#[derive(Debug, Clone)]
pub(super) struct Downlink {
    pub(super) conn: u64,
    pub(super) term: Term,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Welcome,
    Echo,
    /// `applies_to` 0 = complete.
    Set {
        applies_to: u64,
        results_in: u64,
        orders: Vec<Order>,
        removals: Vec<TaskId>,
    },
    Acks(Vec<(TaskId, u64)>),
    Refusal,
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A proposal reaches the log.
    Commit {
        term: Term,
        envelope: Box<Envelope>,
        answer: Answer,
    },
    Elect,
    /// A leader that was cut off learns that it no longer leads.
    StepDown {
        term: Term,
    },
    Pass {
        term: Term,
    },
    Lease {
        term: Term,
    },
    Dispatch {
        term: Term,
    },
    ToLeader {
        term: Term,
        agent: usize,
        conn: u64,
        words: Uplink,
    },
    ToAgent {
        agent: usize,
        words: Downlink,
    },
    Dial {
        agent: usize,
        life: u64,
    },
    /// An agent notices that its connection is dead.
    Broken {
        agent: usize,
        conn: u64,
    },
    Beat {
        agent: usize,
        life: u64,
    },
    /// A container's next step.
    Work {
        agent: usize,
        task: TaskId,
        token: u64,
    },
    AgentStart {
        agent: usize,
    },
    LinkUp {
        agent: usize,
    },
    Fault,
    Heal,
    User,
    /// A client sends a request, or sends it again.
    Send {
        request: usize,
    },
}

impl Event {
    /// For the trace.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Commit { term, envelope, .. } => {
                1000 + term.0 * 100 + u64::from(envelope.command.kind().number())
            }
            Self::Elect => 1,
            Self::StepDown { .. } => 2,
            Self::Pass { .. } => 3,
            Self::Lease { .. } => 4,
            Self::Dispatch { .. } => 5,
            Self::ToLeader { agent, .. } => 100 + *agent as u64,
            Self::ToAgent { agent, .. } => 200 + *agent as u64,
            Self::Dial { agent, .. } => 300 + *agent as u64,
            Self::Broken { agent, .. } => 400 + *agent as u64,
            Self::Beat { agent, .. } => 500 + *agent as u64,
            Self::Work { task, .. } => 1_000_000 + task.0,
            Self::AgentStart { agent } => 600 + *agent as u64,
            Self::LinkUp { agent } => 700 + *agent as u64,
            Self::Fault => 6,
            Self::Heal => 7,
            Self::User => 8,
            Self::Send { .. } => 9,
        }
    }
}

/// Events by time, then by the order in which they were put in.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.heap.push(Entry { at, order: self.next, event });
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
