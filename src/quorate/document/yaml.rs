//! YAML (and JSON, its subset) into the tree. The one file that names the YAML library.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Location, Options, Spanned};

use super::{Entry, Node, Report, Span, Value};

/// Far above any job file of 1 MiB, far below what hurts: aliases multiply.
const MAX_NODES: usize = 100_000;
const MAX_SCALAR_BYTES: usize = 16 << 20;

/// All documents of a YAML text; empty ones are left out.
pub(super) fn parse(text: &str, report: &mut Report) -> Result<Vec<Node>, Report> {
    let raws: Vec<Spanned<Raw>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| syntax(text, &error))?;
    let mut nodes: Vec<Node> = raws.into_iter().map(|raw| node(text, raw)).collect();
    for document in &nodes {
        report_duplicates(document, "", report);
    }
    nodes.retain(|document| document.value != Value::Null);
    Ok(nodes)
}

/// The one value of a JSON text. Its grammar is checked first, since YAML allows far more.
pub(super) fn parse_json(text: &str, report: &mut Report) -> Result<Vec<Node>, Report> {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let start = byte_of(text, error.line(), error.column());
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        return Err(Report::of(Span { start, end: start + 1 }, format!("this is not JSON: {words}")));
    }
    parse(text, report)
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_NODES },
        // Found again in the tree, all of them at once and with both places.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        emit_comments: false,
    }
}

fn syntax(text: &str, error: &serde_saphyr::Error) -> Report {
    let words = error.without_snippet().to_string();
    // The library says the place in words, too; the report shows it anyway.
    let words = words.rsplit_once(" at line ").map_or(words.as_str(), |(words, _)| words);
    let at = error.location().map_or_else(Span::default, |location| span(text, &location));
    Report::of(at, format!("this is not YAML: {words}"))
}

/// Byte offset of a line and column (both from 1, the column in bytes as serde_json counts it).
fn byte_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

fn span(text: &str, location: &Location) -> Span {
    let whole = location.span();
    let (start, length) = match (whole.byte_offset(), whole.byte_len()) {
        (Some(start), Some(length)) => (start, length),
        _ => {
            let line = usize::try_from(location.line()).unwrap_or(usize::MAX);
            let column = usize::try_from(location.column()).unwrap_or(usize::MAX);
            let start = byte_of(text, line, 1);
            let chars = text[start..].chars().take(column.saturating_sub(1));
            ((start + chars.map(char::len_utf8).sum::<usize>()) as u64, 1)
        }
    };
    let clamp = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    Span { start: clamp(start), end: clamp(start.saturating_add(length)) }
}

/// A value as the library hands it over: positions are added by [`node`].
enum Raw {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Table(Vec<(Spanned<Key>, Spanned<Raw>)>),
}

/// A key, always as text: `8080: x` has the key "8080".
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Integer(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Raw, E> {
        i128::try_from(value).map(Raw::Integer).map_err(|_| E::custom("the number is too large"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Raw, E> {
        Err(E::custom("binary values are not supported: write text"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = table.next_key::<Spanned<Key>>()? {
            if key.value.0.len() > 1024 {
                return Err(A::Error::custom("a key is longer than 1024 bytes"));
            }
            entries.push((key, table.next_value()?));
        }
        Ok(Raw::Table(entries))
    }
}

fn node(text: &str, raw: Spanned<Raw>) -> Node {
    let at = span(text, &raw.defined);
    // What the user typed, e.g. `1.10`, which a number would lose.
    let typed = || text[at.start..at.end].trim().to_owned();
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(value) => Value::Bool(value, typed()),
        Raw::Integer(value) => Value::Integer(value, typed()),
        Raw::Float(value) => Value::Float(if at.end > at.start { typed() } else { value.to_string() }),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(text, item)).collect()),
        Raw::Table(entries) => {
            let entry = |(key, value): (Spanned<Key>, Spanned<Raw>)| Entry {
                key_at: span(text, &key.defined),
                key: key.value.0,
                node: node(text, value),
            };
            Value::Table(entries.into_iter().map(entry).collect())
        }
    };
    Node { value, at }
}

fn report_duplicates(node: &Node, path: &str, report: &mut Report) {
    match &node.value {
        Value::Table(entries) => {
            let mut seen = std::collections::BTreeSet::new();
            for entry in entries {
                let inner = super::fields::join(path, &entry.key);
                if !seen.insert(entry.key.as_str()) {
                    report.push(entry.key_at, format!("{inner} is given twice: remove one of them"));
                }
                report_duplicates(&entry.node, &inner, report);
            }
        }
        Value::List(items) => {
            for (i, item) in items.iter().enumerate() {
                report_duplicates(item, &format!("{path}[{i}]"), report);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        let mut report = Report::default();
        let nodes = parse(text, &mut report).unwrap();
        assert!(report.is_empty());
        nodes.into_iter().next().unwrap()
    }

    fn shown(text: &str, at: Span) -> &str {
        &text[at.start..at.end]
    }

    #[test]
    fn scalars_keep_their_type_their_spelling_and_their_place() {
        let text = "ä: é\na: 1.10\nb: 0x10\nc: true\nd: yes\ne: \"10\"\nf:\ng: -3\nh: 'x y'\n8080: k\n";
        let root = one(text);
        let table = [
            ("ä", Value::Text("é".into()), "é"),
            ("a", Value::Float("1.10".into()), "1.10"),
            ("b", Value::Integer(16, "0x10".into()), "0x10"),
            ("c", Value::Bool(true, "true".into()), "true"),
            ("d", Value::Text("yes".into()), "yes"),
            ("e", Value::Text("10".into()), "\"10\""),
            ("g", Value::Integer(-3, "-3".into()), "-3"),
            ("h", Value::Text("x y".into()), "'x y'"),
            ("8080", Value::Text("k".into()), "k"),
        ];
        for (key, value, typed) in table {
            let entry = root.get(key).unwrap();
            assert_eq!(entry.node.value, value, "{key}");
            assert_eq!(shown(text, entry.node.at), typed, "{key}");
            assert_eq!(shown(text, entry.key_at), key, "{key}");
        }
        assert_eq!(root.get("f").unwrap().node.value, Value::Null);
    }

    #[test]
    fn anchors_and_merges_are_resolved_and_point_at_their_definition() {
        let text = "x-base: &base {cpu: 1}\na: *base\nb:\n  <<: *base\n  memory: 2\n";
        let root = one(text);
        let cpu = &root.get("a").unwrap().node.get("cpu").unwrap().node;
        assert_eq!((&cpu.value, shown(text, cpu.at)), (&Value::Integer(1, "1".into()), "1"));
        let b = &root.get("b").unwrap().node;
        assert!(b.get("cpu").is_some() && b.get("memory").is_some() && b.get("<<").is_none());
    }

    #[test]
    fn every_document_is_read_and_empty_ones_are_left_out() {
        let mut report = Report::default();
        let nodes = parse("---\na: 1\n---\n---\na: 2\n", &mut report).unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(parse("", &mut report).unwrap(), []);
        assert_eq!(parse("# nothing\n", &mut report).unwrap(), []);
    }

    #[test]
    fn keys_given_twice_are_all_reported() {
        let text = "a: 1\nb: {c: 1, c: 2}\na: 3\n";
        let mut report = Report::default();
        parse(text, &mut report).unwrap();
        let found: Vec<_> = report
            .problems()
            .iter()
            .map(|(at, message)| (shown(text, *at), at.start, message.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("c", 15, "b.c is given twice: remove one of them"),
                ("a", 21, "a is given twice: remove one of them")
            ]
        );
    }

    #[test]
    fn broken_yaml_is_reported_where_it_breaks() {
        let mut report = Report::default();
        let broken = parse("a: 1\nb: [1, 2\nc: 3\n", &mut report).unwrap_err();
        let (at, message) = broken.problems().first().unwrap().clone();
        assert!(message.starts_with("this is not YAML: "), "{message}");
        assert!(!message.contains("line "), "{message}");
        assert!(at.start >= 5, "{at:?}: {message}");
    }

    #[test]
    fn json_is_held_to_its_own_grammar() {
        let mut report = Report::default();
        let good = "{\n\t\"a\": [1, 2.50, \"\\ud83d\\ude00\\/\"],\n\t\"b\": null}";
        let root = parse_json(good, &mut report).unwrap().remove(0);
        let Value::List(items) = &root.get("a").unwrap().node.value else { panic!("{root:?}") };
        assert_eq!(items[1].value, Value::Float("2.50".into()));
        assert_eq!(items[2].value, Value::Text("😀/".into()));
        let bad = parse_json("{\"a\": 1,\n b: 2}", &mut report).unwrap_err();
        let (at, message) = bad.problems().first().unwrap().clone();
        assert_eq!((at.start, message.as_str()), (10, "this is not JSON: key must be a string"));
    }

    #[test]
    fn aliases_cannot_blow_up() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let inner = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        assert!(parse(&text, &mut Report::default()).is_err());
        let long = "x".repeat(500_000);
        let aliases = vec!["*a"; 2_000].join(", ");
        assert!(parse(&format!("a: &a {long}\nb: [{aliases}]\n"), &mut Report::default()).is_err());
        let deep = "[".repeat(5_000);
        assert!(parse(&deep, &mut Report::default()).is_err());
    }
}
