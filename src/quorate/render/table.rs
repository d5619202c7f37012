//! Columns under their headings.

use std::fmt;

/// Which side of a column its texts keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table without lines: two blanks between columns, none at line ends.
pub(super) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(super) fn new(columns: &[(&'static str, Side)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: a text per column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A line end inside a cell would break the table.
        self.rows.push(cells.into_iter().map(|cell| cell.replace(['\n', '\r'], " ")).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let mut out = String::new();
            for ((cell, (_, side)), width) in cells.into_iter().zip(&self.columns).zip(&widths) {
                match side {
                    Side::Left => out.push_str(&format!("{cell:<width$}  ")),
                    Side::Right => out.push_str(&format!("{cell:>width$}  ")),
                }
            }
            out.trim_end().to_owned()
        };
        f.write_str(&line(self.columns.iter().map(|(heading, _)| *heading).collect()))?;
        for row in &self.rows {
            write!(f, "\n{}", line(row.iter().map(String::as_str).collect()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_text_and_lines_end_without_blanks() {
        let mut table = Table::new(&[("NAME", Side::Left), ("N", Side::Right), ("WHY", Side::Left)]);
        table.row(["é".to_owned(), "10".to_owned(), String::new()]);
        table.row(["longer".to_owned(), "3".to_owned(), "a\nb".to_owned()]);
        assert_eq!(table.to_string(), "NAME     N  WHY\né       10\nlonger   3  a b");
    }
}
