//! Errors over HTTP: a status code and, always, JSON that says what is wrong.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use quorate_wire::{
    json::Failure,
    status::{ApiError, Reason},
};
use tonic::Status;

/// A call that failed, or that never became one.
#[derive(Debug)]
pub(super) struct Refusal {
    http: Option<StatusCode>,
    status: Status,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    /// A request that HTTP alone finds wrong.
    pub(super) fn new(http: StatusCode, message: impl Into<String>) -> Self {
        let reason = match http {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                Reason::Unsupported
            }
            _ => Reason::ArgumentInvalid,
        };
        Self { http: Some(http), status: ApiError::new(reason, message).into(), header: None }
    }

    /// The same with a header that tells the client what to send instead.
    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { http: None, status, header: None }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Status::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let failure = Failure::of(&self.status);
        let mapped = || StatusCode::from_u16(failure.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let http = self.http.unwrap_or_else(mapped);
        let mut response = (http, Json(failure.body)).into_response();
        if let Some(seconds) = failure.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
