//! Colours: only besides words, never instead of them.

use crate::cli::args::Colour;

/// Whether text may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(bool);

/// What a text means, so that it can be coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tint {
    /// Nothing in particular.
    #[default]
    None,
    /// As it should be: green.
    Good,
    /// On its way, or worth a look: yellow.
    Warn,
    /// Broken: red.
    Bad,
    /// By the way: dim.
    Dim,
}

impl Style {
    /// By the flag and the surroundings of a stream that is a terminal or not (no-color.org; a dumb terminal cannot).
    pub(crate) fn new(colour: Colour, terminal: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self(match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && !set("NO_COLOR") && !dumb(),
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
        self.tint(Tint::Good, text)
    }

    /// By the way: dim.
    pub(crate) fn dim(self, text: &str) -> String {
        self.tint(Tint::Dim, text)
    }

    /// By what it means.
    pub(crate) fn tint(self, tint: Tint, text: &str) -> String {
        match tint {
            Tint::None => text.to_owned(),
            Tint::Good => self.wrap("32", text),
            Tint::Warn => self.wrap("33", text),
            Tint::Bad => self.wrap("31", text),
            Tint::Dim => self.wrap("2", text),
        }
    }

    /// One of several: neighbours in their own colours, so that lines of different tasks are told apart at a glance.
    pub(crate) fn palette(self, number: u32, text: &str) -> String {
        const CODES: [&str; 6] = ["36", "33", "32", "35", "34", "31"];
        let code = CODES.get(number as usize % CODES.len()).copied().unwrap_or("0");
        self.wrap(code, text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Whether the terminal can neither colour nor move its cursor.
pub(crate) fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_decides_over_the_surroundings() {
        assert_eq!(Style::new(Colour::Always, false).good("✔"), "\x1b[32m✔\x1b[0m");
        assert_eq!(Style::new(Colour::Never, true).error("x"), "x");
        assert_eq!(Style::new(Colour::Auto, false).dim("x"), "x");
        assert_eq!(Style::plain().tint(Tint::Bad, "down"), "down");
    }
}
