//! Lists: what is shown of each object, by columns that can be chosen, filtered and sorted by.

use std::cmp::Ordering;

use quorate_base::Timestamp;

use super::style::{Style, Tint};
use super::words::shortened;
use crate::document::did_you_mean;

/// Which side of a column its texts keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What becomes of a column where there is little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It stays.
    Always,
    /// It goes; the higher, the earlier.
    Until(u8),
    /// It stays, with texts shortened down to this many characters.
    Shorten(usize),
    /// It is shown only by `-o wide`, or by name.
    Wide,
}

/// What a cell is compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// As a number.
    Number(u64),
    /// As a word.
    Word(String),
}

/// A text and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    key: Key,
    tint: Tint,
}

impl Cell {
    /// A number.
    pub(crate) fn number(number: impl Into<u64>) -> Self {
        let number = number.into();
        Self { text: number.to_string(), key: Key::Number(number), tint: Tint::None }
    }

    /// The same, compared by `key`.
    pub(crate) fn by(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// The same in a colour.
    pub(crate) fn tint(mut self, tint: Tint) -> Self {
        self.tint = tint;
        self
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        // A line end inside a cell would break the table.
        let text = text.into().replace(['\n', '\r'], " ");
        Self { key: Key::Word(text.clone()), text, tint: Tint::None }
    }
}

/// One column of a list of `T`.
pub(crate) struct Column<T> {
    /// Names it in `--columns`, `--sort-by` and `--filter`.
    pub(crate) key: &'static str,
    /// Stands above it.
    pub(crate) heading: &'static str,
    /// Which side its texts keep to.
    pub(crate) side: Side,
    /// What becomes of it where there is little room.
    pub(crate) keep: Keep,
    /// Its text for one object.
    pub(crate) cell: fn(&T, Timestamp) -> Cell,
}

/// A column.
pub(crate) const fn column<T>(
    key: &'static str,
    heading: &'static str,
    side: Side,
    keep: Keep,
    cell: fn(&T, Timestamp) -> Cell,
) -> Column<T> {
    Column { key, heading, side, keep, cell }
}

/// The column that `key` names; `state` and `status` mean the same.
///
/// # Errors
/// There is none: what there is instead.
pub(crate) fn find<'c, T>(columns: &'c [Column<T>], key: &str) -> Result<&'c Column<T>, String> {
    let wanted = key.to_lowercase();
    let same = |column: &&Column<T>| match (column.key, wanted.as_str()) {
        ("state", "status") | ("status", "state") => true,
        (key, wanted) => key == wanted,
    };
    columns.iter().find(same).ok_or_else(|| {
        let known: Vec<&str> =
            columns.iter().map(|column| column.key).filter(|key| !key.is_empty()).collect();
        match did_you_mean(&wanted, known.iter().copied()) {
            Some(word) => format!("there is no column {key:?}; did you mean {word:?}?"),
            None => format!("there is no column {key:?}; there are {}", known.join(", ")),
        }
    })
}

/// A condition on a column: one of the values, or none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The column.
    pub(crate) key: String,
    /// In lower case; `*` stands for anything.
    values: Vec<String>,
    /// Whether none of the values may match.
    not: bool,
}

impl std::str::FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no filter: write COLUMN=VALUE, like status=running,pending");
        let (key, values) = text.split_once('=').ok_or_else(bad)?;
        let (key, not) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_lowercase()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Self { key: key.trim().to_lowercase(), values, not })
    }
}

impl Filter {
    fn holds(&self, cell: &Cell) -> bool {
        let text = match &cell.key {
            Key::Word(word) => word.to_lowercase(),
            Key::Number(_) => cell.text.to_lowercase(),
        };
        self.values.iter().any(|value| matches(value, &text)) != self.not
    }
}

/// Whether `text` is as `pattern` says, where `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| matches(tail, &rest[at..]))
}

/// Keeps the rows for which all filters hold.
///
/// # Errors
/// A filter on a column that there is not.
pub(crate) fn filter<T>(
    columns: &[Column<T>],
    rows: &mut Vec<T>,
    filters: &[Filter],
    now: Timestamp,
) -> Result<(), String> {
    for filter in filters {
        let column = find(columns, &filter.key)?;
        rows.retain(|row| filter.holds(&(column.cell)(row, now)));
    }
    Ok(())
}

/// Sorts by the column `key`, downwards with a leading `-`; equal ones stay in their order.
///
/// # Errors
/// There is no such column.
pub(crate) fn sort<T>(
    columns: &[Column<T>],
    rows: &mut [T],
    key: &str,
    now: Timestamp,
) -> Result<(), String> {
    let (key, down) = key.strip_prefix('-').map_or((key, false), |key| (key, true));
    let column = find(columns, key)?;
    rows.sort_by(|a, b| {
        let order: Ordering = (column.cell)(a, now).key.cmp(&(column.cell)(b, now).key);
        if down { order.reverse() } else { order }
    });
    Ok(())
}

/// How lists are laid out.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// All columns, whatever the room.
    pub(crate) wide: bool,
    /// Characters of a line; `None` = never cut.
    pub(crate) width: Option<usize>,
    /// Whether headings stand above.
    pub(crate) headings: bool,
    /// Columns by name; empty = the usual ones.
    pub(crate) columns: Vec<String>,
    /// Colours.
    pub(crate) style: Style,
}

impl Layout {
    /// The usual columns, uncut and without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { wide: false, width: None, headings: true, columns: Vec::new(), style: Style::plain() }
    }
}

/// A column with its texts.
struct Drawn {
    heading: &'static str,
    side: Side,
    keep: Keep,
    cells: Vec<Cell>,
    width: usize,
}

/// Draws rows under their headings: two blanks between columns, none at line ends. A column without any text is left out.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn draw<T>(
    columns: &[Column<T>],
    rows: &[T],
    layout: &Layout,
    now: Timestamp,
) -> Result<String, String> {
    let named = !layout.columns.is_empty();
    let chosen: Vec<&Column<T>> = if named {
        layout.columns.iter().map(|key| find(columns, key)).collect::<Result<_, _>>()?
    } else {
        columns.iter().filter(|column| layout.wide || column.keep != Keep::Wide).collect()
    };
    let mut drawn: Vec<Drawn> = chosen
        .into_iter()
        .map(|column| {
            let cells: Vec<Cell> = rows.iter().map(|row| (column.cell)(row, now)).collect();
            let texts = cells.iter().map(|cell| cell.text.chars().count());
            let heading = if layout.headings { column.heading.chars().count() } else { 0 };
            let width = texts.chain([heading]).max().unwrap_or(0);
            let keep = match column.keep {
                Keep::Until(_) | Keep::Wide if named => Keep::Always,
                keep => keep,
            };
            Drawn { heading: column.heading, side: column.side, keep, cells, width }
        })
        .filter(|column| named || column.cells.iter().any(|cell| !cell.text.is_empty()))
        .collect();
    if let (Some(width), false) = (layout.width, layout.wide) {
        fit(&mut drawn, width);
    }
    let mut lines = Vec::new();
    if layout.headings {
        lines.push(line(&drawn, |column| (column.heading.to_owned(), Tint::None), layout.style));
    }
    for row in 0..rows.len() {
        let cell = |column: &Drawn| {
            let cell = &column.cells[row];
            (shortened(&cell.text, column.width), cell.tint)
        };
        lines.push(line(&drawn, cell, layout.style));
    }
    Ok(lines.join("\n"))
}

fn line(columns: &[Drawn], text: impl Fn(&Drawn) -> (String, Tint), style: Style) -> String {
    let mut out = String::new();
    for (at, column) in columns.iter().enumerate() {
        let (text, tint) = text(column);
        let gap = " ".repeat(column.width.saturating_sub(text.chars().count()));
        let text = if text.is_empty() { text } else { style.tint(tint, &text) };
        let after = if at + 1 == columns.len() { "" } else { "  " };
        match column.side {
            Side::Left => out.push_str(&format!("{text}{gap}{after}")),
            Side::Right => out.push_str(&format!("{gap}{text}{after}")),
        }
    }
    out.trim_end().to_owned()
}

/// Drops and shortens columns until a line has at most `width` characters, as far as they allow it.
fn fit(columns: &mut Vec<Drawn>, width: usize) {
    let least = |column: &Drawn| match column.keep {
        Keep::Shorten(least) => column.width.min(least.max(column.heading.chars().count())),
        _ => column.width,
    };
    let gaps = |columns: &[Drawn]| 2 * columns.len().saturating_sub(1);
    while columns.iter().map(least).sum::<usize>() + gaps(columns) > width {
        let rank = |column: &Drawn| if let Keep::Until(rank) = column.keep { Some(rank) } else { None };
        let Some(highest) = columns.iter().filter_map(rank).max() else { break };
        columns.retain(|column| rank(column) != Some(highest));
    }
    let mut over =
        (columns.iter().map(|column| column.width).sum::<usize>() + gaps(columns)).saturating_sub(width);
    // The one that is widest above its least gives first.
    while over > 0 {
        let spare = |column: &&mut Drawn| column.width - least(column);
        let Some(widest) = columns.iter_mut().max_by_key(spare).filter(|column| spare(column) > 0) else {
            break;
        };
        widest.width -= 1;
        over -= 1;
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
