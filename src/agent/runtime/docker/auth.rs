//! Logins to registries, from a file in the form of Docker's `config.json`.
//!
//! The file is read for each pull, so that a changed login counts at once. Nothing of it is ever logged.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

use crate::durable;
use crate::step::Fault;

/// Where Docker's client keeps the logins of root.
const USUAL: &str = "/root/.docker/config.json";

/// How to log in.
#[derive(Debug, Default)]
pub(super) enum Login {
    /// Without a name.
    #[default]
    Anonymous,
    /// By these.
    Known(DockerCredentials),
    /// By what a program would tell that the agent does not run.
    Helper {
        /// The file that names it.
        file: String,
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stored {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.auth.is_empty() && self.username.is_empty() && self.identitytoken.is_empty()
    }
}

/// The login for the registry of `image`; `index` is where logins of the engine's own registry are kept.
///
/// # Errors
/// Transient: the file is there and cannot be used; it may just be being written.
pub(super) fn find(file: Option<&Path>, image: &str, index: &str) -> Result<Login, Fault> {
    let path = file.unwrap_or(Path::new(USUAL));
    let cannot =
        |why: String| Fault::transient(format!("cannot read the logins of {}: {why}", path.display()));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok(Login::Anonymous);
        }
        Err(error) => return Err(cannot(durable::text(&error))),
    };
    // The parser's words could quote what is secret: its place is enough.
    let stored: Stored = serde_json::from_str(&text)
        .map_err(|error| cannot(format!("line {} is not as Docker writes it", error.line())))?;
    let registry = registry(image).unwrap_or(index);
    choose(stored, registry, path).map_err(cannot)
}

fn choose(stored: Stored, registry: &str, path: &Path) -> Result<Login, String> {
    let of = |key: &str| host(key) == host(registry);
    let helper = stored.cred_helpers.iter().find(|(key, _)| of(key)).map(|(_, name)| name.clone());
    let entry = stored.auths.into_iter().find(|(key, _)| of(key));
    match (entry, helper) {
        (Some((key, entry)), None) if !entry.is_empty() => {
            credentials(entry, key).map(Login::Known).map_err(|why| format!("auths.{registry}: {why}"))
        }
        (_, Some(name)) => Ok(Login::Helper { file: path.display().to_string(), name }),
        (_, None) if !stored.creds_store.is_empty() => {
            Ok(Login::Helper { file: path.display().to_string(), name: stored.creds_store })
        }
        _ => Ok(Login::Anonymous),
    }
}

fn credentials(entry: Entry, key: String) -> Result<DockerCredentials, &'static str> {
    let (mut username, mut password) = (entry.username, entry.password);
    if !entry.auth.is_empty() {
        let bytes = STANDARD.decode(entry.auth.trim()).map_err(|_| "auth is not base64")?;
        let text = String::from_utf8(bytes).map_err(|_| "auth is not text")?;
        let (name, secret) = text.split_once(':').ok_or("auth is not NAME:PASSWORD in base64")?;
        (username, password) = (name.to_owned(), secret.trim_end_matches('\0').to_owned());
    }
    let some = |text: String| (!text.is_empty()).then_some(text);
    let token = some(entry.identitytoken);
    Ok(DockerCredentials {
        // With a token the password is none.
        password: if token.is_some() { None } else { some(password) },
        username: some(username),
        serveraddress: Some(key),
        identitytoken: token,
        ..DockerCredentials::default()
    })
}

/// The registry that an image names; `None` for the engine's own.
fn registry(image: &str) -> Option<&str> {
    let (first, _) = image.split_once('/')?;
    (first.contains(['.', ':']) || first == "localhost").then_some(first)
}

/// A registry without scheme and path: logins are kept under any of these forms.
fn host(registry: &str) -> &str {
    let bare = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    bare.split('/').next().unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "https://index.test/v1/";

    fn login(text: &str, image: &str) -> Result<Login, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        find(Some(&path), image, INDEX)
    }

    fn known(text: &str, image: &str) -> (Option<String>, Option<String>, Option<String>) {
        match login(text, image).unwrap() {
            Login::Known(found) => (found.username, found.password, found.identitytoken),
            other => panic!("{other:?}"),
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn each_form_of_a_login_is_read() {
        let ann = (some("ann"), some("s:e"), None);
        assert_eq!(known(r#"{"auths":{"r.test:5000":{"auth":"YW5uOnM6ZQ=="}}}"#, "r.test:5000/a/b:1"), ann);
        let plain = r#"{"auths":{"https://r.test/v2/":{"username":"ann","password":"s:e"}}, "other": 1}"#;
        assert_eq!(known(plain, "r.test/a@sha256:00"), ann);
        assert_eq!(
            known(r#"{"auths":{"https://index.test/v1/":{"auth":"YW5uOnM6ZQ=="}}}"#, "busybox:1"),
            ann
        );
        let token = r#"{"auths":{"r.test":{"auth":"YW5uOg==","identitytoken":"t"}}}"#;
        assert_eq!(known(token, "r.test/a"), (some("ann"), None, some("t")));
    }

    #[test]
    fn without_a_login_the_pull_is_anonymous() {
        let elsewhere = r#"{"auths":{"r.test":{"auth":"YW5uOnM6ZQ=="}}}"#;
        for image in ["busybox", "localhost/a", "r.test:1/a", "q.test/a"] {
            assert!(matches!(login(elsewhere, image).unwrap(), Login::Anonymous), "{image}");
        }
    }

    #[test]
    fn helpers_are_named() {
        let one = r#"{"auths":{"r.test":{}},"credHelpers":{"r.test":"vault"}}"#;
        let all = r#"{"auths":{"r.test":{}},"credsStore":"vault"}"#;
        for text in [one, all] {
            assert!(
                matches!(login(text, "r.test/a").unwrap(), Login::Helper { name, .. } if name == "vault")
            );
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_without_its_contents() {
        let table = [
            ("{\n \"auths\": \"s3cret\"}", "line 2 is not as Docker writes it"),
            (r#"{"auths":{"r.test":{"auth":"s3cret!"}}}"#, "auths.r.test: auth is not base64"),
            (
                r#"{"auths":{"r.test":{"auth":"czNjcmV0"}}}"#,
                "auths.r.test: auth is not NAME:PASSWORD in base64",
            ),
        ];
        for (text, why) in table {
            let message = login(text, "r.test/a").unwrap_err().message;
            assert!(message.ends_with(why) && !message.contains("s3cret"), "{message}");
        }
        let missing = find(Some(Path::new("/nowhere/config.json")), "r.test/a", INDEX).unwrap_err();
        assert!(missing.message.ends_with("/nowhere/config.json: No such file or directory"), "{missing}");
        assert!(
            !format!("{:?}", Entry { password: "s3cret".to_owned(), ..Entry::default() }).contains("s3cret")
        );
    }
}
