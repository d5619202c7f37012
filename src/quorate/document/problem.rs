//! What is wrong with a file, shown with the line that it is about.

use std::fmt;

use super::{Source, Span};

/// Most characters of a line that are shown.
const SHOWN: usize = 120;

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Problem {
    /// Name of the file, as the user gave it.
    pub(crate) file: String,
    /// Line from 1; 0 when it concerns the whole file.
    pub(crate) line: usize,
    /// Character in the line from 1; 0 when it concerns the whole file.
    pub(crate) column: usize,
    /// What is wrong and what would be right.
    pub(crate) message: String,
    /// The line itself; empty when it concerns the whole file.
    #[serde(skip)]
    text: String,
    /// Characters to underline.
    #[serde(skip)]
    width: usize,
}

impl Problem {
    /// A mistake of the whole file.
    pub(crate) fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            text: String::new(),
            width: 0,
        }
    }

    /// A mistake at `span` of `source`.
    pub(crate) fn at(source: &Source, span: Span, message: impl Into<String>) -> Self {
        let text = source.text.as_str();
        let start = text.floor_char_boundary(span.start.min(text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].split(['\n', '\r']).next().unwrap_or_default();
        let within =
            &text[start..text.floor_char_boundary(span.end.clamp(start, line_start + line.len()).max(start))];
        Self {
            file: source.name.clone(),
            line: text[..line_start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            message: message.into(),
            text: line.to_owned(),
            width: within.chars().count().max(1),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file, self.message);
        }
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        // A long line is shown around the place, not from its start.
        let skipped = self.column.saturating_sub(SHOWN / 2);
        let shown: String = self
            .text
            .chars()
            .skip(skipped)
            .take(SHOWN)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let lead = " ".repeat(self.column - 1 - skipped);
        let carets = "^".repeat(self.width.min(SHOWN.saturating_sub(lead.len()).max(1)));
        write!(f, "\n  {gutter} |\n  {number} | {}\n  {gutter} | {lead}{carets}", shown.trim_end())
    }
}

/// All mistakes of one or more files, in the order of the files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl From<Problem> for Problems {
    fn from(one: Problem) -> Self {
        Self(vec![one])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Format;

    fn source(text: &str) -> Source {
        Source { name: "web.yaml".into(), text: text.into(), format: Format::Yaml }
    }

    #[test]
    fn a_problem_shows_its_line_and_points_at_the_place() {
        let source = source("name: web\nimäge: x\n");
        let problem = Problem::at(&source, Span { start: 10, end: 16 }, "unknown field");
        assert_eq!(problem.to_string(), "web.yaml:2:1: unknown field\n    |\n  2 | imäge: x\n    | ^^^^^");
    }

    #[test]
    fn places_at_the_end_beyond_it_and_over_several_lines_are_shown_too() {
        let source = source("a\nb");
        for (start, end, line, column) in [(3, 3, 2, 2), (99, 120, 2, 2), (0, 3, 1, 1)] {
            let problem = Problem::at(&source, Span { start, end }, "m");
            assert_eq!((problem.line, problem.column, problem.width), (line, column, 1), "{start}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let source = source(&"x".repeat(5_000));
        let text = Problem::at(&source, Span { start: 3_000, end: 3_500 }, "m").to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "web.yaml:1:3001: m");
        assert!(lines.iter().all(|line| line.len() <= 130), "{text}");
        assert!(lines[3].ends_with(&"^".repeat(60)), "{text}");
    }
}
