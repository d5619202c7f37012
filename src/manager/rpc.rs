//! What every gRPC call took and how it ended, and the trace that its log lines belong to.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::HeaderMap,
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use quorate_base::time::{Clock, Mono};
use quorate_telemetry::metrics;
use quorate_wire::json;
use tonic::{Code, service::Routes};
use tracing::{Instrument as _, Span};

/// The calls of agents, of managers, and of what comes with gRPC.
const OTHERS: [&str; 16] = [
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/quorate.agent.v1.AgentService/Relay",
    "/quorate.agent.v1.AgentService/Session",
    "/quorate.raft.v1.RaftService/Append",
    "/quorate.raft.v1.RaftService/Identify",
    "/quorate.raft.v1.RaftService/InstallSnapshot",
    "/quorate.raft.v1.RaftService/Join",
    "/quorate.raft.v1.RaftService/LeaderGone",
    "/quorate.raft.v1.RaftService/PreVote",
    "/quorate.raft.v1.RaftService/ReadIndex",
    "/quorate.raft.v1.RaftService/StreamAppend",
    "/quorate.raft.v1.RaftService/TransferLeader",
    "/quorate.raft.v1.RaftService/Vote",
];

/// The same services, each call measured from its headers to the end of its answer.
pub(crate) fn measured(routes: Routes, clock: Clock) -> Routes {
    routes.into_axum_router().layer(from_fn_with_state(clock, serve)).into()
}

async fn serve(State(clock): State<Clock>, request: Request, next: Next) -> Response {
    let started = clock.monotonic();
    let mut call = Call { method: method(request.uri().path()), started, clock, code: None };
    let span = match trace_id(request.headers()) {
        Some(id) => tracing::error_span!("rpc", trace_id = id),
        None => Span::none(),
    };
    let (parts, body) = next.run(request).instrument(span).await.into_parts();
    // An answer without messages says in its headers how the call ended.
    call.code = code(&parts.headers);
    Response::from_parts(parts, Body::new(Answer { body, call }))
}

/// A call under way; recorded when it is over.
struct Call {
    method: &'static str,
    started: Mono,
    clock: Clock,
    code: Option<Code>,
}

impl Drop for Call {
    fn drop(&mut self) {
        // Neither end nor error: the client went away.
        let code = self.code.unwrap_or(Code::Cancelled);
        let took = self.clock.monotonic().since(self.started);
        metrics::rpc_server_call_duration(self.method, word(code), took);
    }
}

struct Answer {
    body: Body,
    call: Call,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(code) = frame.trailers_ref().and_then(code) {
                    self.call.code = Some(code);
                }
            }
            Poll::Ready(Some(Err(_)) | None) => {
                self.call.code.get_or_insert(Code::Unknown);
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// `SERVICE/METHOD` of a call that there is: what clients make up must not become a label.
fn method(path: &str) -> &'static str {
    let known = json::method(path).map(|method| method.path);
    let known = known.or_else(|| OTHERS.into_iter().find(|other| *other == path));
    let Some(known) = known else { return "other" };
    // Without the package.
    let bare = known.trim_start_matches('/');
    let service = bare.find('/').and_then(|slash| bare[..slash].rfind('.')).map_or(0, |dot| dot + 1);
    &bare[service..]
}

fn code(headers: &HeaderMap) -> Option<Code> {
    Some(Code::from_bytes(headers.get("grpc-status")?.as_bytes()))
}

/// As gRPC spells it.
fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The trace of W3C's `traceparent`: `VERSION-TRACE-SPAN-FLAGS` in lower-case hexadecimal.
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let given = |text: &str| text.bytes().any(|b| b != b'0');
    let valid =
        hex(version, 2) && version != "ff" && hex(trace, 32) && given(trace) && hex(span, 16) && given(span);
    valid.then_some(trace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_calls_that_there_are_become_labels() {
        assert_eq!(method("/quorate.api.v1.JobService/ApplyJob"), "JobService/ApplyJob");
        assert_eq!(method("/quorate.raft.v1.RaftService/Vote"), "RaftService/Vote");
        assert_eq!(method("/grpc.health.v1.Health/Check"), "Health/Check");
        for unknown in ["/quorate.api.v1.JobService/Nope", "/x", "", "/a.b/c"] {
            assert_eq!(method(unknown), "other", "{unknown}");
        }
    }

    #[test]
    fn every_call_of_agents_and_managers_is_known() {
        let protos = [
            ("quorate.agent.v1.AgentService", include_str!("../../proto/quorate/agent/v1/agent.proto")),
            ("quorate.raft.v1.RaftService", include_str!("../../proto/quorate/raft/v1/raft.proto")),
        ];
        let mut defined = BTreeSet::new();
        for (service, text) in protos {
            let names = text.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
            defined.extend(names.map(|name| format!("/{service}/{name}")));
        }
        let ours = OTHERS.iter().filter(|path| path.starts_with("/quorate."));
        assert_eq!(ours.map(|path| (*path).to_owned()).collect::<BTreeSet<_>>(), defined);
    }

    #[test]
    fn a_trace_is_taken_from_a_valid_header_alone() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", value.parse().unwrap());
            trace_id(&headers).map(str::to_owned)
        };
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(of(&format!("00-{trace}-00f067aa0ba902b7-01")).as_deref(), Some(trace));
        let zeroes = "0".repeat(32);
        for bad in [
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{zeroes}-00f067aa0ba902b7-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{trace}"),
            String::new(),
        ] {
            assert_eq!(of(&bad), None, "{bad}");
        }
    }
}
