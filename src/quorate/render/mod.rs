//! What people see, as pure functions from answers to text.

pub(crate) mod cluster;
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod progress;
mod table;
pub(crate) mod task;
mod words;

use std::io::IsTerminal as _;

use crate::cli::args::Colour;

/// Whether text may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(bool);

impl Style {
    /// For standard error, by flag and surroundings (no-color.org; a dumb terminal cannot).
    pub(crate) fn new(colour: Colour) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self(match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                std::io::stderr().is_terminal()
                    && !set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        })
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self(false)
    }

    /// A mistake: bold red.
    pub(crate) fn error(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// Success: green.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// By the way: dim.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
