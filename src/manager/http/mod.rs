//! The API's one port: gRPC, gRPC-Web, and JSON over HTTP/1.1 or HTTP/2 (Connect's protocol), told apart by the type
//! of the body, and watches as server-sent events. All end in the same services, so forwarding, checks and errors are
//! the same.

mod codec;
mod json;
mod refusal;
mod sse;
mod stream;

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Version, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::StreamExt as _;
use tonic::service::Routes;
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::{Layer as _, ServiceExt as _};

use self::refusal::Refusal;

/// Most bytes of a body that is read before anything is done with it: a message and room around it.
const MAX_BODY: usize = crate::manager::MAX_API_MESSAGE + (64 << 10);
/// Of a larger one, so much is read and thrown away: a client that still sends does not hear what is wrong.
const MAX_DRAINED: usize = 64 << 20;
/// How long such a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// Most bytes of headers over HTTP/1.1; the transport bounds those of HTTP/2.
const MAX_HEADERS: usize = 16 << 10;

/// The services behind each way in.
#[derive(Clone)]
struct Ways {
    grpc: Routes,
    web: GrpcWebService<Routes>,
}

/// How a request speaks.
enum Protocol {
    Grpc,
    GrpcWeb,
    Json,
}

impl Protocol {
    fn of(headers: &HeaderMap) -> Self {
        match media_type(headers).as_str() {
            "application/grpc-web"
            | "application/grpc-web+proto"
            | "application/grpc-web-text"
            | "application/grpc-web-text+proto" => Self::GrpcWeb,
            "application/grpc" => Self::Grpc,
            other if other.starts_with("application/grpc+") => Self::Grpc,
            // Whatever else it is: JSON's errors are the ones that people can read.
            _ => Self::Json,
        }
    }
}

/// Every way into the services of `grpc`.
pub(crate) fn ways_in(grpc: Routes) -> Routes {
    let grpc = grpc.prepare();
    let web = GrpcWebLayer::new().layer(grpc.clone());
    axum::Router::new()
        .route(sse::PATH, get(sse::watch))
        .fallback(serve)
        .with_state(Ways { grpc, web })
        .into()
}

async fn serve(State(ways): State<Ways>, request: Request) -> Response {
    let served = match (Protocol::of(request.headers()), request.version()) {
        (Protocol::Grpc, Version::HTTP_2) => Ok(answer(ways.grpc.oneshot(request).await)),
        (Protocol::Grpc, _) => Err(Refusal::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "gRPC needs HTTP/2; over HTTP/1.1 send JSON (application/json) or gRPC-Web",
        )),
        (Protocol::GrpcWeb, _) => grpc_web(ways.web, request).await,
        (Protocol::Json, _) => json::serve(ways.grpc, request).await,
    };
    served.unwrap_or_else(IntoResponse::into_response)
}

fn answer(served: Result<impl IntoResponse, Infallible>) -> Response {
    match served {
        Ok(response) => response.into_response(),
        Err(never) => match never {},
    }
}

/// A client of gRPC-Web sends one message: it is read whole first, so that a slow one holds no service.
async fn grpc_web(web: GrpcWebService<Routes>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let body = read(&parts.headers, parts.version, body).await?;
    let request = Request::from_parts(parts, tonic::body::Body::new(Body::from(body)));
    Ok(answer(web.oneshot(request).await.map(|response| response.map(Body::new))))
}

/// The whole body, within bounds of bytes and time.
async fn read(headers: &HeaderMap, version: Version, body: Body) -> Result<Vec<u8>, Refusal> {
    let header_bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if version < Version::HTTP_2 && header_bytes > MAX_HEADERS {
        return Err(Refusal::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("the headers have {header_bytes} bytes: send at most {MAX_HEADERS}"),
        ));
    }
    let too_large = || {
        let text = format!("the body is larger than {} KiB", MAX_BODY >> 10);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let said = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    // It waits for a word before it sends.
    if headers.contains_key(header::EXPECT) && said.is_some_and(|bytes| bytes > MAX_BODY) {
        return Err(too_large());
    }
    let reading = async {
        let (mut whole, mut seen, mut chunks) = (Vec::new(), 0_usize, body.into_data_stream());
        while let Some(chunk) = chunks.next().await {
            let broken = |e| Refusal::new(StatusCode::BAD_REQUEST, format!("the body broke off: {e}"));
            let chunk = chunk.map_err(broken)?;
            seen += chunk.len();
            if seen > MAX_DRAINED {
                break;
            }
            if seen <= MAX_BODY {
                whole.extend_from_slice(&chunk);
            }
        }
        if seen > MAX_BODY {
            return Err(too_large());
        }
        Ok(whole)
    };
    tokio::time::timeout(BODY_DEADLINE, reading).await.unwrap_or_else(|_| {
        let text = format!("the body did not arrive within {} s", BODY_DEADLINE.as_secs());
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, text))
    })
}

/// The type of the body in lower case, without parameters; empty when unsaid.
fn media_type(headers: &HeaderMap) -> String {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
