//! Streams of answers as Connect sends them: each message in an envelope (flags, length, JSON), the last one says how
//! the call ended.

use std::time::Duration;

use axum::{
    body::Body,
    http::{StatusCode, header, uri::PathAndQuery},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use quorate_wire::json::{Failure, Method};
use serde_json::{Value, json};
use tonic::{Request, Status, Streaming, client::Grpc, service::Routes};

use super::{codec::Encoded, refusal::Refusal};

/// The type of such a body.
pub(super) const JSON: &str = "application/connect+json";
/// Flags of the last envelope.
const END: u8 = 2;

/// One thing that a stream brings.
pub(super) enum Item {
    /// A message: as it came, and as JSON.
    Message(Bytes, Vec<u8>),
    /// The end; nothing follows.
    End(Option<Status>),
}

/// The JSON in the one envelope of a request.
pub(super) fn opened(body: &[u8]) -> Result<&[u8], Refusal> {
    match body {
        [0, a, b, c, d, json @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == json.len() => Ok(json),
        _ => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "the body is not one envelope: send a zero byte, the length in four bytes (big endian), the JSON",
        )),
    }
}

/// Makes the call.
///
/// # Errors
/// When it fails before its first message.
pub(super) async fn open(
    grpc: Routes,
    call: &'static Method,
    request: Request<Bytes>,
) -> Result<Streaming<Bytes>, Status> {
    let mut client = Grpc::new(grpc).max_decoding_message_size(usize::MAX);
    let opened = client.server_streaming(request, PathAndQuery::from_static(call.path), Encoded).await;
    opened.map(tonic::Response::into_inner)
}

/// What a call brings, to its end, or until the client's deadline has passed.
pub(super) fn items(
    call: &'static Method,
    opened: Result<Streaming<Bytes>, Status>,
    deadline: Option<Duration>,
) -> impl Stream<Item = Item> + Send {
    // Begins to run with the call, and not with each message.
    let late = deadline.map(|wait| Box::pin(tokio::time::sleep(wait)));
    futures::stream::unfold(Some((opened, late)), async move |state| {
        let (opened, mut late) = state?;
        let mut messages = match opened {
            Ok(messages) => messages,
            Err(status) => return Some((Item::End(Some(status)), None)),
        };
        let passed = async {
            match late.as_mut() {
                Some(late) => late.await,
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            biased;
            message = messages.message() => message,
            () = passed => Err(Status::deadline_exceeded("the deadline passed")),
        };
        Some(match message {
            Ok(Some(message)) => match call.response(&message) {
                Ok(json) => (Item::Message(message, json), Some((Ok(messages), late))),
                Err(error) => (Item::End(Some(error.into())), None),
            },
            Ok(None) => (Item::End(None), None),
            Err(status) => (Item::End(Some(status)), None),
        })
    })
}

/// The whole answer. By Connect's rules its status is always 200.
pub(super) fn envelopes(
    call: &'static Method,
    opened: Result<Streaming<Bytes>, Status>,
    deadline: Option<Duration>,
) -> Response {
    let envelopes = items(call, opened, deadline).map(|item| {
        Ok::<_, std::convert::Infallible>(match item {
            Item::Message(_, json) => envelope(0, &json),
            Item::End(ended) => envelope(END, end(ended.as_ref()).to_string().as_bytes()),
        })
    });
    ([(header::CONTENT_TYPE, JSON)], Body::from_stream(envelopes)).into_response()
}

fn end(ended: Option<&Status>) -> Value {
    ended.map_or_else(|| json!({}), |status| json!({"error": Failure::of(status).body}))
}

fn envelope(flags: u8, json: &[u8]) -> Bytes {
    // Messages are bounded far below four gigabytes.
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    [&[flags], length.to_be_bytes().as_slice(), json].concat().into()
}
