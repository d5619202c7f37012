//! The public API as JSON: every call by its path, its messages in both encodings, and errors as Connect writes them.
//!
//! The table comes from the descriptors (`build.rs`), so that a new call is there without a hand's turn.

mod failure;

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use quorate_model::Invalid;
use serde::{Serialize, de::DeserializeOwned};

use crate::status::{ApiError, Reason};

pub use failure::{Failure, code_word, http_status};

/// One call of the public API.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Its path in gRPC: `/quorate.api.v1.JobService/GetJob`.
    pub path: &'static str,
    /// Whether the client sends a stream.
    pub client_streams: bool,
    /// Whether the server answers with a stream.
    pub server_streams: bool,
    encode: fn(&[u8]) -> serde_json::Result<Bytes>,
    decode: fn(&[u8]) -> Result<Vec<u8>, String>,
}

/// Every call of the public API, ordered by path.
pub const METHODS: &[Method] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// The call at `path`.
#[must_use]
pub fn method(path: &str) -> Option<&'static Method> {
    METHODS.binary_search_by(|method| method.path.cmp(path)).ok().and_then(|at| METHODS.get(at))
}

/// The full names of the public services.
pub fn services() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<&str> = METHODS.iter().map(|method| method.service()).collect();
    names.into_iter()
}

impl Method {
    /// The full name of its service.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.path.trim_start_matches('/').split('/').next().unwrap_or_default()
    }

    const fn new<Q, A>(path: &'static str, (client_streams, server_streams): (bool, bool)) -> Self
    where
        Q: Message + DeserializeOwned,
        A: Message + Default + Serialize,
    {
        Self { path, client_streams, server_streams, encode: encode::<Q>, decode: decode::<A> }
    }

    /// A request, from JSON to protobuf.
    ///
    /// # Errors
    /// [`Reason::UnknownField`] with the field, or [`Reason::ArgumentInvalid`] with what is wrong and where.
    pub fn request(&self, json: &[u8]) -> Result<Bytes, ApiError> {
        if json.trim_ascii().is_empty() {
            return Err(ApiError::new(
                Reason::ArgumentInvalid,
                "the body is empty: send a JSON object, {} where there is nothing to say",
            ));
        }
        (self.encode)(json).map_err(|error| refused(&error))
    }

    /// A response, from protobuf to JSON.
    ///
    /// # Errors
    /// [`Reason::Internal`]: the bytes are no such message.
    pub fn response(&self, protobuf: &[u8]) -> Result<Vec<u8>, ApiError> {
        (self.decode)(protobuf).map_err(|why| {
            ApiError::new(
                Reason::Internal,
                format!("the answer of {} cannot be written as JSON: {why}", self.path),
            )
        })
    }
}

fn encode<Q: Message + DeserializeOwned>(json: &[u8]) -> serde_json::Result<Bytes> {
    serde_json::from_slice::<Q>(json).map(|message| message.encode_to_vec().into())
}

fn decode<A: Message + Default + Serialize>(protobuf: &[u8]) -> Result<Vec<u8>, String> {
    let message = A::decode(protobuf).map_err(|e| e.to_string())?;
    serde_json::to_vec(&message).map_err(|e| e.to_string())
}

/// What serde found, as one violation; it tells line and column itself.
fn refused(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let (reason, field) = match text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((field, _)) => (Reason::UnknownField, field),
        None => (Reason::ArgumentInvalid, ""),
    };
    let message = format!("the JSON is not valid: {text}");
    ApiError { violations: Invalid::new(field, text.as_str()).into(), ..ApiError::new(reason, message) }
}

#[cfg(test)]
mod tests;
