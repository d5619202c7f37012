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
/// A token carries the key of the last object of the page before, sealed with a hash over it and the filter, so
/// that it cannot be taken to another list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    filter: Vec<String>,
    /// Most objects to return.
    pub size: usize,
    /// Return what comes after this key; `None` = from the start.
    pub after: Option<String>,
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
            token => Some(open(&filter, token).ok_or_else(|| {
                ApiError::new(
                    Reason::PageTokenInvalid,
                    "the page token is damaged, or belongs to a list with another filter",
                )
            })?),
        };
        Ok(Self { filter, size: size as usize, after })
    }

    /// The token for the page after the object with that key.
    #[must_use]
    pub fn token(&self, last: &str) -> String {
        let mut text = format!("{:016x}", seal(&self.filter, last.as_bytes()));
        for byte in last.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

fn open(filter: &[String], token: &str) -> Option<String> {
    let (sealed, key) = token.split_at_checked(SEAL)?;
    if !key.len().is_multiple_of(2) || !token.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let key: Vec<u8> = (0..key.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(key.get(at..at + 2)?, 16).ok())
        .collect::<Option<_>>()?;
    let sealed = u64::from_str_radix(sealed, 16).ok()?;
    (sealed == seal(filter, &key)).then(|| String::from_utf8(key).ok()).flatten()
}

fn seal(filter: &[String], key: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    for part in filter.iter().map(String::as_bytes).chain([key]) {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}
