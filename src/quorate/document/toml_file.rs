//! TOML into the tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, Node, Report, Span, Value};

/// The table of a TOML text.
pub(super) fn parse(text: &str, report: &mut Report) -> Result<Node, Report> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut broken = Report::default();
        for error in errors {
            let at =
                error.span().map_or_else(Span::default, |span| Span { start: span.start, end: span.end });
            broken.push(at, format!("this is not TOML: {}", error.message()));
        }
        return Err(broken);
    }
    let span = root.span();
    let at = Span { start: span.start, end: span.end };
    Ok(Node { value: table(root.get_ref(), report), at })
}

fn table(entries: &DeTable<'_>, report: &mut Report) -> Value {
    let mut out: Vec<Entry> = entries
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().as_ref().to_owned(),
            key_at: Span { start: key.span().start, end: key.span().end },
            node: node(value, report),
        })
        .collect();
    out.sort_by_key(|entry| entry.key_at);
    Value::Table(out)
}

fn node(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Node {
    let at = Span { start: value.span().start, end: value.span().end };
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.as_ref().to_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(whole) => Value::Integer(whole, number.as_str().to_owned()),
            Err(_) => {
                report.push(at, format!("{} is too large a number", number.as_str()));
                Value::Null
            }
        },
        DeValue::Float(number) => Value::Float(number.as_str().to_owned()),
        DeValue::Boolean(value) => Value::Bool(*value, value.to_string()),
        DeValue::Datetime(moment) => Value::Text(moment.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(item, report)).collect()),
        DeValue::Table(entries) => table(entries, report),
    };
    Node { value, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_type_and_their_place() {
        let text = "name = \"m1\"\nn = 50_000\nf = 1.10\n[raft]\nlisten = 'x'\nlist = [1, \"a\"]\n";
        let root = parse(text, &mut Report::default()).unwrap();
        let name = root.get("name").unwrap();
        assert_eq!((&name.node.value, name.node.at.start), (&Value::Text("m1".into()), 7));
        assert_eq!(root.get("n").unwrap().node.value, Value::Integer(50_000, "50000".into()));
        assert_eq!(root.get("f").unwrap().node.value, Value::Float("1.10".into()));
        let raft = root.get("raft").unwrap();
        assert_eq!(&text[raft.key_at.start..raft.key_at.end], "raft");
        let Value::List(items) = &raft.node.get("list").unwrap().node.value else { panic!("{raft:?}") };
        assert_eq!(items[1].value, Value::Text("a".into()));
    }

    #[test]
    fn every_syntax_error_is_reported() {
        let text = "a = \nb = 1\nb = 2\n";
        let broken = parse(text, &mut Report::default()).unwrap_err();
        let starts: Vec<usize> = broken.problems().iter().map(|(at, _)| at.start).collect();
        assert_eq!(starts.len(), 2, "{:?}", broken.problems());
        assert!(broken.problems().iter().all(|(_, message)| message.starts_with("this is not TOML: ")));
    }
}
