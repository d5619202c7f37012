//! What a runtime shows of a container.

use std::sync::Arc;

use quorate_base::Timestamp;

/// A container as its runtime shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There is none.
    Absent,
    /// Created, never started.
    Created,
    /// Running.
    Running {
        /// What runs it: container id, or `pid:start time`.
        instance: Arc<str>,
        /// When it began, as far as the runtime knows.
        since: Option<Timestamp>,
    },
    /// Ended.
    Exited(Exit),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exit {
    /// Its exit code; 128 + n for signal n; `None` when nobody could learn it.
    pub code: Option<i32>,
    /// More than the code says, e.g. that it ran out of memory.
    pub detail: String,
    /// What ended it.
    pub cause: Cause,
}

/// What ended a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// It ended by itself, or nobody knows.
    #[default]
    Itself,
    /// A signal, by its number.
    Signal(i32),
    /// The kernel, for lack of memory.
    OutOfMemory,
}

impl Exit {
    /// Whether it counts as a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.code != Some(0)
    }

    /// An end that nobody saw, in words.
    pub(super) fn unseen(detail: &str) -> Self {
        Self { detail: detail.to_owned(), ..Self::default() }
    }

    /// In words, for users.
    pub(super) fn text(&self) -> String {
        match (self.code, self.detail.as_str()) {
            (Some(code), "") => format!("exit {code}"),
            (Some(code), detail) => format!("exit {code} ({detail})"),
            (None, "") => "ended, exit code unknown".to_owned(),
            (None, detail) => detail.to_owned(),
        }
    }
}
