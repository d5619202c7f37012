//! Connect's calls: `POST /api/SERVICE/METHOD` or `POST /SERVICE/METHOD` with a message as proto3 JSON.

use std::time::Duration;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, Method as Verb, StatusCode, header, request::Parts, uri::PathAndQuery},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use quorate_wire::{
    json::{METHODS, Method, method},
    status::{ApiError, Reason},
};
use tonic::{client::Grpc, metadata::MetadataMap, service::Routes};

use super::{codec::Encoded, media_type, read, refusal::Refusal, stream};

/// Before the path for clients that want to tell the API from the rest of a site; may be left out.
const PREFIX: &str = "/api";
const JSON: &str = "application/json";
/// Says the client's deadline in milliseconds.
const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
/// Says the version of Connect's protocol.
const PROTOCOL: HeaderName = HeaderName::from_static("connect-protocol-version");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
/// What concerns the connection or the body, and not the call.
const NOT_METADATA: [HeaderName; 9] = [
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
];

/// Answers one call.
pub(super) async fn serve(grpc: Routes, request: Request) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let call = named(parts.uri.path())?;
    let deadline = check(&parts, call)?;
    let body = read(&parts.headers, parts.version, body).await?;
    if call.server_streams {
        let request = inner(&mut parts, call.request(stream::opened(&body)?)?);
        return Ok(stream::envelopes(call, stream::open(grpc, call, request).await, deadline));
    }
    let request = inner(&mut parts, call.request(&body)?);
    let mut client = Grpc::new(grpc).max_decoding_message_size(usize::MAX);
    let calling = client.unary(request, PathAndQuery::from_static(call.path), Encoded);
    let answered = match deadline {
        None => calling.await,
        Some(wait) => {
            tokio::time::timeout(wait, calling).await.unwrap_or_else(|_| Err(too_late(wait).into()))
        }
    };
    let json = call.response(&answered?.into_inner())?;
    Ok(([(header::CONTENT_TYPE, JSON)], json).into_response())
}

/// The call that a path names.
fn named(path: &str) -> Result<&'static Method, Refusal> {
    let bare = path.strip_prefix(PREFIX).filter(|rest| rest.starts_with('/')).unwrap_or(path);
    method(bare).ok_or_else(|| {
        let service = bare.rsplit_once('/').map_or("", |(service, _)| service);
        let siblings: Vec<&str> = METHODS
            .iter()
            .filter_map(|m| m.path.strip_prefix(service)?.strip_prefix('/'))
            .filter(|name| !service.is_empty() && !name.contains('/'))
            .collect();
        let hint = if siblings.is_empty() {
            format!("calls have paths like {PREFIX}/quorate.api.v1.JobService/GetJob")
        } else {
            format!("{} has {}", service.trim_start_matches('/'), siblings.join(", "))
        };
        Refusal::new(StatusCode::NOT_FOUND, format!("there is no call {path:?}: {hint}"))
    })
}

/// Checks everything but the body; returns the client's deadline.
fn check(parts: &Parts, call: &Method) -> Result<Option<Duration>, Refusal> {
    if parts.method != Verb::POST {
        let text = format!("{} is no way to call {}: send POST with a JSON body", parts.method, call.path);
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text).with(header::ALLOW, "POST"));
    }
    let headers = &parts.headers;
    if call.client_streams {
        let text = format!("{} takes a stream of requests, which JSON does not carry: use gRPC", call.path);
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let (media, wanted) = (media_type(headers), if call.server_streams { stream::JSON } else { JSON });
    if media != wanted {
        let text = format!("the content type {media:?} is not understood by {}: send {wanted}", call.path);
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text).with(ACCEPT_POST, wanted));
    }
    let said = |name: &HeaderName| headers.get(name).map(|v| v.to_str().unwrap_or_default());
    if let Some(encoding) = said(&header::CONTENT_ENCODING).filter(|e| *e != "identity") {
        let text = format!("the body is compressed with {encoding:?}: send it as it is");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    if let Some(version) = said(&PROTOCOL).filter(|v| *v != "1") {
        let text =
            format!("version {version:?} of Connect's protocol is unknown here: send 1, or no {PROTOCOL}");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    }
    said(&TIMEOUT).map(milliseconds).transpose()
}

fn milliseconds(text: &str) -> Result<Duration, Refusal> {
    let digits = !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit());
    let millis = text.parse().ok().filter(|_| digits).map(Duration::from_millis);
    millis.ok_or_else(|| {
        let text = format!("{TIMEOUT} is {text:?}: send milliseconds, at most ten digits");
        Refusal::new(StatusCode::BAD_REQUEST, text)
    })
}

fn too_late(wait: Duration) -> ApiError {
    let text = format!(
        "the deadline of {} ms passed: a write may or may not have been done; try again with the same request id \
         to find out",
        wait.as_millis()
    );
    ApiError::new(Reason::CommitTimeout, text)
}

/// The same call as gRPC, within the process.
pub(super) fn inner(parts: &mut Parts, message: Bytes) -> tonic::Request<Bytes> {
    let mut headers: HeaderMap = std::mem::take(&mut parts.headers);
    for name in NOT_METADATA {
        headers.remove(name);
    }
    let extensions = std::mem::take(&mut parts.extensions);
    tonic::Request::from_parts(MetadataMap::from_headers(headers), extensions, message)
}
