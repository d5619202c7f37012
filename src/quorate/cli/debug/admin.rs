//! Small HTTP calls to the admin ports of managers.

use std::time::Duration;

use futures::future::join;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::cli::context::Context;

/// The most of an answer that is read, in bytes: log lines have up to 4 MiB, metrics a fraction of that.
const MAX_ANSWER: usize = 64 << 20;
/// The longest time for one call, unless less was asked for.
const LIMIT: Duration = Duration::from_secs(5);

/// What a manager said.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body, or the status where that says nothing.
    pub(super) fn words(&self) -> String {
        match self.text().trim() {
            "" => format!("it answers with HTTP status {}", self.status),
            words => words.to_owned(),
        }
    }
}

impl Context {
    /// The time for one call to an admin port.
    pub(super) fn admin_limit(&self) -> Duration {
        self.global.timeout.map_or(LIMIT, |given| given.min(LIMIT))
    }
}

/// Reads what is at `path`.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn get(address: &str, path: &str, limit: Duration) -> Result<Answer, String> {
    within(address, Method::GET, path, "", limit).await
}

/// Writes `body` to `path`.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn put(address: &str, path: &str, body: &str, limit: Duration) -> Result<Answer, String> {
    within(address, Method::PUT, path, body, limit).await
}

async fn within(
    address: &str,
    method: Method,
    path: &str,
    body: &str,
    limit: Duration,
) -> Result<Answer, String> {
    let late = || format!("no answer within {}", quorate_base::format_duration(limit));
    tokio::time::timeout(limit, call(address, method, path, body)).await.unwrap_or_else(|_| Err(late()))
}

async fn call(address: &str, method: Method, path: &str, body: &str) -> Result<Answer, String> {
    let broken = |error: hyper::Error| format!("the connection broke: {error}");
    let request = Request::builder().method(method).uri(path).header(HOST, address);
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
        Ok(Answer { status, body })
    };
    // What the connection's own end says, the exchange says, too.
    join(exchange, connection).await.0
}
