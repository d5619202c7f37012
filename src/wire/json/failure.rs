//! A status as Connect writes it: `{"code", "message", "details": [{"type", "value", "debug"}]}`.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _, pb};

/// A failed call, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Status code of HTTP.
    pub http: u16,
    /// Seconds for the `Retry-After` header, at least one.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Value,
}

impl Failure {
    /// The status as JSON; the details are those of google.rpc.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let known = status.get_error_details();
        // Bytes that are no google.rpc.Status come from a proxy: the code and the message are all there is.
        let sent = pb::Status::decode(status.details()).unwrap_or_default();
        let details: Vec<Value> = sent
            .details
            .iter()
            .map(|any| {
                let name = any.type_url.rsplit('/').next().unwrap_or_default();
                let mut detail = json!({"type": name, "value": BASE64_STANDARD_NO_PAD.encode(&any.value)});
                if let (Some(debug), Some(detail)) = (readable(name, &known), detail.as_object_mut()) {
                    detail.insert("debug".to_owned(), debug);
                }
                detail
            })
            .collect();
        let mut body = json!({"code": code_word(status.code()), "message": status.message()});
        if let (false, Some(body)) = (details.is_empty(), body.as_object_mut()) {
            body.insert("details".to_owned(), details.into());
        }
        let wait = known.retry_info().and_then(|info| info.retry_delay);
        Self { http: http_status(status.code()), retry_after: wait.map(whole_seconds), body }
    }
}

/// What is in a detail, for people: of the kinds that we send.
fn readable(name: &str, details: &ErrorDetails) -> Option<Value> {
    match name {
        "google.rpc.ErrorInfo" => details
            .error_info()
            .map(|info| json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata})),
        "google.rpc.BadRequest" => details.bad_request().map(|bad| {
            let fields = bad.field_violations.iter();
            let fields = fields.map(|v| json!({"field": v.field, "description": v.description}));
            json!({"fieldViolations": fields.collect::<Vec<_>>()})
        }),
        "google.rpc.RetryInfo" => details
            .retry_info()
            .and_then(|info| info.retry_delay)
            .map(|wait| json!({"retryDelay": format!("{}.{:03}s", wait.as_secs(), wait.subsec_millis())})),
        _ => None,
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// Connect's word for a code.
#[must_use]
pub const fn code_word(code: Code) -> &'static str {
    match code {
        Code::Cancelled => "canceled",
        // Connect has no word for "ok" in an error.
        Code::Ok | Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// The status of HTTP that goes with a code.
#[must_use]
pub const fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::OutOfRange => 410,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}
