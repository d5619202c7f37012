//! Opaque texts that clients send back: etags and page tokens.

use std::fmt::Write as _;

use quorate_model::{Invalid, Revision};
use xxhash_rust::xxh3::Xxh3;

use crate::{ApiError, Reason};

/// Objects on a page when the client does not say.
const DEFAULT_PAGE: u32 = 100;
/// Most objects on a page.
pub const MAX_PAGE: u32 = 1000;
/// Hexadecimal digits of the seal before a token's key.
const SEAL: usize = 16;

/// The etag of a job that users last edited at that revision.
#[must_use]
pub fn etag(edited: Revision) -> String {
    format!("W/\"{edited}\"")
}

/// Reads an etag: empty = do not check; `0` = the job must not exist.
///
/// # Errors
/// `ARGUMENT_INVALID` on anything that [`etag`] did not make.
pub fn parse_etag(text: &str) -> Result<Option<Revision>, ApiError> {
    match text {
        "" => return Ok(None),
        "0" => return Ok(Some(Revision(0))),
        _ => {}
    }
    let number = text.strip_prefix("W/\"").and_then(|rest| rest.strip_suffix('"'));
    let revision = number.and_then(|digits| digits.parse().ok()).map(Revision);
    revision.filter(|revision| etag(*revision) == text).map(Some).ok_or_else(|| {
        let why =
            format!("{text:?} is no etag: send back what a read gave, like W/\"42\", or 0 for a new job");
        ApiError::invalid(Reason::ArgumentInvalid, "the request", Invalid::new("etag", why).into())
    })
}

/// Which part of a list a client wants.
///
/// A token names the manager that keeps the list as it was, its revision and the last object of the page before. It is
/// sealed with a hash over that and the filter, so that it cannot be taken to another list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    filter: Vec<String>,
    /// Most objects to return.
    pub size: usize,
    /// The page before; `None` = from the start.
    pub after: Option<After>,
}

/// Where the page before ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// Name of the manager that keeps the list.
    pub manager: String,
    /// Revision of the list.
    pub revision: Revision,
    /// Key of the last object.
    pub key: String,
}

impl Page {
    /// The page that a request asks for. `filter` names the list and everything that selects from it.
    ///
    /// # Errors
    /// `PAGE_TOKEN_INVALID` when the token is damaged or was given for another list or filter.
    pub fn of(filter: &[&str], page_size: u32, token: &str) -> Result<Self, ApiError> {
        let size = if page_size == 0 { DEFAULT_PAGE } else { page_size.min(MAX_PAGE) };
        let filter: Vec<String> = filter.iter().map(|part| (*part).to_owned()).collect();
        let after = match token {
            "" => None,
            token => Some(open(&filter, token).ok_or_else(Self::foreign)?),
        };
        Ok(Self { filter, size: size as usize, after })
    }

    /// The error of a token that this list did not give.
    #[must_use]
    pub fn foreign() -> ApiError {
        ApiError::new(
            Reason::PageTokenInvalid,
            "the page token is damaged, or belongs to a list with another filter",
        )
    }

    /// The key after which the page begins.
    ///
    /// # Errors
    /// `PAGE_TOKEN_INVALID` when it is none of this list.
    pub fn key<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, ApiError> {
        self.after.as_ref().map(|after| read(&after.key).ok_or_else(Self::foreign)).transpose()
    }

    /// The token for the page after the object with that key, in the list that `manager` keeps.
    #[must_use]
    pub fn token(&self, manager: &str, revision: Revision, last: &str) -> String {
        let body = format!("{manager} {revision} {last}");
        let mut text = format!("{:016x}", seal(&self.filter, body.as_bytes()));
        for byte in body.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

fn open(filter: &[String], token: &str) -> Option<After> {
    let (sealed, body) = token.split_at_checked(SEAL)?;
    if !body.len().is_multiple_of(2) || !token.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let body: Vec<u8> = (0..body.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(body.get(at..at + 2)?, 16).ok())
        .collect::<Option<_>>()?;
    let sealed = u64::from_str_radix(sealed, 16).ok()?;
    let body = (sealed == seal(filter, &body)).then(|| String::from_utf8(body).ok()).flatten()?;
    let mut parts = body.splitn(3, ' ');
    let (manager, revision, key) = (parts.next()?, parts.next()?, parts.next()?);
    Some(After {
        manager: manager.to_owned(),
        revision: Revision(revision.parse().ok()?),
        key: key.to_owned(),
    })
}

/// A mark of what an answer reflects, for later reads through any manager of the cluster.
#[must_use]
pub fn session_token(cluster: &str, revision: Revision) -> String {
    let number = revision.to_string();
    format!("{:016x}{number}", seal(&["session".to_owned(), cluster.to_owned()], number.as_bytes()))
}

/// Reads a session token: the revision that an answer must reflect.
///
/// # Errors
/// `ARGUMENT_INVALID` when it is damaged or of another cluster.
pub fn parse_session_token(cluster: &str, token: &str) -> Result<Revision, ApiError> {
    let read = || {
        let (_, number) = token.split_at_checked(SEAL)?;
        let revision = Revision(number.parse().ok()?);
        (session_token(cluster, revision) == token).then_some(revision)
    };
    read().ok_or_else(|| {
        let why =
            "it is damaged, or another cluster gave it: send back what an answer of this cluster carried";
        ApiError::invalid(
            Reason::ArgumentInvalid,
            "the request",
            Invalid::new("read.session_token", why).into(),
        )
    })
}

/// A hash of what a caller sent: tells a retry from another request under the same id.
#[must_use]
pub fn fingerprint(call: &str, request: &impl prost::Message) -> u64 {
    seal(&[call.to_owned()], &request.encode_to_vec())
}

fn seal(filter: &[String], key: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    for part in filter.iter().map(String::as_bytes).chain([key]) {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}
