//! Names: of namespaces, jobs, nodes, managers, containers, ports, volumes.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use crate::Invalid;

/// Longest name: a DNS label (RFC 1123), so that names can become host names.
pub const MAX_NAME: usize = 63;

/// A validated name: 1–63 of `a-z 0-9 -`, starting and ending with a letter or digit.
///
/// Cheap to clone and shared: a million tasks do not copy their job's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks `text`; `path` names the field in the error.
    ///
    /// # Errors
    /// [`Invalid`] that says which rule is broken.
    pub fn parse(path: &str, text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::new(path, "must not be empty"));
        }
        if text.len() > MAX_NAME {
            return Err(Invalid::new(
                path,
                format!("{} characters are too many: a name has at most {MAX_NAME}", text.len()),
            ));
        }
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some((at, c)) = text.char_indices().find(|(_, c)| !legal(*c)) {
            return Err(Invalid::new(
                path,
                format!("{c:?} at position {} of {text:?}: only a-z, 0-9 and '-' are allowed", at + 1),
            ));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(Invalid::new(path, format!("{text:?} must start and end with a letter or a digit")));
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace that is meant when none is given.
    #[must_use]
    pub fn default_namespace() -> Self {
        Self("default".into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse("name", text)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_pass_and_each_broken_rule_is_named() {
        for good in ["a", "web", "web-1", "0", &"x".repeat(63)] {
            assert_eq!(Name::parse("name", good).unwrap().as_str(), good);
        }
        for (bad, word) in [
            ("", "empty"),
            ("Web", "only a-z"),
            ("a b", "position 2"),
            ("-a", "start"),
            ("a-", "start"),
            ("ä", "only a-z"),
            (&"x".repeat(64), "at most 63"),
        ] {
            let error = Name::parse("job.name", bad).unwrap_err();
            assert_eq!(error.path, "job.name");
            assert!(error.reason.contains(word), "{bad:?}: {}", error.reason);
        }
    }
}
