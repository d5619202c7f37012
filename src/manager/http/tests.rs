//! Streams over HTTP, of a watch that is played.

use std::sync::{Arc, Mutex};

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode},
    response::Response,
};
use futures::StreamExt as _;
use quorate_wire::api::{
    WatchRequest, WatchResponse,
    watch_service_server::{WatchService, WatchServiceServer},
};
use serde_json::{Value, json};
use tonic::{Status, service::Routes};
use tower::ServiceExt as _;

use super::ways_in;

/// A request, and who sent it.
type Asked = (WatchRequest, Option<String>);

/// Plays the same messages to everybody and notes what was asked for.
#[derive(Clone)]
struct Played {
    messages: Vec<Result<WatchResponse, Status>>,
    goes_on: bool,
    asked: Arc<Mutex<Vec<Asked>>>,
}

#[tonic::async_trait]
impl WatchService for Played {
    type WatchStream = futures::stream::BoxStream<'static, Result<WatchResponse, Status>>;

    async fn watch(
        &self,
        request: tonic::Request<WatchRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        let token = request.metadata().get("authorization").map(|v| v.to_str().unwrap().to_owned());
        self.asked.lock().unwrap().push((request.into_inner(), token));
        let messages = futures::stream::iter(self.messages.clone());
        match self.messages.first() {
            Some(Err(status)) => Err(status.clone()),
            _ if self.goes_on => Ok(tonic::Response::new(messages.chain(futures::stream::pending()).boxed())),
            _ => Ok(tonic::Response::new(messages.boxed())),
        }
    }
}

fn played(messages: Vec<Result<WatchResponse, Status>>) -> (Routes, Played) {
    let played = Played { messages, goes_on: false, asked: Arc::default() };
    (ways_in(Routes::new(WatchServiceServer::new(played.clone()))), played)
}

fn story() -> Vec<Result<WatchResponse, Status>> {
    let at = |revision| WatchResponse { revision, ..WatchResponse::default() };
    vec![
        Ok(WatchResponse { snapshot: true, ..at(7) }),
        Ok(WatchResponse { bookmark: true, ..at(7) }),
        Ok(WatchResponse { partial: true, ..at(9) }),
        Ok(at(9)),
        Err(Status::out_of_range("the watch was too slow")),
    ]
}

async fn send(routes: Routes, request: Request<Body>) -> Response {
    routes.into_axum_router().oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn events_carry_the_revisions_that_may_be_resumed_from() {
    let (routes, _) = played(story());
    let response = send(routes, get("/api/watch")).await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"text/event-stream".parse().unwrap())
    );
    let text = text(response).await;
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    let heads: Vec<&str> = events.iter().map(|e| e.split("\ndata: ").next().unwrap()).collect();
    assert_eq!(
        heads,
        [
            "id: 7\nevent: snapshot",
            "id: 7\nevent: bookmark",
            "event: change",
            "id: 9\nevent: change",
            "event: error"
        ]
    );
    let data =
        |at: usize| -> Value { serde_json::from_str(events[at].split_once("data: ").unwrap().1).unwrap() };
    assert_eq!(data(3), json!({"revision": "9"}));
    assert_eq!(
        (&data(4)["code"], &data(4)["message"]),
        (&json!("out_of_range"), &json!("the watch was too slow"))
    );
}

#[tokio::test]
async fn a_query_becomes_a_request_and_the_last_event_wins() {
    let (routes, played) = played(Vec::new());
    let path = "/api/watch?kinds=job,TASK&namespace=shop&job=web&selector=app%3Dweb&start_revision=5";
    assert_eq!(text(send(routes.clone(), get(path)).await).await, "");
    let mut again = get(path);
    again.headers_mut().insert("last-event-id", "12".parse().unwrap());
    again.headers_mut().insert("authorization", "Bearer x".parse().unwrap());
    send(routes, again).await;
    let first = WatchRequest {
        kinds: vec![1, 2],
        namespace: "shop".to_owned(),
        job: "web".to_owned(),
        selector: "app=web".to_owned(),
        start_revision: 5,
        ..WatchRequest::default()
    };
    let second = WatchRequest { start_revision: 12, ..first.clone() };
    let asked = played.asked.lock().unwrap().clone();
    assert_eq!(asked, [(first, None), (second, Some("Bearer x".to_owned()))]);
}

#[tokio::test]
async fn a_watch_that_cannot_begin_has_a_status_of_its_own() {
    let (routes, played) = played(vec![Err(Status::out_of_range("too old"))]);
    assert_eq!(send(routes.clone(), get("/api/watch?start_revision=1")).await.status(), StatusCode::GONE);
    assert_eq!(played.asked.lock().unwrap().len(), 1);
    for (query, says) in [
        ("kinds=pod", "use job, task, node, manager"),
        ("kinds=unspecified", "use job, task, node, manager"),
        ("kind=job", "unknown field `kind`"),
        ("start_revision=now", "invalid digit"),
    ] {
        let response = send(routes.clone(), get(&format!("/api/watch?{query}"))).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        assert!(body["message"].as_str().unwrap().contains(says), "{query}: {body}");
    }
    let mut bad = get("/api/watch");
    bad.headers_mut().insert("last-event-id", "later".parse().unwrap());
    assert_eq!(send(routes, bad).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(played.asked.lock().unwrap().len(), 1, "what is wrong is not asked");
}

fn enveloped(kind: &str, body: &[u8]) -> Request<Body> {
    Request::post("/quorate.api.v1.WatchService/Watch")
        .header("content-type", kind)
        .body(Body::from(body.to_vec()))
        .unwrap()
}

#[tokio::test]
async fn connect_streams_end_with_how_they_ended() {
    let body = b"\0\0\0\0\x15{\"startRevision\":\"3\"}";
    for (messages, words, last) in [
        (story(), 4, json!("out_of_range")),
        (story()[..4].to_vec(), 4, Value::Null),
        (vec![Err(Status::unavailable("nobody leads"))], 0, json!("unavailable")),
    ] {
        let (routes, played) = played(messages);
        let response = send(routes, enveloped("application/connect+json", body)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/connect+json");
        let told = text(response).await;
        let (mut rest, mut envelopes) = (told.as_bytes(), Vec::new());
        while let [flags, a, b, c, d, after @ ..] = rest {
            let (json, after) = after.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
            envelopes.push((*flags, serde_json::from_slice::<Value>(json).unwrap()));
            rest = after;
        }
        let (flags, end) = envelopes.pop().unwrap();
        assert_eq!((flags, &end["error"]["code"]), (2, &last));
        assert_eq!(envelopes.len(), words);
        assert!(envelopes.iter().all(|(flags, json)| *flags == 0 && json["revision"].is_string()));
        assert_eq!(played.asked.lock().unwrap()[0].0.start_revision, 3);
    }
}

#[tokio::test]
async fn a_stream_needs_its_own_type_and_one_envelope() {
    let (routes, played) = played(story());
    for (kind, body, status) in [
        ("application/json", b"{}".as_slice(), 415),
        ("application/connect+json", b"{}", 400),
        ("application/connect+json", b"\0\0\0\0\x09{}", 400),
        ("application/connect+json", b"\x01\0\0\0\x02{}", 400),
        ("application/connect+json", b"\0\0\0\0\x02{}\0", 400),
        ("application/connect+json", b"", 400),
    ] {
        assert_eq!(send(routes.clone(), enveloped(kind, body)).await.status().as_u16(), status, "{body:?}");
    }
    let exec = Request::post("/quorate.api.v1.TaskService/Exec").header("content-type", "application/json");
    let exec = send(routes, exec.body(Body::from("{}")).unwrap()).await;
    assert_eq!(exec.status(), StatusCode::NOT_IMPLEMENTED);
    assert!(played.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stream_ends_at_the_deadline_of_its_client() {
    let played = Played { messages: story()[..2].to_vec(), goes_on: true, asked: Arc::default() };
    let routes = ways_in(Routes::new(WatchServiceServer::new(played)));
    let mut request = enveloped("application/connect+json", b"\0\0\0\0\x02{}");
    request.headers_mut().insert("connect-timeout-ms", "50".parse().unwrap());
    let told = text(send(routes, request).await).await;
    assert!(told.contains("bookmark") && told.contains("deadline_exceeded"), "{told:?}");
}
