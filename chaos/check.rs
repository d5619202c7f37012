//! Checkers: pure functions from what was recorded to what was violated.
//!
//! Each has tests on records that are wrong on purpose, one per rule: a checker that cannot fail proves nothing.

pub mod ghosts;
pub mod requests;
pub mod tasks;
pub mod watches;
pub mod writes;

use std::fmt;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What shows it.
    pub detail: String,
}

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An acknowledged write is there.
    AcknowledgedIsThere,
    /// A write is done once, however often it was tried.
    DoneOnce,
    /// Every try of a request gets the first answer.
    SameAnswer,
    /// A refused write was not done.
    RefusedIsNotThere,
    /// Nothing is there that nobody asked for.
    NothingUnasked,
    /// A write that began after another was acknowledged has a revision that is not lower.
    RevisionsFollowTime,
    /// No task on a healthy agent was restarted, moved or lost.
    TasksUntouched,
    /// The runtime still runs the same containers and processes.
    InstancesUntouched,
    /// After the end of every fault the managers know how each task stands.
    NoStatusLost,
    /// Nothing runs that nobody wants.
    NoGhost,
    /// A watch has no gap and no duplicate, in the order of revisions.
    WatchesAreWhole,
    /// A client in another language sees what the API promises.
    OthersSeeTheSame,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AcknowledgedIsThere => "an acknowledged write is there",
            Self::DoneOnce => "a write is done once",
            Self::SameAnswer => "every try of a request gets the first answer",
            Self::RefusedIsNotThere => "a refused write was not done",
            Self::NothingUnasked => "nothing is there that nobody asked for",
            Self::RevisionsFollowTime => "revisions follow real time",
            Self::TasksUntouched => "no task was restarted, moved or lost",
            Self::InstancesUntouched => "the same containers and processes run",
            Self::NoStatusLost => "no status is lost",
            Self::NoGhost => "nothing runs that nobody wants",
            Self::WatchesAreWhole => "a watch has no gap, no duplicate and the right order",
            Self::OthersSeeTheSame => "clients in other languages see what the API promises",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VIOLATION of \"{}\": {}", self.rule, self.detail)
    }
}
