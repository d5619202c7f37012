//! Contexts: saved clusters, in one small file.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use quorate_model::Name;
use quorate_pki::Security;
use serde::{Deserialize, Serialize};

use super::args::{ContextVerb, Global};
use super::print::{self, Printer, say};
use super::verbs::ListArgs;
use crate::document::did_you_mean;
use crate::failure::Failure;
use crate::render::table::{Column, Keep, Side, column};

/// Most bytes of the file.
const MAX_BYTES: u64 = 1 << 20;

/// All that is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contexts {
    /// The one in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    /// By name.
    #[serde(default)]
    contexts: BTreeMap<String, Saved>,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    /// Managers, `host:port`.
    #[serde(default)]
    pub(super) managers: Vec<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// What protects the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) security: Option<String>,
}

/// Where contexts are kept, `None` for a user without a home.
fn path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("quorate").join("contexts.toml"))
}

impl Contexts {
    /// What is saved; nothing where there is no file.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub(super) fn load() -> Result<Self, Failure> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let broken = |why: String| {
            Failure::new(5, format!("{}: {}", path.display(), why.trim_end()))
                .hint("repair or remove the file; quorate context set NAME makes a new one")
        };
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(found) if found.len() > MAX_BYTES => return Err(broken("is larger than 1 MiB".to_owned())),
            _ => fs::read_to_string(path).map_err(|error| broken(format!("cannot be read: {error}")))?,
        };
        let contexts: Self = toml::from_str(&text).map_err(|error| broken(error.to_string()))?;
        for (name, saved) in &contexts.contexts {
            saved.check().map_err(|why| broken(format!("contexts.{name}.{why}")))?;
        }
        Ok(contexts)
    }

    fn save(&self) -> Result<(), Failure> {
        let Some(path) = path() else {
            return Err(Failure::new(1, "there is no place to save contexts: set HOME or XDG_CONFIG_HOME"));
        };
        self.write(&path)
            .map_err(|error| Failure::new(1, format!("{}: cannot be written: {error}", path.display())))
    }

    /// Replaces the file as a whole, so that a crash leaves the old one.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = toml::to_string(self).map_err(std::io::Error::other)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let fresh = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&fresh, path));
        written.inspect_err(|_| drop(fs::remove_file(&fresh)))
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.contexts.keys().map(String::as_str)
    }

    fn get(&self, name: &str) -> Result<&Saved, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let failure = Failure::new(6, format!("there is no context {name:?}"));
            match did_you_mean(name, self.names()) {
                Some(word) => failure.hint(format!("did you mean {word}?")),
                None => failure.hint("quorate context ls    shows which there are"),
            }
        })
    }

    /// The one that `asked` names, else the one in use.
    ///
    /// # Errors
    /// There is no such context.
    pub(super) fn choose(&self, asked: Option<&str>) -> Result<Saved, Failure> {
        match asked.filter(|name| !name.is_empty()).or(self.current.as_deref()) {
            Some(name) => self.get(name).cloned(),
            None => Ok(Saved::default()),
        }
    }
}

impl Saved {
    fn check(&self) -> Result<(), String> {
        if let Some(namespace) = &self.namespace {
            Name::parse("namespace", namespace).map_err(|invalid| invalid.to_string())?;
        }
        if let Some(security) = &self.security {
            security.parse::<Security>().map_err(|error| format!("security: {error}"))?;
        }
        Ok(())
    }
}

/// A line of `context ls`.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    current: bool,
    #[serde(flatten)]
    saved: Saved,
}

const COLUMNS: &[Column<Row>] = &[
    column("current", "", Side::Left, Keep::Always, |row, _| if row.current { "*" } else { "" }.into()),
    column("name", "NAME", Side::Left, Keep::Always, |row, _| row.name.as_str().into()),
    column("managers", "MANAGERS", Side::Left, Keep::Shorten(14), |row, _| {
        row.saved.managers.join(",").into()
    }),
    column("namespace", "NAMESPACE", Side::Left, Keep::Until(1), |row, _| {
        row.saved.namespace.as_deref().unwrap_or_default().into()
    }),
    column("security", "SECURITY", Side::Left, Keep::Until(2), |row, _| {
        row.saved.security.as_deref().unwrap_or_default().into()
    }),
];

/// Does what `context` was asked for.
pub(super) fn run(global: &Global, verb: ContextVerb) -> Result<(), Failure> {
    let mut contexts = Contexts::load()?;
    let printer = Printer::new(global);
    match verb {
        ContextVerb::Ls => {
            let row = |(name, saved): (&String, &Saved)| Row {
                name: name.clone(),
                current: contexts.current.as_ref() == Some(name),
                saved: saved.clone(),
            };
            let rows: Vec<Row> = contexts.contexts.iter().map(row).collect();
            let whole = serde_json::json!({ "contexts": rows });
            printer.list(
                &whole,
                &rows,
                |row| row.name.clone(),
                || {
                    let layout = printer.layout(&ListArgs::default());
                    let table = crate::render::table::draw(COLUMNS, &rows, &layout, printer.now())?;
                    Ok(if rows.is_empty() { "no contexts".to_owned() } else { table })
                },
            )
        }
        ContextVerb::Show { name } => {
            let Some(name) = name.or_else(|| contexts.current.clone()) else {
                return Err(Failure::new(6, "no context is in use").hint("quorate context use NAME"));
            };
            let current = contexts.current.as_deref() == Some(&name);
            let row = Row { saved: contexts.get(&name)?.clone(), name, current };
            printer.object(&row, &row.name)
        }
        ContextVerb::Use { name } => {
            contexts.get(&name)?;
            contexts.current = Some(name.clone());
            contexts.save()?;
            said(global, &format!("context {name} is in use"));
            Ok(())
        }
        ContextVerb::Set { name } => {
            set(&mut contexts, global, &name)?;
            contexts.save()?;
            said(global, &format!("context {name} is saved"));
            Ok(())
        }
        ContextVerb::Rm { name } => {
            contexts.get(&name)?;
            print::confirm(global, &format!("Forget context {name}?"))?;
            contexts.contexts.remove(&name);
            contexts.current.take_if(|current| *current == name);
            contexts.save()?;
            said(global, &format!("context {name} is forgotten"));
            Ok(())
        }
    }
}

fn said(global: &Global, text: &str) {
    if !global.quiet {
        say(text);
    }
}

fn set(contexts: &mut Contexts, global: &Global, name: &str) -> Result<(), Failure> {
    let invalid = |why: String| Failure::new(5, why);
    Name::parse("context", name).map_err(|error| invalid(error.to_string()))?;
    let saved = contexts.contexts.entry(name.to_owned()).or_default();
    if !global.managers.is_empty() {
        saved.managers = global.managers.clone();
    }
    saved.namespace = global.namespace.clone().or(saved.namespace.take());
    saved.security = global.security.as_ref().map(ToString::to_string).or(saved.security.take());
    if saved.managers.is_empty() {
        return Err(Failure::new(2, format!("context {name} needs managers: add --manager HOST:PORT,…")));
    }
    saved.check().map_err(invalid)?;
    // The first one is meant to be used.
    contexts.current.get_or_insert_with(|| name.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Contexts, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        fs::write(&path, text).unwrap();
        Contexts::read(&path)
    }

    #[test]
    fn what_is_written_is_read_again_and_only_by_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        let saved = Saved { managers: vec!["a:1".into()], namespace: Some("shop".into()), security: None };
        let contexts = Contexts {
            current: Some("prod".into()),
            contexts: [("prod".to_owned(), saved), ("dev".to_owned(), Saved::default())].into(),
        };
        contexts.write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), contexts);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn the_asked_one_goes_before_the_one_in_use() {
        let contexts =
            read("current = \"a\"\n[contexts.a]\nmanagers = [\"a:1\"]\n[contexts.b]\nmanagers = [\"b:1\"]\n")
                .unwrap();
        let managers = |asked| contexts.choose(asked).map(|saved| saved.managers);
        assert_eq!(managers(None).unwrap(), ["a:1"]);
        assert_eq!(managers(Some("b")).unwrap(), ["b:1"]);
        assert_eq!(managers(Some("")).unwrap(), ["a:1"]);
        let unknown = managers(Some("bb")).unwrap_err();
        assert_eq!(unknown.exit, 6);
        assert_eq!(Contexts::default().choose(None).unwrap(), Saved::default());
    }

    #[test]
    fn mistakes_in_the_file_are_told_and_never_skipped() {
        for (text, words) in [
            ("curent = \"a\"\n", "unknown field `curent`"),
            ("[contexts.a]\nmanager = [\"a:1\"]\n", "unknown field `manager`"),
            ("[contexts.a]\nmanagers = \"a:1\"\n", "invalid type"),
            ("[contexts.a]\nnamespace = \"No Name\"\n", "contexts.a.namespace"),
            ("[contexts.a]\nsecurity = \"tls\"\n", "contexts.a.security"),
            ("[contexts.a\n", "TOML parse error"),
        ] {
            let failure = read(text).unwrap_err();
            let shown = failure.to_text(crate::render::Style::plain());
            assert!(failure.exit == 5 && shown.contains(words), "{text}: {shown}");
        }
    }
}
