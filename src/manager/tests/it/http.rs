//! The ways into the API beside gRPC: JSON and gRPC-Web, over HTTP/1.1 and HTTP/2, all on one port.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, StatusCode, Version,
    body::{Bytes, Incoming},
    header::HeaderMap,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use prost::Message as _;
use quorate_wire::api as pb;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    cluster::Cluster,
    writes::{apply, service},
};

const APPLY: &str = "/api/quorate.api.v1.JobService/ApplyJob";
const GET: &str = "/quorate.api.v1.JobService/GetJob";

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// `ErrorInfo.reason`.
    fn reason(&self) -> String {
        let body = self.json();
        let details = body["details"].as_array().unwrap();
        let info = details.iter().find(|d| d["type"] == "google.rpc.ErrorInfo").unwrap();
        info["debug"]["reason"].as_str().unwrap().to_owned()
    }
}

/// A client of one version of HTTP.
struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    version: Version,
}

impl Http {
    fn over(version: Version) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        Self { client: builder.http2_only(version == Version::HTTP_2).build_http(), version }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let response: hyper::Response<Incoming> = self.client.request(request).await.unwrap();
        assert_eq!(response.version(), self.version);
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, body }
    }

    async fn post(&self, to: SocketAddr, path: &str, kind: &str, body: impl Into<Bytes>) -> Answer {
        self.send(request(to, path, &[("content-type", kind)], body.into())).await
    }

    async fn json(&self, to: SocketAddr, path: &str, body: &Value) -> Answer {
        self.post(to, path, "application/json", body.to_string()).await
    }
}

fn request(to: SocketAddr, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(Method::POST).uri(format!("http://{to}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

fn web(replicas: u32) -> Value {
    serde_json::to_value(apply(service("web", replicas))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_writes_and_reads_over_both_versions_of_http_beside_grpc() {
    let cluster = Cluster::start(1).await;
    let to = cluster.members[0].addresses.api;
    for (version, replicas) in [(Version::HTTP_11, 1), (Version::HTTP_2, 2)] {
        let http = Http::over(version);
        let written = http.json(to, APPLY, &web(replicas)).await;
        assert_eq!((written.status, written.header("content-type")), (StatusCode::OK, "application/json"));
        assert_eq!(written.json()["job"]["version"], replicas);
        let read = http.json(to, GET, &json!({"name": "web"})).await;
        assert_eq!(read.json()["job"]["spec"]["service"]["replicas"], replicas);
        let get = pb::GetJobRequest { name: "web".to_owned(), ..pb::GetJobRequest::default() };
        let grpc = cluster.jobs(0).get_job(get).await.unwrap().into_inner();
        // The counts move on meanwhile.
        let spec = grpc.job.unwrap().spec.unwrap();
        assert_eq!(serde_json::to_value(spec).unwrap(), read.json()["job"]["spec"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_writes_through_a_follower_once() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let http = Http::over(Version::HTTP_11);
    let mut body = web(2);
    body["requestId"] = "01JDZK0000000000000000RETRY".into();
    let mut answers = Vec::new();
    for at in [follower, 0, 1, 2] {
        let answer = http.json(cluster.members[at].addresses.api, APPLY, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        answers.push(answer.json());
    }
    assert_eq!(answers[0]["meta"]["manager"], answers[0]["meta"]["leader"], "the leader answered");
    assert!(answers.iter().all(|a| a["created"] == true && a["revision"] == answers[0]["revision"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_services_keep_their_details() {
    let cluster = Cluster::start(1).await;
    let (to, http) = (cluster.members[0].addresses.api, Http::over(Version::HTTP_11));

    let missing = http.json(to, GET, &json!({"name": "gone"})).await;
    assert_eq!((missing.status, missing.reason().as_str()), (StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
    assert_eq!(missing.json()["code"], "not_found");

    let stored = http.json(to, APPLY, &web(1)).await.json()["job"]["etag"].clone();
    assert_eq!(http.json(to, APPLY, &web(2)).await.status, StatusCode::OK);
    let mut stale = web(3);
    stale["etag"] = stored;
    let conflict = http.json(to, APPLY, &stale).await;
    assert_eq!((conflict.status, conflict.reason().as_str()), (StatusCode::CONFLICT, "ETAG_MISMATCH"));
    assert_eq!(conflict.json()["code"], "aborted");

    let mut bad = web(1);
    bad["spec"]["priority"] = 101.into();
    let bad = http.json(to, APPLY, &bad).await;
    assert_eq!((bad.status, bad.reason().as_str()), (StatusCode::BAD_REQUEST, "JOB_INVALID"));
    let details = bad.json()["details"].clone();
    let fields = details.as_array().unwrap().iter().find(|d| d["type"] == "google.rpc.BadRequest").unwrap();
    assert_eq!(fields["debug"]["fieldViolations"][0]["field"], "priority");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_http_says_when_to_try_again() {
    let mut cluster = Cluster::prepare(3).await;
    cluster.run(0).await;
    let http = Http::over(Version::HTTP_11);
    let refused = http.json(cluster.members[0].addresses.api, APPLY, &web(1)).await;
    assert_eq!((refused.status, refused.reason().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "NO_LEADER"));
    assert_eq!((refused.header("retry-after"), &refused.json()["code"]), ("1", &json!("unavailable")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_http_finds_wrong_is_told_in_json_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let (to, http) = (cluster.members[0].addresses.api, Http::over(Version::HTTP_11));
    const OK: &str = "application/json";
    let good = web(1).to_string();
    let huge = vec![b' '; 5 << 20];
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [u8], u16, &'a str);
    let table: &[Case<'_>] = &[
        (APPLY, &[("content-type", OK)], br#"{"spec":{"nmae":"web"}}"#, 400, "unknown field `nmae`"),
        (APPLY, &[("content-type", OK)], br#"{"spec":{"name":7}}"#, 400, "invalid type: integer `7`"),
        (APPLY, &[("content-type", OK)], b"", 400, "the body is empty"),
        (APPLY, &[("content-type", OK)], b"{", 400, "EOF while parsing"),
        (APPLY, &[("content-type", OK)], b"{\"etag\":\"\xff\"}", 400, "invalid unicode"),
        (APPLY, &[("content-type", OK)], &huge, 413, "the body is larger than"),
        (APPLY, &[("content-type", "text/plain")], good.as_bytes(), 415, "send application/json"),
        (APPLY, &[], good.as_bytes(), 415, "send application/json"),
        (APPLY, &[("content-type", OK), ("content-encoding", "gzip")], b"", 415, "compressed with \"gzip\""),
        (APPLY, &[("content-type", OK), ("connect-protocol-version", "2")], b"{}", 400, "version \"2\""),
        (APPLY, &[("content-type", OK), ("connect-timeout-ms", "soon")], b"{}", 400, "send milliseconds"),
        (APPLY, &[("content-type", "application/grpc")], b"", 505, "gRPC needs HTTP/2"),
        ("/api/quorate.api.v1.JobService/Nothing", &[("content-type", OK)], b"{}", 404, "has ApplyJob"),
        ("/api", &[("content-type", OK)], b"{}", 404, "calls have paths like"),
        ("/apiquorate.api.v1.JobService/GetJob", &[("content-type", OK)], b"{}", 404, "there is no call"),
        ("/quorate.agent.v1.AgentService/Session", &[("content-type", OK)], b"{}", 404, "there is no call"),
    ];
    for (path, headers, body, status, says) in table {
        let answer = http.send(request(to, path, headers, Bytes::copy_from_slice(body))).await;
        assert_eq!(answer.status.as_u16(), *status, "{path} {headers:?}: {:?}", answer.body);
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(says), "{path} {headers:?}: {message}");
        assert!(!answer.json()["code"].as_str().unwrap().is_empty() && !answer.reason().is_empty());
    }
    let unknown = http.post(to, APPLY, OK, r#"{"spec":{"nmae":"web"}}"#).await;
    assert_eq!(unknown.reason(), "UNKNOWN_FIELD");
    let get = Request::get(format!("http://{to}{GET}")).body(Full::default()).unwrap();
    let get = http.send(get).await;
    assert_eq!((get.status, get.header("allow")), (StatusCode::METHOD_NOT_ALLOWED, "POST"));
    assert_eq!(get.json()["code"], "unimplemented");
    let jobs = cluster.jobs(0).list_jobs(pb::ListJobsRequest::default()).await.unwrap().into_inner();
    assert!(jobs.jobs.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_of_a_client_of_json_is_kept() {
    let mut cluster = Cluster::prepare(3).await;
    cluster.run(0).await;
    let headers = [("content-type", "application/json"), ("connect-timeout-ms", "50")];
    let request = request(cluster.members[0].addresses.api, APPLY, &headers, web(1).to_string().into());
    let late = Http::over(Version::HTTP_11).send(request).await;
    assert_eq!((late.status, late.reason().as_str()), (StatusCode::GATEWAY_TIMEOUT, "COMMIT_TIMEOUT"));
    assert_eq!(late.json()["code"], "deadline_exceeded");
}

/// The frames of an answer in gRPC-Web: flags and bytes.
fn frames(mut body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [flags, a, b, c, d, rest @ ..] = body {
        let (frame, after) = rest.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        frames.push((*flags, frame.to_vec()));
        body = after;
    }
    assert!(body.is_empty());
    frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_web_calls_over_both_versions_of_http() {
    let cluster = Cluster::start(1).await;
    let to = cluster.members[0].addresses.api;
    cluster.jobs(0).apply_job(apply(service("web", 3))).await.unwrap();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let http = Http::over(version);
        for (name, status) in [("web", "grpc-status:0"), ("gone", "grpc-status:5")] {
            let sent =
                pb::GetJobRequest { name: name.to_owned(), ..pb::GetJobRequest::default() }.encode_to_vec();
            let mut body = vec![0];
            body.extend(u32::try_from(sent.len()).unwrap().to_be_bytes());
            body.extend(sent);
            let answer = http.post(to, GET, "application/grpc-web+proto", body).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(answer.header("content-type"), "application/grpc-web+proto");
            let frames = frames(&answer.body);
            let trailers = frames.iter().find(|(flags, _)| *flags == 0x80).map(|(_, bytes)| bytes.clone());
            let told = trailers.map(|t| String::from_utf8(t).unwrap()).unwrap_or_default();
            let alone = format!("grpc-status:{}", answer.header("grpc-status"));
            assert!(told.contains(status) || alone == status, "{name} {version:?}: {told:?} {alone:?}");
            if name == "web" {
                let (_, message) = frames.iter().find(|(flags, _)| *flags == 0).unwrap();
                let job = pb::GetJobResponse::decode(message.as_slice()).unwrap().job.unwrap();
                assert_eq!((job.name.as_str(), job.counts.unwrap().desired), ("web", 3));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let cluster = Cluster::start(1).await;
    let (to, http) = (cluster.members[0].addresses.api, Http::over(Version::HTTP_11));
    let long = "x".repeat(20 << 10);
    let headers = [("content-type", "application/json"), ("x-long", long.as_str())];
    let answer = http.send(request(to, GET, &headers, Bytes::from_static(b"{}"))).await;
    assert_eq!(answer.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);

    // Who asks before it sends is told before it sends.
    let mut stream = TcpStream::connect(to).await.unwrap();
    let ask = format!(
        "POST {GET} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\nconnection: close\r\n\r\n",
        5 << 20
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    assert!(heard.starts_with(b"HTTP/1.1 413"), "{:?}", String::from_utf8_lossy(&heard));

    // Without end: the transport itself stops to read.
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(format!("POST {GET} HTTP/1.1\r\nx: ").as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let flood = async { while writer.write_all(&[b'x'; 1 << 16]).await.is_ok() {} };
    let mut heard = Vec::new();
    tokio::join!(flood, async { drop(reader.read_to_end(&mut heard).await) });
    assert!(heard.starts_with(b"HTTP/1.1 431"), "{:?}", String::from_utf8_lossy(&heard));
}
