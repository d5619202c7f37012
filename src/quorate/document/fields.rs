//! Picking a tree apart field by field, with every mistake collected.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Entry, Node, Problem, Problems, Source, Span, Value, did_you_mean};

/// Mistakes found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report(Vec<(Span, String)>);

impl Report {
    /// A report of one mistake.
    pub(crate) fn of(at: Span, message: impl Into<String>) -> Self {
        Self(vec![(at, message.into())])
    }

    /// Adds a mistake.
    pub(crate) fn push(&mut self, at: Span, message: impl Into<String>) {
        self.0.push((at, message.into()));
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many mistakes there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The mistakes in the order in which they were found.
    #[cfg(test)]
    pub(crate) fn problems(&self) -> &[(Span, String)] {
        &self.0
    }

    /// The mistakes in the order of the lines, each once.
    pub(crate) fn into_problems(mut self, source: &Source) -> Problems {
        self.0.sort();
        self.0.dedup();
        Problems(self.0.into_iter().map(|(at, message)| Problem::at(source, at, message)).collect())
    }
}

/// What a table may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Fields that mean something.
    pub(crate) now: &'static [&'static str],
    /// Fields of later versions: refused by name instead of being ignored.
    pub(crate) later: &'static [&'static str],
}

/// The fields of one table.
pub(crate) struct Fields<'a> {
    path: String,
    at: Span,
    entries: BTreeMap<&'a str, &'a Entry>,
}

/// `path.key`
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'a> Fields<'a> {
    /// The fields of `node`, with every unknown one reported. `x-…` fields are the user's own and dropped.
    ///
    /// `None`, and a report, when it is no table.
    pub(crate) fn of(node: &'a Node, path: &str, known: Known, report: &mut Report) -> Option<Self> {
        let entries = table(node, path).map_err(|message| report.push(node.at, message)).ok()?;
        let mut fields = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
            let key = entry.key.as_str();
            if known.now.contains(&key) {
                fields.entry(key).or_insert(entry);
                continue;
            }
            let full = join(path, key);
            let message = if known.later.contains(&key) {
                format!("{full} is not supported by this version of quorate: remove it")
            } else {
                match did_you_mean(key, known.now.iter().copied()) {
                    Some(word) => format!("unknown field {full:?}; did you mean {word:?}?"),
                    None => format!("unknown field {full:?}; there are {}", known.now.join(", ")),
                }
            };
            report.push(entry.key_at, message);
        }
        Some(Self { path: path.to_owned(), at: node.at, entries: fields })
    }

    /// Where the table begins.
    pub(crate) fn at(&self) -> Span {
        self.at
    }

    /// The path of the field `key`.
    pub(crate) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The entry of `key`, with or without a value.
    pub(crate) fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.get(key).copied()
    }

    /// The value of `key`; one that is left empty is reported.
    pub(crate) fn node(&self, key: &str, report: &mut Report) -> Option<&'a Node> {
        let entry = self.entry(key)?;
        if entry.node.value == Value::Null {
            report.push(entry.key_at, format!("{} has no value: give one or remove it", self.path(key)));
            return None;
        }
        Some(&entry.node)
    }

    /// The value of `key` as `read` understands it.
    pub(crate) fn get<T>(
        &self,
        key: &str,
        report: &mut Report,
        read: impl FnOnce(&'a Node) -> Result<T, String>,
    ) -> Option<T> {
        let node = self.node(key, report)?;
        read(node).map_err(|message| report.push(node.at, format!("{}: {message}", self.path(key)))).ok()
    }

    /// The same for one of a few words.
    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)], report: &mut Report) -> Option<T> {
        self.get(key, report, |node| {
            let given = text(node)?;
            words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
                let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                match did_you_mean(&given, list.iter().copied()) {
                    Some(word) => format!("{given:?} is unknown; did you mean {word:?}?"),
                    None => format!("{given:?} is unknown; use {}", list.join(" or ")),
                }
            })
        })
    }

    /// The same for a table by free keys, each value read with its path.
    pub(crate) fn map<T>(
        &self,
        key: &str,
        report: &mut Report,
        mut read: impl FnMut(&str, &'a Entry, &mut Report) -> Option<T>,
    ) -> Option<Vec<(&'a str, T)>> {
        let node = self.node(key, report)?;
        let path = self.path(key);
        match table(node, &path) {
            Ok(entries) => Some(
                entries
                    .iter()
                    .filter_map(|entry| {
                        let inner = join(&path, &entry.key);
                        Some((entry.key.as_str(), read(&inner, entry, report)?))
                    })
                    .collect(),
            ),
            Err(message) => {
                report.push(node.at, message);
                None
            }
        }
    }

    /// The same for a list, each item read with its path.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        report: &mut Report,
        mut read: impl FnMut(&str, &'a Node, &mut Report) -> Option<T>,
    ) -> Option<Vec<T>> {
        let node = self.node(key, report)?;
        let Value::List(items) = &node.value else {
            let found = node.value.describe();
            report.push(node.at, format!("{}: expected a list, found {found}", self.path(key)));
            return None;
        };
        let path = self.path(key);
        Some(
            items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| read(&format!("{path}[{i}]"), item, report))
                .collect(),
        )
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str, report: &mut Report) -> Option<Vec<String>> {
        self.list(key, report, |path, item, report| {
            text(item).map_err(|message| report.push(item.at, format!("{path}: {message}"))).ok()
        })
    }

    /// A table of texts; numbers and truth values are taken as they are spelt.
    pub(crate) fn text_map(&self, key: &str, report: &mut Report) -> Option<BTreeMap<String, String>> {
        let read = |path: &str, entry: &Entry, report: &mut Report| {
            spelt(&entry.node).map_err(|message| report.push(entry.key_at, format!("{path}: {message}"))).ok()
        };
        let pairs = self.map(key, report, read)?;
        Some(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

fn table<'a>(node: &'a Node, path: &str) -> Result<&'a [Entry], String> {
    match &node.value {
        Value::Table(entries) => Ok(entries),
        other => {
            let what = if path.is_empty() { String::new() } else { format!("{path}: ") };
            Err(format!("{what}expected a table, found {}", other.describe()))
        }
    }
}

/// A text.
pub(crate) fn text(node: &Node) -> Result<String, String> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(_, raw) | Value::Integer(_, raw) | Value::Float(raw) => {
            Err(format!("expected a text, found {raw}: put it into quotes"))
        }
        other => Err(format!("expected a text, found {}", other.describe())),
    }
}

/// A text, or a number or truth value as it is spelt.
pub(crate) fn spelt(node: &Node) -> Result<String, String> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        Value::Bool(_, raw) | Value::Integer(_, raw) | Value::Float(raw) => Ok(raw.clone()),
        Value::Null => Err("has no value: write \"\" for an empty text".to_owned()),
        other => Err(format!("expected a text, found {}", other.describe())),
    }
}

/// A truth value.
pub(crate) fn flag(node: &Node) -> Result<bool, String> {
    match &node.value {
        Value::Bool(value, _) => Ok(*value),
        other => Err(format!("expected true or false, found {}", other.describe())),
    }
}

/// A whole number from `least` to `most`.
pub(crate) fn whole(node: &Node, least: u32, most: u32) -> Result<u32, String> {
    match &node.value {
        Value::Integer(value, raw) => u32::try_from(*value)
            .ok()
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("{raw} is out of range: {least} to {most}")),
        other => Err(format!("expected a whole number, found {}", other.describe())),
    }
}

/// A duration: `10s`, `1h30m`.
pub(crate) fn duration(node: &Node) -> Result<Duration, String> {
    match &node.value {
        Value::Text(text) => quorate_base::parse_duration(text).map_err(|error| error.to_string()),
        Value::Integer(_, raw) => Err(format!("{raw} has no unit: write {raw}s or {raw}ms")),
        other => Err(format!("expected a duration like 10s, found {}", other.describe())),
    }
}

/// An amount of processor in thousandths of a core: `500m`, `2`, `0.5`.
pub(crate) fn cpu(node: &Node) -> Result<u64, String> {
    let given = spelt(node)?;
    quorate_model::quantity::parse_cpu("", &given).map_err(|invalid| invalid.reason)
}

/// An amount of memory in bytes: `256MiB`.
pub(crate) fn memory(node: &Node) -> Result<u64, String> {
    let given = spelt(node)?;
    quorate_model::quantity::parse_memory("", &given).map_err(|invalid| invalid.reason)
}
