//! Selectors over labels: `app=web,tier!=db,zone in (a,b),!legacy`.
//!
//! The grammar and the meaning are those that users know from Kubernetes:
//! a comma means AND, and `!=` and `notin` also hold where the label is not
//! set at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{Invalid, node::legal_label_key};

/// Longest selector, in bytes.
const MAX_SELECTOR: usize = 2048;
/// Most conditions of one selector.
const MAX_CONDITIONS: usize = 32;
/// Characters that end a bare value.
const SPECIAL: &str = ",()=!\"' ";

/// Which labels an object must have; the empty selector takes every object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Equal(String),
    NotEqual(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Set,
    Unset,
}

impl Selector {
    /// Reads conditions separated by commas: `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k`, `!k`.
    /// A value with special characters or blanks stands in quotes.
    ///
    /// # Errors
    /// [`Invalid`] at `path` that points at the column inside the text.
    pub fn parse(path: &str, text: &str) -> Result<Self, Invalid> {
        if text.len() > MAX_SELECTOR {
            return Err(Invalid::new(path, format!("longer than {MAX_SELECTOR} bytes")));
        }
        let mut reader = Reader { text, at: 0 };
        reader
            .selector()
            .map_err(|why| Invalid::new(path, format!("column {} of {text:?}: {why}", reader.at + 1)))
    }

    /// Whether the labels meet every condition.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|one| one.holds(labels.get(&one.key)))
    }

    /// Whether it takes every object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Requirement {
    fn holds(&self, label: Option<&String>) -> bool {
        match &self.test {
            Test::Equal(value) => label == Some(value),
            Test::NotEqual(value) => label != Some(value),
            Test::In(values) => label.is_some_and(|label| values.contains(label)),
            Test::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
            Test::Set => label.is_some(),
            Test::Unset => label.is_none(),
        }
    }
}

/// Reads from the left; `at` is where it stopped.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn selector(&mut self) -> Result<Selector, String> {
        let mut conditions = Vec::new();
        self.blanks();
        if self.rest().is_empty() {
            return Ok(Selector::default());
        }
        loop {
            if conditions.len() == MAX_CONDITIONS {
                return Err(format!("more than {MAX_CONDITIONS} conditions"));
            }
            conditions.push(self.requirement()?);
            self.blanks();
            if self.rest().is_empty() {
                return Ok(Selector(conditions));
            }
            if !self.take(",") {
                return Err(
                    "expected a comma or the end; a value with special characters needs quotes".into()
                );
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        self.blanks();
        if self.take("!") {
            return Ok(Requirement { key: self.key()?, test: Test::Unset });
        }
        let key = self.key()?;
        self.blanks();
        let test = if self.take("!=") {
            Test::NotEqual(self.value()?)
        } else if self.take("==") || self.take("=") {
            Test::Equal(self.value()?)
        } else if self.word("in") {
            Test::In(self.values()?)
        } else if self.word("notin") {
            Test::NotIn(self.values()?)
        } else {
            Test::Set
        };
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, String> {
        self.blanks();
        let start = self.at;
        let key = self.run(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        if legal_label_key(key) {
            return Ok(key.to_owned());
        }
        self.at = start;
        Err("expected a label key: 1-128 letters, digits and -_./".to_owned())
    }

    /// One value, bare or in quotes; a bare one may be empty.
    fn value(&mut self) -> Result<String, String> {
        self.blanks();
        for quote in ["\"", "'"] {
            if self.take(quote) {
                let value = self.run(|c| !quote.contains(c));
                return if self.take(quote) {
                    Ok(value.to_owned())
                } else {
                    Err("the quote is not closed".into())
                };
            }
        }
        Ok(self.run(|c| !SPECIAL.contains(c)).to_owned())
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        self.blanks();
        if !self.take("(") {
            return Err("expected ( and values, as in zone in (a,b)".to_owned());
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            self.blanks();
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err("expected a comma or ) after a value".to_owned());
            }
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.run(|c| c == ' ');
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// A word that does not go on.
    fn word(&mut self, word: &str) -> bool {
        let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '(']);
        self.rest().strip_prefix(word).is_some_and(ends) && self.take(word)
    }

    fn run(&mut self, legal: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.find(|c| !legal(c)).unwrap_or(rest.len());
        self.at += taken;
        rest.get(..taken).unwrap_or_default()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, one) in self.0.iter().enumerate() {
            let (comma, key) = (if i > 0 { "," } else { "" }, &one.key);
            match &one.test {
                Test::Equal(value) => write!(f, "{comma}{key}={}", quoted(value))?,
                Test::NotEqual(value) => write!(f, "{comma}{key}!={}", quoted(value))?,
                Test::In(values) => write!(f, "{comma}{key} in ({})", listed(values))?,
                Test::NotIn(values) => write!(f, "{comma}{key} notin ({})", listed(values))?,
                Test::Set => write!(f, "{comma}{key}")?,
                Test::Unset => write!(f, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

fn listed(values: &BTreeSet<String>) -> String {
    values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(",")
}

/// A value such that it reads back: what is read holds one kind of quote at the most.
fn quoted(value: &str) -> String {
    if !value.contains(|c| SPECIAL.contains(c)) {
        return value.to_owned();
    }
    let quote = if value.contains('"') { '\'' } else { '"' };
    format!("{quote}{value}{quote}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn conditions_hold_as_in_kubernetes() {
        let web = labels(&[("app", "web"), ("tier", "front"), ("a/b", "x y"), ("none", "")]);
        for (text, holds) in [
            ("", true),
            ("  ", true),
            ("app=web", true),
            ("app==web", true),
            (" app = web , tier = front ", true),
            ("app=db", false),
            ("app=web,tier=back", false),
            ("app!=db", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("missing=", false),
            ("none=", true),
            ("app in (db,web)", true),
            ("app in(db)", false),
            ("missing in (a)", false),
            ("app notin (db)", true),
            ("app notin (db, web)", false),
            ("missing notin (a)", true),
            ("app", true),
            ("missing", false),
            ("!app", false),
            ("!missing", true),
            ("a/b='x y'", true),
            ("in in (a),in", false),
            ("inner", false),
        ] {
            assert_eq!(Selector::parse("selector", text).unwrap().matches(&web), holds, "{text:?}");
        }
        assert!(Selector::parse("selector", "").unwrap().is_empty());
    }

    #[test]
    fn errors_point_inside_the_text() {
        for (text, words) in [
            ("=web", "column 1 of \"=web\": expected a label key"),
            ("app=web,", "column 9"),
            ("app=web tier=x", "column 9"),
            ("app in web", "expected ( and values"),
            ("app in (a", "expected a comma or )"),
            ("app='web", "the quote is not closed"),
            ("app=a=b", "column 6"),
            ("app>1", "expected a comma or the end"),
            ("ä=b", "column 1"),
            ("!", "expected a label key"),
            (&vec!["a=b"; 33].join(","), "more than 32 conditions"),
            (&"a".repeat(2049), "longer than 2048 bytes"),
            (&"a".repeat(200), "1-128 letters"),
        ] {
            let error = Selector::parse("selector", text).unwrap_err();
            assert_eq!(error.path, "selector");
            assert!(error.reason.contains(words), "{text:?}: {}", error.reason);
        }
    }

    fn any_selector() -> impl Strategy<Value = Selector> {
        let value = || "[a-z ,()=!']{0,4}|[a-z\"=]{0,3}";
        let values = || proptest::collection::btree_set(value(), 1..4);
        let test = prop_oneof![
            value().prop_map(Test::Equal),
            value().prop_map(Test::NotEqual),
            values().prop_map(Test::In),
            values().prop_map(Test::NotIn),
            Just(Test::Set),
            Just(Test::Unset),
        ];
        let one = ("[a-c/._-]{1,3}|in|notin", test).prop_map(|(key, test)| Requirement { key, test });
        proptest::collection::vec(one, 0..5).prop_map(Selector)
    }

    proptest! {
        #[test]
        fn a_selector_reads_back_as_it_prints(selector in any_selector()) {
            let text = selector.to_string();
            prop_assert_eq!(Selector::parse("s", &text).unwrap(), selector, "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[ab=!,() '\"]{0,20}") {
            if let Ok(selector) = Selector::parse("s", &text) {
                prop_assert_eq!(Selector::parse("s", &selector.to_string()).unwrap(), selector);
            }
        }

        #[test]
        fn more_conditions_take_less(
            a in any_selector(),
            b in any_selector(),
            labels in proptest::collection::btree_map("[a-c]", "[a-z]{0,2}", 0..4),
        ) {
            let both = Selector([a.0.clone(), b.0.clone()].concat());
            prop_assert_eq!(both.matches(&labels), a.matches(&labels) && b.matches(&labels));
        }
    }
}
