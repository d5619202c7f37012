//! Numbers that name things. Dense ids are handed out by the state machine.

use std::{fmt, str::FromStr};

use crate::Invalid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// The Raft log index at which the state was changed; 0 is "before everything".
    Revision(u64)
);
number!(
    /// Raft's leader term.
    Term(u64)
);
number!(
    /// The cluster's number, raised by disaster recovery; fences everything older.
    Epoch(u64)
);
number!(
    /// Identity of one manager's disk in Raft; random, never reused, also not for an emptied disk.
    RaftId(u64)
);
number!(
    /// Dense internal number of a job; users know jobs by namespace and name.
    JobId(u32)
);
number!(
    /// Version of a job's specification, from 1 up.
    JobVersion(u32)
);
number!(
    /// Dense internal number of a node; users know nodes by name.
    NodeId(u32)
);
number!(
    /// The stable number of a replica within its job, from 0 up.
    Slot(u32)
);

/// Dense number of a task, never reused. Prints as `t42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("t{}", self.0))
    }
}

impl FromStr for TaskId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = text.strip_prefix('t').unwrap_or(text);
        digits
            .parse()
            .map(Self)
            .map_err(|_| Invalid::new("task", format!("{text:?} is no task id: one looks like t42")))
    }
}

impl Revision {
    /// The next revision.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl JobVersion {
    /// The version that follows.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_reads_back_what_it_prints() {
        let id = TaskId(42);
        assert_eq!(id.to_string(), "t42");
        assert_eq!("t42".parse::<TaskId>().unwrap(), id);
        assert_eq!("42".parse::<TaskId>().unwrap(), id);
        assert!("web".parse::<TaskId>().unwrap_err().reason.contains("t42"));
    }
}
