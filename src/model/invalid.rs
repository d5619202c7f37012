//! What is wrong with an input, field by field.

use std::fmt;

/// One field that breaks a rule: where it is and why it is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Invalid {
    /// Path of the field as the job file spells it, e.g. `containers.app.resources.reserve.cpu`.
    pub path: String,
    /// What is wrong and what would be right, one sentence.
    pub reason: String,
}

impl Invalid {
    /// A violation at `path`.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

/// All violations of one input, in the order of its fields; never empty when returned as an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InvalidList(pub Vec<Invalid>);

impl InvalidList {
    /// Adds a violation.
    pub fn push(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Invalid::new(path, reason));
    }

    /// `Ok` when nothing was pushed.
    ///
    /// # Errors
    /// The list itself when it holds at least one violation.
    pub fn into_result(self) -> Result<(), InvalidList> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for InvalidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{one}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidList {}

impl From<Invalid> for InvalidList {
    fn from(one: Invalid) -> Self {
        Self(vec![one])
    }
}
