//! Settings from several places, each remembered with where it comes from.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::document::{self, Format, Node, Problem, Problems, Report, Source, Span, Value, did_you_mean};

/// What may be configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema {
    /// Begins each environment variable.
    pub(super) prefix: &'static str,
    /// Paths of settings.
    pub(super) keys: &'static [&'static str],
    /// Paths of tables whose keys are free.
    pub(super) tables: &'static [&'static str],
}

/// Where a setting comes from.
#[derive(Clone, Debug)]
enum Origin {
    File(Rc<Source>),
    /// A variable of the environment, or a flag.
    Named(String),
}

/// All settings, and all that is wrong with them.
pub(super) struct Layers {
    schema: Schema,
    settings: BTreeMap<String, (Node, Origin)>,
    problems: Vec<Problem>,
}

impl Layers {
    pub(super) fn new(schema: Schema) -> Self {
        Self { schema, settings: BTreeMap::new(), problems: Vec::new() }
    }

    /// Adds files, each over the ones before.
    pub(super) fn files(&mut self, paths: &[String]) {
        for path in paths {
            match Source::read(path, Some(Format::Toml)) {
                Ok(source) => self.source(source),
                Err(found) => self.problems.extend(found.0),
            }
        }
    }

    /// Adds a text.
    pub(super) fn source(&mut self, source: Source) {
        let mut report = Report::default();
        let mut flat = Vec::new();
        match document::parse(&source, &mut report) {
            Ok(documents) => {
                for root in documents {
                    self.flatten(root, "", &mut flat, &mut report);
                }
            }
            Err(found) => self.problems.extend(found.0),
        }
        self.problems.extend(report.into_problems(&source).0);
        let source = Rc::new(source);
        for (path, node) in flat {
            self.settings.insert(path, (node, Origin::File(Rc::clone(&source))));
        }
    }

    /// The tree as paths and values; what the schema does not know is reported.
    fn flatten(&self, node: Node, path: &str, flat: &mut Vec<(String, Node)>, report: &mut Report) {
        if self.schema.keys.contains(&path) {
            flat.push((path.to_owned(), node));
            return;
        }
        let free = self.schema.tables.contains(&path);
        let Value::Table(entries) = node.value else {
            report.push(node.at, format!("{path}: expected a table, found {}", node.value.describe()));
            return;
        };
        for entry in entries {
            let inner = document::fields::join(path, &entry.key);
            if free {
                flat.push((inner, entry.node));
            } else if self.knows(&inner) {
                self.flatten(entry.node, &inner, flat, report);
            } else {
                report.push(entry.key_at, self.unknown(&inner));
            }
        }
    }

    /// Whether `path` is a setting, a table of free keys, or leads to one.
    fn knows(&self, path: &str) -> bool {
        self.paths().any(|known| {
            known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.schema.keys.iter().chain(self.schema.tables).copied()
    }

    fn unknown(&self, path: &str) -> String {
        // Compared with the same part of each known path: a slip in a table's name is found, too.
        let depth = path.split('.').count();
        let cut = |known: &'static str| {
            known.match_indices('.').nth(depth - 1).map_or(known, |(at, _)| &known[..at])
        };
        match did_you_mean(path, self.paths().map(cut)) {
            Some(word) => format!("unknown setting {path:?}; did you mean {word:?}?"),
            None => format!("unknown setting {path:?}; see the commented files in config/"),
        }
    }

    /// Adds what the environment says: all variables with the schema's prefix.
    pub(super) fn environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(self.schema.prefix) else { continue };
            let path = rest.to_lowercase().replace("__", ".");
            self.named(&name, &path, text);
        }
    }

    /// Adds a flag that was given.
    pub(super) fn flag(&mut self, name: &str, path: &str, given: Option<impl ToString>) {
        if let Some(given) = given {
            self.named(name, path, given.to_string());
        }
    }

    fn named(&mut self, name: &str, path: &str, text: String) {
        let origin = Origin::Named(name.to_owned());
        let node = |text: &str| Node { value: Value::Text(text.to_owned()), at: Span::default() };
        if self.schema.keys.contains(&path) {
            self.settings.insert(path.to_owned(), (node(&text), origin));
        } else if self.schema.tables.contains(&path) {
            for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                match pair.split_once('=') {
                    Some((key, value)) => {
                        let inner = document::fields::join(path, key.trim());
                        self.settings.insert(inner, (node(value.trim()), origin.clone()));
                    }
                    None => {
                        let message = format!("{pair:?} is not KEY=VALUE: write a=1,b=2");
                        self.problems.push(Problem::of_file(name, message));
                    }
                }
            }
        } else {
            self.problems.push(Problem::of_file(name, self.unknown(path)));
        }
    }

    /// The setting `path` as `read` understands it.
    pub(super) fn get<T>(&mut self, path: &str, read: impl FnOnce(&Node) -> Result<T, String>) -> Option<T> {
        let (node, _) = self.settings.get(path)?;
        match read(node) {
            Ok(value) => Some(value),
            Err(message) => {
                self.refuse(path, &message);
                None
            }
        }
    }

    /// The same for one that must be given.
    pub(super) fn require<T>(
        &mut self,
        path: &str,
        how: &str,
        read: impl FnOnce(&Node) -> Result<T, String>,
    ) -> Option<T> {
        if !self.settings.contains_key(path) {
            let variable = format!("{}{}", self.schema.prefix, path.to_uppercase().replace('.', "__"));
            self.problems.push(Problem::of_file(
                "configuration",
                format!("{path} is missing: give {how}, {variable}, or {path} in a file (-c)"),
            ));
        }
        self.get(path, read)
    }

    /// All settings of the free table `path`.
    pub(super) fn table<T>(
        &mut self,
        path: &str,
        read: impl Fn(&str, &Node) -> Result<T, String>,
    ) -> Vec<(String, T)> {
        let lead = format!("{path}.");
        let keys: Vec<String> = self.settings.keys().filter(|key| key.starts_with(&lead)).cloned().collect();
        keys.into_iter()
            .filter_map(|key| {
                let short = key[lead.len()..].to_owned();
                let value = self.get(&key, |node| read(&short, node))?;
                Some((short, value))
            })
            .collect()
    }

    /// Reports a setting, at the place that it comes from.
    pub(super) fn refuse(&mut self, path: &str, message: &str) {
        let text = format!("{path}: {message}");
        self.problems.push(match self.settings.get(path) {
            Some((node, Origin::File(source))) => Problem::at(source, node.at, text),
            Some((_, Origin::Named(name))) => Problem::of_file(name, text),
            None => Problem::of_file("configuration", text),
        });
    }

    /// The result, once everything was read.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(Problems(self.problems)),
        }
    }
}

/// A list: of a file, or separated by commas.
pub(super) fn list(node: &Node) -> Result<Vec<String>, String> {
    match &node.value {
        Value::Text(text) => {
            Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
        }
        Value::List(items) => items.iter().map(document::fields::text).collect(),
        other => Err(format!("expected a list, found {}", other.describe())),
    }
}

/// A whole number: of a file, or spelt.
pub(super) fn number(node: &Node, least: u64, most: u64) -> Result<u64, String> {
    let value = match &node.value {
        Value::Integer(value, _) => u64::try_from(*value).ok(),
        Value::Text(text) => text.replace('_', "").parse().ok(),
        other => return Err(format!("expected a whole number, found {}", other.describe())),
    };
    value.filter(|value| (least..=most).contains(value)).ok_or_else(|| {
        format!("expected a whole number from {least} to {most}, found {}", node.value.describe())
    })
}
