//! Placement constraints: `node.labels.zone == a`.
//!
//! Swarm's grammar (users know it) with its semantics: `!=` also holds where
//! the label is not set at all.

use std::fmt;

use crate::{Invalid, Node};

/// Longest constraint, in bytes.
const MAX_CONSTRAINT: usize = 512;

/// A property of a node that a constraint may test.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    /// `node.name`
    Name,
    /// `node.os`, e.g. `linux`
    Os,
    /// `node.arch`, e.g. `x86_64`
    Arch,
    /// `node.labels.KEY`
    Label(String),
}

/// How a constraint compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// One condition that a node must meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Constraint {
    /// What is compared.
    pub attribute: Attribute,
    /// How.
    pub operator: Operator,
    /// With what; compared byte by byte.
    pub value: String,
}

impl Constraint {
    /// Reads `ATTRIBUTE == VALUE` or `ATTRIBUTE != VALUE`.
    ///
    /// # Errors
    /// [`Invalid`] at `path` that points at the column inside the text.
    pub fn parse(path: &str, text: &str) -> Result<Self, Invalid> {
        let fail =
            |at: usize, why: String| Invalid::new(path, format!("column {} of {text:?}: {why}", at + 1));
        if text.len() > MAX_CONSTRAINT {
            return Err(Invalid::new(path, format!("longer than {MAX_CONSTRAINT} bytes")));
        }
        let found = ["==", "!="].iter().filter_map(|op| text.find(op).map(|at| (at, *op))).min();
        let Some((at, op)) = found else {
            let end = text.trim_end().len();
            return Err(fail(end, "expected == or !=, as in node.labels.zone == a".to_owned()));
        };
        let attribute = Attribute::parse(text[..at].trim()).map_err(|why| fail(lead(text), why))?;
        let rest = &text[at + op.len()..];
        let value = unquote(rest.trim());
        if value.is_empty() {
            return Err(fail(at + op.len(), format!("expected a value after {op}")));
        }
        if value.starts_with('=') || value.contains("==") || value.contains("!=") {
            return Err(fail(at + op.len(), "one comparison only: write one constraint per line".to_owned()));
        }
        let operator = if op == "==" { Operator::Equal } else { Operator::NotEqual };
        Ok(Self { attribute, operator, value: value.to_owned() })
    }

    /// Whether `node` meets the condition.
    #[must_use]
    pub fn holds(&self, node: &Node) -> bool {
        let facts = &node.facts;
        let actual = match &self.attribute {
            Attribute::Name => Some(node.name.as_str()),
            Attribute::Os => Some(facts.os.as_str()),
            Attribute::Arch => Some(facts.arch.as_str()),
            Attribute::Label(key) => facts.labels.get(key).map(String::as_str),
        };
        match self.operator {
            Operator::Equal => actual == Some(self.value.as_str()),
            Operator::NotEqual => actual != Some(self.value.as_str()),
        }
    }
}

impl Attribute {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "node.name" => return Ok(Self::Name),
            "node.os" => return Ok(Self::Os),
            "node.arch" => return Ok(Self::Arch),
            _ => {}
        }
        let Some(key) = text.strip_prefix("node.labels.") else {
            return Err(format!(
                "unknown attribute {text:?}: there are node.name, node.os, node.arch and node.labels.KEY"
            ));
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if key.is_empty() || !key.chars().all(legal) {
            return Err(format!("{key:?} is no label key: letters, digits and -_./ are allowed"));
        }
        Ok(Self::Label(key.to_owned()))
    }
}

fn lead(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

fn unquote(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("node.name"),
            Self::Os => f.write_str("node.os"),
            Self::Arch => f.write_str("node.arch"),
            Self::Label(key) => write!(f, "node.labels.{key}"),
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.operator {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
        };
        // What reading would strip is quoted, so that a constraint reads back as it prints.
        let quote = if unquote(self.value.trim()) == self.value { "" } else { "\"" };
        write!(f, "{} {op} {quote}{}{quote}", self.attribute, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_constraints_print_as_they_read() {
        for text in ["node.labels.zone == a", "node.name != n1", "node.os == linux", "node.arch == x86_64"] {
            assert_eq!(Constraint::parse("c", text).unwrap().to_string(), text);
        }
        let quoted = Constraint::parse("c", " node.labels.a/b=='x y' ").unwrap();
        assert_eq!(quoted.value, "x y");
        for text in ["node.name == ' a '", "node.name != \"'a'\"", "node.name == \"", "node.name == '\"\"'"] {
            let constraint = Constraint::parse("c", text).unwrap();
            assert_eq!(Constraint::parse("c", &constraint.to_string()).unwrap(), constraint, "{text}");
        }
    }

    #[test]
    fn errors_point_inside_the_text() {
        for (text, words) in [
            ("node.labels.zone = a", "expected == or !="),
            ("zone == a", "unknown attribute \"zone\""),
            ("node.os ==", "column 11"),
            ("node.os == a == b", "one comparison only"),
            ("node.labels. == b", "no label key"),
            ("", "column 1"),
        ] {
            let error = Constraint::parse("placement.constraints[0]", text).unwrap_err();
            assert_eq!(error.path, "placement.constraints[0]");
            assert!(error.reason.contains(words), "{text:?}: {}", error.reason);
        }
    }
}
