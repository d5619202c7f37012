//! Printing results, as they were asked for.

use std::io::{self, IsTerminal as _, Write as _};

use quorate_base::{Clock, Timestamp};
use serde::Serialize;

use super::args::{Colour, Global, Output};
use super::verbs::ListArgs;
use crate::failure::Failure;
use crate::render::Style;
use crate::render::table::{self, Column, Layout};

/// How results are printed.
pub(super) struct Printer {
    output: Output,
    colour: Colour,
    clock: Clock,
}

impl Printer {
    /// As the flags say.
    pub(super) fn new(global: &Global) -> Self {
        Self { output: global.output(), colour: global.color, clock: Clock::system() }
    }

    /// How tables are laid out: on a terminal within its width, piped uncut.
    pub(super) fn layout(&self, list: &ListArgs) -> Layout {
        let terminal = io::stdout().is_terminal();
        let size = terminal.then(|| terminal_size::terminal_size_of(io::stdout())).flatten();
        Layout {
            wide: self.output == Output::Wide,
            width: size.map(|(width, _)| usize::from(width.0)),
            headings: !list.no_headers,
            columns: list.columns.clone(),
            style: Style::new(self.colour, terminal),
        }
    }

    /// Prints a list: `whole` as a document, or its items one by one, or their names, or a table of them.
    pub(super) fn list<D: Serialize, T: Serialize>(
        &self,
        whole: &D,
        items: &[T],
        name: impl Fn(&T) -> String,
        table: impl FnOnce() -> Result<String, String>,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Table | Output::Wide => print(&table().map_err(unknown_column)?),
            Output::Jsonl => items.iter().try_for_each(|item| self.document(item)),
            Output::Json | Output::Yaml => self.document(whole),
            Output::Name => items.iter().try_for_each(|item| print(&name(item))),
        }
    }

    /// Prints one object: as a document unless only its name is asked for.
    pub(super) fn object<T: Serialize>(&self, object: &T, name: &str) -> Result<(), Failure> {
        if self.output == Output::Name { print(name) } else { self.document(object) }
    }

    /// Prints a document; for people as JSON.
    pub(super) fn document<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(1, format!("the answer cannot be printed as a document: {error}"))
        };
        match self.output {
            Output::Yaml => {
                // By way of JSON, which decides about names and numbers.
                let value = serde_json::to_value(value).map_err(|error| failed(&error))?;
                let text = serde_saphyr::to_string(&value).map_err(|error| failed(&error))?;
                print(&format!("---\n{}", text.trim_end()))
            }
            Output::Jsonl => print(&serde_json::to_string(value).map_err(|error| failed(&error))?),
            _ => print(&serde_json::to_string_pretty(value).map_err(|error| failed(&error))?),
        }
    }

    /// Filters and sorts the rows of a list.
    ///
    /// # Errors
    /// The flags name a column that there is not, be it in a list without rows.
    pub(super) fn choose<T>(
        &self,
        columns: &[Column<T>],
        rows: &mut Vec<T>,
        list: &ListArgs,
    ) -> Result<(), Failure> {
        let now = self.now();
        for name in &list.columns {
            table::find(columns, name).map_err(unknown_column)?;
        }
        table::filter(columns, rows, &list.filters, now).map_err(unknown_column)?;
        match &list.sort_by {
            Some(key) => table::sort(columns, rows, key, now).map_err(unknown_column),
            None => Ok(()),
        }
    }

    /// The present moment.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn unknown_column(why: String) -> Failure {
    Failure::new(2, why).hint("quorate help filters    shows the columns of each list")
}

/// Asks on the terminal, unless `--yes` was given; anything but yes is no.
///
/// # Errors
/// The answer is no, or there is nobody to ask.
pub(super) fn confirm(global: &Global, question: &str) -> Result<(), Failure> {
    if global.yes {
        return Ok(());
    }
    let why = match () {
        () if global.no_input => "--no-input forbids to ask",
        () if !io::stdin().is_terminal() || !io::stderr().is_terminal() => "This is no terminal to answer on",
        () => {
            let _ = write!(io::stderr(), "{question} [y/N] ");
            let mut line = String::new();
            io::stdin()
                .read_line(&mut line)
                .map_err(|error| Failure::new(1, format!("the answer cannot be read: {error}")))?;
            return match line.trim().to_lowercase().as_str() {
                "y" | "yes" => Ok(()),
                _ => Err(Failure::new(1, "nothing was changed")),
            };
        }
    };
    Err(Failure::new(2, format!("{question} {why}: add --yes")))
}

/// Prints to standard output, with a line end.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}

/// Says something on standard error.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
