//! Watches as server-sent events, for browsers and curl: `GET /api/watch?kinds=job,task&namespace=shop`.
//!
//! The id of an event is its revision, so that a browser that comes back (`Last-Event-ID`) resumes by itself, on any
//! manager. A message within a revision carries no id: that revision is not finished yet.

use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderName, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::StreamExt as _;
use prost::Message as _;
use quorate_wire::{
    api::{ObjectKind, WatchRequest, WatchResponse},
    json::{Failure, method},
};
use serde::Deserialize;
use tonic::Status;

use super::{
    Ways, json,
    refusal::Refusal,
    stream::{self, Item},
};

/// Where it is.
pub(super) const PATH: &str = "/api/watch";
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies must not hold events back.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `WatchRequest` as a query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    kinds: String,
    namespace: String,
    job: String,
    task: String,
    node: String,
    selector: String,
    start_revision: u64,
}

/// Answers one watch.
pub(super) async fn watch(State(ways): State<Ways>, request: Request) -> Result<Response, Refusal> {
    let call = method("/quorate.api.v1.WatchService/Watch")
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "this manager has no watches"))?;
    let (mut parts, _) = request.into_parts();
    let wanted = wanted(&parts.uri, &parts.headers)?;
    let request = json::inner(&mut parts, wanted.encode_to_vec().into());
    let opened = stream::open(ways.grpc, call, request).await?;
    let events =
        stream::items(call, Ok(opened), None).map(|item| Ok::<_, std::convert::Infallible>(event(item)));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store"), (BUFFERING, "no")];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// What the query asks for; the last event that a returning client saw counts more than where it once began.
fn wanted(uri: &Uri, headers: &HeaderMap) -> Result<WatchRequest, Refusal> {
    let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
    let Query(query) = Query::<Wanted>::try_from_uri(uri).map_err(|e| bad(e.body_text()))?;
    let kinds = query.kinds.split(',').filter(|kind| !kind.is_empty()).map(|kind| {
        let known = ObjectKind::from_str_name(&format!("OBJECT_KIND_{}", kind.to_ascii_uppercase()));
        let known = known.filter(|known| *known != ObjectKind::Unspecified);
        known.map(i32::from).ok_or_else(|| bad(format!("kinds has {kind:?}: use job, task, node, manager")))
    });
    let mut request = WatchRequest {
        kinds: kinds.collect::<Result<_, _>>()?,
        namespace: query.namespace,
        job: query.job,
        task: query.task,
        node: query.node,
        selector: query.selector,
        start_revision: query.start_revision,
    };
    if let Some(last) = headers.get(LAST_EVENT) {
        let revision = last.to_str().ok().and_then(|text| text.trim().parse().ok());
        request.start_revision =
            revision.ok_or_else(|| bad(format!("{LAST_EVENT} is {last:?}, which is no revision")))?;
    }
    Ok(request)
}

/// One event as text.
fn event(item: Item) -> Bytes {
    let ended = |status: &Status| format!("event: error\ndata: {}\n\n", Failure::of(status).body);
    match item {
        Item::Message(message, json) => {
            let Ok(seen) = WatchResponse::decode(message) else {
                return ended(&Status::internal("a message of the watch cannot be read")).into();
            };
            let name = match (seen.bookmark, seen.snapshot) {
                (true, _) => "bookmark",
                (_, true) => "snapshot",
                _ => "change",
            };
            let id = if seen.partial { String::new() } else { format!("id: {}\n", seen.revision) };
            format!("{id}event: {name}\ndata: {}\n\n", String::from_utf8_lossy(&json)).into()
        }
        Item::End(Some(status)) => ended(&status).into(),
        Item::End(None) => Bytes::new(),
    }
}
