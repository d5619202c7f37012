//! Logs over lost managers, and commands that are started at most once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use quorate_base::sync::lock;
use quorate_base::{TaskGroup, TaskKind};
use quorate_pki::{Profile, Security};
use quorate_wire::api::task_service_server::{TaskService, TaskServiceServer};
use quorate_wire::api::*;
use quorate_wire::common::ResponseMeta;
use quorate_wire::status::{ApiError, Reason};
use tonic::{Request, Response, Status, Streaming};

use super::fake::{dead_address, options};
use super::{client, group};
use crate::{ClientError, LogEvent};

/// What one stream of the fake brings: lines of `t1` by number, then its end.
type Script = (Vec<u32>, Option<Status>);

/// A manager that plays its scripts, a stream each.
#[derive(Clone)]
struct Fake {
    address: String,
    scripts: Arc<Mutex<VecDeque<Script>>>,
    asked: Arc<Mutex<Vec<ReadLogsRequest>>>,
    started: Arc<Mutex<u32>>,
}

type Answers<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

impl Fake {
    async fn start(group: &TaskGroup, scripts: impl IntoIterator<Item = Script>) -> Self {
        let security = Security::PlaintextLoopback;
        let listener = security.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let fake = Self {
            address: listener.local_addr().to_string(),
            scripts: Arc::new(Mutex::new(scripts.into_iter().collect())),
            asked: Arc::default(),
            started: Arc::default(),
        };
        let router = security.server(Profile::Api).add_service(TaskServiceServer::new(fake.clone()));
        group.spawn(TaskKind::critical("fake"), router.serve_with_incoming(listener.incoming()));
        fake
    }

    fn cursors(&self) -> Vec<Vec<String>> {
        let cursors = |request: &ReadLogsRequest| request.resume.iter().map(|p| p.cursor.clone()).collect();
        lock(&self.asked).iter().map(cursors).collect()
    }
}

fn unasked<T>() -> Result<T, Status> {
    Err(Status::internal("the test does not expect this call"))
}

#[tonic::async_trait]
impl TaskService for Fake {
    type ReadLogsStream = Answers<ReadLogsResponse>;
    type ExecStream = Answers<ExecResponse>;

    async fn get_task(&self, _: Request<GetTaskRequest>) -> Result<Response<GetTaskResponse>, Status> {
        unasked()
    }

    async fn list_tasks(&self, _: Request<ListTasksRequest>) -> Result<Response<ListTasksResponse>, Status> {
        unasked()
    }

    async fn stop_task(&self, _: Request<StopTaskRequest>) -> Result<Response<StopTaskResponse>, Status> {
        unasked()
    }

    async fn restart_task(
        &self,
        _: Request<RestartTaskRequest>,
    ) -> Result<Response<RestartTaskResponse>, Status> {
        unasked()
    }

    async fn signal_task(
        &self,
        _: Request<SignalTaskRequest>,
    ) -> Result<Response<SignalTaskResponse>, Status> {
        unasked()
    }

    async fn read_logs(
        &self,
        request: Request<ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        assert!(!request.metadata().contains_key("grpc-timeout"), "a log may last");
        lock(&self.asked).push(request.into_inner());
        let Some((lines, end)) = lock(&self.scripts).pop_front() else { return unasked() };
        let meta = Some(ResponseMeta { manager: self.address.clone(), ..ResponseMeta::default() });
        let first = ReadLogsResponse { meta, ..ReadLogsResponse::default() };
        let line = |n: u32| LogLine { task: "t1".to_owned(), cursor: format!("c{n}"), ..LogLine::default() };
        let lines =
            lines.into_iter().map(|n| ReadLogsResponse { lines: vec![line(n)], ..Default::default() });
        let all: Vec<_> = [first].into_iter().chain(lines).map(Ok).chain(end.map(Err)).collect();
        Ok(Response::new(tokio_stream::iter(all)))
    }

    async fn exec(
        &self,
        request: Request<Streaming<ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        *lock(&self.started) += 1;
        match lock(&self.scripts).pop_front() {
            Some((_, Some(status))) => Err(status),
            _ => {
                drop(request);
                let code = ExecResponse { body: Some(exec_response::Body::ExitCode(3)) };
                Ok(Response::new(tokio_stream::iter(vec![Ok(code)])))
            }
        }
    }
}

fn lost() -> Option<Status> {
    Some(Status::unavailable("the connection is gone"))
}

fn refusal(reason: Reason) -> Option<Status> {
    Some(ApiError::new(reason, "as the test says").into())
}

#[tokio::test]
async fn a_log_goes_on_after_its_last_line_wherever_it_breaks() {
    let group = group();
    let scripts = [(vec![1, 2], lost()), (vec![], refusal(Reason::NotLeader)), (vec![3], None)];
    let fake = Fake::start(&group, scripts).await;
    let mut logs = client(&[&fake.address], options()).read_logs(ReadLogsRequest::default());
    let (mut cursors, mut resumed) = (Vec::new(), 0);
    while let Some(event) = logs.next().await.unwrap() {
        match event {
            LogEvent::Lines(lines) => cursors.extend(lines.into_iter().map(|line| line.cursor)),
            LogEvent::Resumed { manager } => {
                assert_eq!(manager, fake.address);
                resumed += 1;
            }
            LogEvent::Notice(notice) => panic!("{notice:?}"),
        }
    }
    assert_eq!((cursors.join(" "), resumed), ("c1 c2 c3".to_owned(), 2));
    assert_eq!(fake.cursors(), [vec![], vec!["c2".to_owned()], vec!["c2".to_owned()]]);
}

#[tokio::test]
async fn a_log_that_is_refused_or_never_gets_on_ends_with_its_error() {
    let group = group();
    let fake = Fake::start(&group, [(vec![1], refusal(Reason::ReaderTooSlow))]).await;
    let mut logs = client(&[&fake.address], options()).read_logs(ReadLogsRequest::default());
    assert!(matches!(logs.next().await, Ok(Some(LogEvent::Lines(_)))));
    let Err(ClientError::Api { error, .. }) = logs.next().await else { panic!("it must fail") };
    assert_eq!(error.reason, Reason::ReaderTooSlow);
    let barren = Fake::start(&group, (0..50).map(|_| (vec![], lost()))).await;
    let mut logs = client(&[&barren.address], options()).read_logs(ReadLogsRequest::default());
    let failed = loop {
        match logs.next().await {
            Ok(Some(LogEvent::Resumed { .. })) => {}
            other => break other,
        }
    };
    assert!(failed.is_err());
    assert!(barren.cursors().len() < 50, "it gives up");
}

#[tokio::test]
async fn a_command_is_started_elsewhere_only_when_it_was_not_started() {
    let group = group();
    let start = ExecStart { command: vec!["true".to_owned()], ..ExecStart::default() };
    let (first, second) =
        (Fake::start(&group, [(vec![], refusal(Reason::NoLeader))]).await, Fake::start(&group, []).await);
    let dead = dead_address().await;
    let mut exec =
        client(&[&dead, &first.address, &second.address], options()).exec(start.clone()).await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(exec_response::Body::ExitCode(3)));
    assert_eq!(exec.next().await.unwrap(), None);
    assert_eq!((*lock(&first.started), *lock(&second.started)), (1, 1));

    let broken = Fake::start(&group, [(vec![], lost())]).await;
    let failed = client(&[&broken.address, &second.address], options()).exec(start).await;
    assert!(failed.err().unwrap().to_string().contains("may or may not"));
    assert_eq!(*lock(&second.started), 1, "it might run already");
}
