//! `sometimes`: situations that a set of seeds must have reached, or it has not tested them.

use std::collections::BTreeMap;

macro_rules! sometimes {
    ($($name:ident: $text:literal,)+) => {
        /// A situation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sometimes {
            $(#[doc = $text] $name,)+
        }

        impl Sometimes {
            /// All situations.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What it is, in words.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

sometimes! {
    LeaderChangedMidPlan: "the leader changed while commands of a plan were on their way",
    FenceRefused: "a command planned in an older term was refused by its fence",
    OldTermCommitted: "a command of a dead leader was committed in its own term",
    CutOffLeaderPlanned: "a leader that was cut off planned on its stale view",
    AmnesiaPlanned: "a controller lost its memory while its plan was on its way",
    AssignmentRefused: "an agent refused the words of an older leader",
    GapNoticed: "an agent noticed a gap in its increments and asked for the complete set",
    AgentRestarted: "an agent was killed and adopted what still ran",
    EndedUnseen: "a container ended while its agent was down",
    DiskEmptied: "an agent came back with an emptied disk under the same name",
    NodeLost: "a node was marked down",
    GivenUpWithNode: "tasks of a node that was lost for too long were counted as gone",
    NodeReturned: "a node that was down came back",
    ReturnedWithStopped: "a node came back with tasks that had been replaced, and stopped them",
    TaskFailed: "a task failed",
    TaskRejected: "a task was rejected",
    ReplacementMade: "a failed task was replaced after a back-off",
    GivenUp: "a slot was given up",
    RestartedInPlace: "an agent restarted a container in place",
    Unplaceable: "a task was told why no node takes it",
    RolledOut: "a running task of an old version was stopped for a new one",
    ScaledDown: "a slot was closed",
    BatchCompleted: "a batch completed",
    BatchFailed: "a batch failed",
    JobForgotten: "a purged job was forgotten",
    RetryReplayed: "a client's retry got the answer of its first try",
    RefusalReplayed: "a client's retry was refused as its first try was",
    ReportRefused: "a late or doubled report was refused",
    PlacementRefused: "a placement no longer fitted when it was applied",
    HistoryReaped: "an ended task was reaped",
}

/// How often each situation occurred.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters(BTreeMap<Sometimes, u64>);

impl Counters {
    /// It occurred.
    pub fn note(&mut self, what: Sometimes) {
        *self.0.entry(what).or_default() += 1;
    }

    /// It occurred if `yes`.
    pub fn note_if(&mut self, yes: bool, what: Sometimes) {
        if yes {
            self.note(what);
        }
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(*what).or_default() += count;
        }
    }

    /// Situations that never occurred.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        Sometimes::ALL.iter().filter(|what| !self.0.contains_key(what)).map(|what| what.as_str()).collect()
    }

    /// Count and text of each situation, in order.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &'static str)> + '_ {
        Sometimes::ALL.iter().map(|what| (self.0.get(what).copied().unwrap_or(0), what.as_str()))
    }
}
