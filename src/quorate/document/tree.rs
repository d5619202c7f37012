//! The tree that every format is parsed into.

/// A piece of the text: byte offsets, end excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) start: usize,
    /// The byte after the last.
    pub(crate) end: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The value.
    pub(crate) value: Value,
    /// Where; of a table or a list at least where it begins.
    pub(crate) at: Span,
}

/// What a file may hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing.
    Null,
    /// True or false, and how it was spelt.
    Bool(bool, String),
    /// A whole number, and how it was spelt.
    Integer(i128, String),
    /// A number with a fraction or an exponent, as it was spelt: `1.10` stays `1.10`.
    Float(String),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Values by key, in the order of the file.
    Table(Vec<Entry>),
}

/// One key of a table with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// Where the key stands.
    pub(crate) key_at: Span,
    /// The value.
    pub(crate) node: Node,
}

impl Value {
    /// What it is, for "expected …, found …".
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(_, raw) | Self::Integer(_, raw) | Self::Float(raw) => raw.clone(),
            Self::Text(text) if text.len() <= 40 => format!("the text {text:?}"),
            Self::Text(_) => "a text".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

impl Node {
    /// The entry `key` of a table.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }
}

/// Where the field `path` stands (`placement.constraints[1]`), or the innermost part of it that the file has.
///
/// Keys may hold dots themselves (labels do): the longest key that fits counts.
pub(crate) fn locate(root: &Node, path: &str) -> Span {
    let (mut at, mut node, mut rest) = (root.at, root, path);
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        match &node.value {
            Value::Table(entries) => {
                let fits = |entry: &&Entry| {
                    rest.strip_prefix(entry.key.as_str())
                        .is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
                };
                let Some(entry) = entries.iter().filter(fits).max_by_key(|entry| entry.key.len()) else {
                    return at;
                };
                rest = &rest[entry.key.len()..];
                node = &entry.node;
                // A table is better pointed at by its key, a value by itself.
                at = if matches!(node.value, Value::Table(_) | Value::List(_) | Value::Null) {
                    entry.key_at
                } else {
                    node.at
                };
            }
            Value::List(items) => {
                let index = rest.strip_prefix('[').and_then(|inner| inner.split_once(']'));
                let found = index.and_then(|(n, after)| Some((items.get(n.parse::<usize>().ok()?)?, after)));
                let Some((item, after)) = found else { return at };
                (node, rest, at) = (item, after, item.at);
            }
            _ => return at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(start: usize, value: Value) -> Node {
        Node { value, at: Span { start, end: start + 1 } }
    }

    fn entry(key: &str, start: usize, value: Value) -> Entry {
        Entry { key: key.into(), key_at: Span { start, end: start + 1 }, node: node(start + 100, value) }
    }

    #[test]
    fn a_path_leads_to_its_value_or_to_what_is_left_of_it() {
        let text = |s: &str| Value::Text(s.into());
        let root = node(
            0,
            Value::Table(vec![
                entry("name", 1, text("web")),
                entry("labels", 2, Value::Table(vec![entry("a", 3, text("x")), entry("a.b", 4, text("y"))])),
                entry("list", 5, Value::List(vec![node(6, text("p")), node(7, text("q"))])),
            ]),
        );
        let table = [
            ("name", 101),
            ("labels.a", 103),
            ("labels.a.b", 104),
            ("labels.c", 2),
            ("list[1]", 7),
            ("list[9]", 5),
            ("list[x", 5),
            ("nothing.here", 0),
            ("name.deeper", 101),
            ("", 0),
        ];
        for (path, start) in table {
            assert_eq!(locate(&root, path).start, start, "{path}");
        }
    }
}
