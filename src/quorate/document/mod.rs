//! Files that people write: read, parsed into one tree with positions, and picked apart field by field.
//!
//! YAML, TOML and JSON become the same [`Node`] tree, so that job files and configuration files share one way to
//! report what is wrong: every mistake at once, each at its line and column, with the line shown.

pub(crate) mod fields;
mod problem;
mod source;
mod suggest;
mod toml_file;
mod tree;
mod yaml;

pub(crate) use fields::Report;
pub(crate) use problem::{Problem, Problems};
pub(crate) use source::{Format, Source};
pub(crate) use suggest::did_you_mean;
pub(crate) use tree::{Entry, Node, Span, Value, locate};

/// The documents of `source`: several only in YAML.
///
/// # Errors
/// What breaks the syntax, at its place. Mistakes that leave the rest readable (a key given twice) come along with all
/// others of the file through `report`.
pub(crate) fn parse(source: &Source, report: &mut Report) -> Result<Vec<Node>, Problems> {
    let parsed = match source.format {
        Format::Yaml => yaml::parse(&source.text, report),
        Format::Json => yaml::parse_json(&source.text, report),
        Format::Toml => toml_file::parse(&source.text, report).map(|root| vec![root]),
    };
    parsed.map_err(|report| report.into_problems(source))
}
