//! Logs, commands and signals: a raw agent plays the other end of the relays.

use std::time::Duration;

use quorate_base::time::Timestamp;
use quorate_wire::{
    agent::{
        self as pb, agent_service_client::AgentServiceClient, relay_order::Order, relay_request,
        relay_response, session_response::Body,
    },
    api::{self, exec_request, exec_response},
    common::timestamp,
    status::{ApiError, Reason},
};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Status, Streaming};

use crate::{
    agents::{Agent, hello},
    cluster::{Cluster, PATIENCE, channel},
    writes::{apply, service},
};

const RUNNING: u32 = 512;
const COMPLETE: u32 = 576;

/// The agent's end of one relay.
struct Relay {
    order: Order,
    say: mpsc::Sender<pb::RelayRequest>,
    hear: Streaming<pb::RelayResponse>,
}

impl Relay {
    async fn say(&self, body: relay_request::Body) {
        self.say.send(pb::RelayRequest { body: Some(body) }).await.unwrap();
    }

    /// Says that the order was carried out, and waits until the leader has read it.
    async fn done(mut self) {
        self.say(relay_request::Body::Done(pb::RelayDone {})).await;
        let _ended = self.heard().await;
    }

    async fn lines(&self, lines: &[(u64, &str)]) {
        let line = |(at, text): &(u64, &str)| pb::RelayLine {
            time: Some(timestamp(Timestamp::from_millis(*at))),
            data: text.to_string().into_bytes().into(),
            cursor: format!("c{at}"),
            ..pb::RelayLine::default()
        };
        self.say(relay_request::Body::Lines(pb::RelayLines { lines: lines.iter().map(line).collect() }))
            .await;
    }

    async fn heard(&mut self) -> Option<relay_response::Body> {
        let message = tokio::time::timeout(PATIENCE, self.hear.message()).await.expect("no message");
        message.ok().flatten().and_then(|m| m.body)
    }

    fn logs(&self) -> &pb::LogOrder {
        let Order::Logs(order) = &self.order else { panic!("an order for a log was expected") };
        order
    }
}

/// A cluster with one agent whose tasks of job `web` run.
struct Stage {
    cluster: Cluster,
    leader: usize,
    agent: Agent,
    tasks: Vec<u64>,
}

impl Stage {
    async fn set(managers: usize, replicas: u32) -> Self {
        let cluster = Cluster::start(managers).await;
        let leader = cluster.leader().await;
        let mut agent = Agent::dial(&cluster, leader, hello("n1", "a")).await;
        let (_, complete) = agent.opened().await;
        cluster.jobs(leader).apply_job(apply(service("web", replicas))).await.unwrap();
        let (_, assigned) = agent.assigned(complete.results_in, replicas as usize).await;
        let tasks: Vec<u64> = assigned.iter().map(|t| t.task_id).collect();
        let mut stage = Self { cluster, leader, agent, tasks };
        for task in stage.tasks.clone() {
            stage.report(task, RUNNING, 1).await;
        }
        stage
    }

    async fn report(&mut self, task: u64, state: u32, seq: u64) {
        self.agent.report(task, state, seq).await;
        loop {
            if let Body::Ack(ack) = self.agent.next().await {
                assert_eq!(ack.marks[0].task_id, task);
                return;
            }
        }
    }

    /// Dials the next relay that the leader asks for.
    async fn relay(&mut self) -> Relay {
        let id = loop {
            if let Body::OpenRelay(open) = self.agent.next().await {
                break open.relay_id;
            }
        };
        self.dial(&id, "n1").await.unwrap()
    }

    async fn dial(&self, id: &str, node: &str) -> Result<Relay, Status> {
        let address = self.cluster.members[self.leader].addresses.agents.to_string();
        let (say, said) = mpsc::channel(16);
        let hello = pb::RelayHello { relay_id: id.to_owned(), node: node.to_owned() };
        say.send(pb::RelayRequest { body: Some(relay_request::Body::Hello(hello)) }).await.unwrap();
        let call = AgentServiceClient::new(channel(&address)).relay(ReceiverStream::new(said)).await;
        let mut hear = call?.into_inner();
        let first = hear.message().await?.and_then(|m| m.body);
        let Some(relay_response::Body::Order(pb::RelayOrder { order: Some(order) })) = first else {
            panic!("the first word must be the order")
        };
        Ok(Relay { order, say, hear })
    }

    fn of_job(&self) -> api::ReadLogsRequest {
        api::ReadLogsRequest { job: "web".to_owned(), ..api::ReadLogsRequest::default() }
    }

    async fn read(
        &self,
        at: usize,
        request: api::ReadLogsRequest,
    ) -> Result<Streaming<api::ReadLogsResponse>, Status> {
        Ok(self.cluster.tasks(at).read_logs(request).await?.into_inner())
    }
}

/// Texts of all lines, texts of all notices, and the error at the end.
async fn all(mut answers: Streaming<api::ReadLogsResponse>) -> (Vec<String>, Vec<String>, Option<Reason>) {
    let (mut lines, mut notices) = (Vec::new(), Vec::new());
    let mut error = None;
    while let Some(answer) = tokio::time::timeout(PATIENCE, answers.next()).await.expect("no end") {
        match answer {
            Ok(answer) => {
                lines.extend(answer.lines.into_iter().map(|l| String::from_utf8(l.data.to_vec()).unwrap()));
                notices.extend(answer.notices.into_iter().map(|n| n.text));
            }
            Err(status) => error = Some(ApiError::from_status(&status).reason),
        }
    }
    (lines, notices, error)
}

fn reason<T>(answer: Result<T, Status>) -> Reason {
    ApiError::from_status(&answer.err().expect("it must be refused")).reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobs_logs_are_merged_by_time_and_come_through_any_manager() {
    let mut stage = Stage::set(3, 2).await;
    let follower = stage.cluster.follower().await;
    let reading = stage.read(follower, api::ReadLogsRequest { tail: Some(9), ..stage.of_job() });
    let answers = reading.await.unwrap();
    let mut relays = [stage.relay().await, stage.relay().await];
    relays.sort_by_key(|relay| relay.logs().task_id);
    assert!(relays.iter().all(|relay| relay.logs().tail == Some(9) && !relay.logs().follow));
    relays[0].lines(&[(1, "a1"), (4, "a4")]).await;
    relays[1].lines(&[(2, "b2"), (3, "b3"), (5, "b5")]).await;
    for relay in relays {
        relay.done().await;
    }
    assert_eq!(all(answers).await, (["a1", "b2", "b3", "a4", "b5"].map(str::to_owned).into(), vec![], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_log_goes_on_after_a_broken_relay_and_ends_with_its_task() {
    let mut stage = Stage::set(1, 1).await;
    let task = stage.tasks[0];
    let request = api::ReadLogsRequest { task: format!("t{task}"), follow: true, ..Default::default() };
    let answers = stage.read(0, request).await.unwrap();
    let first = stage.relay().await;
    first.lines(&[(1, "one")]).await;
    first
        .say(relay_request::Body::Fault(pb::RelayFault {
            reason: "AGENT_UNREACHABLE".to_owned(),
            message: "the engine is away".to_owned(),
        }))
        .await;
    let second = stage.relay().await;
    assert_eq!(second.logs().cursor, "c1", "it goes on after the last line");
    second.lines(&[(2, "two")]).await;
    stage.report(task, COMPLETE, 2).await;
    second.done().await;
    let (lines, notices, error) = all(answers).await;
    assert_eq!((lines, error), (vec!["one".to_owned(), "two".to_owned()], None));
    assert_eq!(notices, ["the engine is away", "it is complete"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_off_is_no_whole_one() {
    let mut stage = Stage::set(1, 1).await;
    let task = api::ReadLogsRequest { task: format!("t{}", stage.tasks[0]), ..Default::default() };
    let answers = stage.read(0, task).await.unwrap();
    drop(stage.relay().await);
    assert_eq!(all(answers).await.2, Some(Reason::AgentUnreachable), "the task was asked for: an error");
    let answers = stage.read(0, stage.of_job()).await.unwrap();
    drop(stage.relay().await);
    let (_, notices, error) = all(answers).await;
    assert_eq!((notices.len(), error), (1, None), "one of many: a notice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_ends_the_relay() {
    let mut stage = Stage::set(1, 1).await;
    let request = api::ReadLogsRequest { follow: true, ..stage.of_job() };
    let answers = stage.read(0, request).await.unwrap();
    let mut relay = stage.relay().await;
    drop(answers);
    assert!(relay.heard().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_what_is_unknown_or_never_ran_are_refused_by_name() {
    let stage = Stage::set(1, 1).await;
    let task = |id: &str| api::ReadLogsRequest { task: id.to_owned(), ..Default::default() };
    assert_eq!(reason(stage.read(0, task("t99")).await), Reason::TaskNotFound);
    assert_eq!(reason(stage.read(0, task("no task")).await), Reason::ArgumentInvalid);
    assert_eq!(reason(stage.read(0, task("")).await), Reason::ArgumentInvalid);
    let job = api::ReadLogsRequest { job: "none".to_owned(), ..Default::default() };
    assert_eq!(reason(stage.read(0, job).await), Reason::JobNotFound);
    let both = api::ReadLogsRequest { job: "web".to_owned(), ..task("t0") };
    assert_eq!(reason(stage.read(0, both).await), Reason::ArgumentInvalid);
    let previous = api::ReadLogsRequest { previous: true, ..task(&format!("t{}", stage.tasks[0])) };
    assert_eq!(reason(stage.read(0, previous).await), Reason::LogNotFound, "it was never restarted");
    // A job that fits nowhere: its tasks have no node.
    let mut wide = service("wide", 1);
    for container in wide.containers.values_mut() {
        container.reserve = Some(quorate_wire::common::Resources { cpu_millis: 900_000, memory_bytes: 1 });
    }
    stage.cluster.jobs(0).apply_job(apply(wide)).await.unwrap();
    let waiting = crate::cluster::until("a task that waits", async || {
        let request = api::ListTasksRequest { job: "wide".to_owned(), ..Default::default() };
        let tasks = stage.cluster.tasks(0).list_tasks(request).await.unwrap().into_inner().tasks;
        tasks.first().map(|task| task.id.clone())
    })
    .await;
    assert_eq!(reason(stage.read(0, task(&waiting)).await), Reason::TaskNotRunning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_belongs_to_the_node_that_was_asked() {
    let mut stage = Stage::set(1, 1).await;
    let answers = stage.read(0, stage.of_job()).await.unwrap();
    let Body::OpenRelay(open) = stage.agent.next().await else { panic!("no relay was asked for") };
    assert!(stage.dial(&open.relay_id, "n2").await.is_err(), "another node's");
    assert!(stage.dial("made up", "n1").await.is_err());
    let relay = stage.dial(&open.relay_id, "n1").await.unwrap();
    assert!(stage.dial(&open.relay_id, "n1").await.is_err(), "once");
    relay.lines(&[(1, "x")]).await;
    relay.done().await;
    assert_eq!(all(answers).await.0, ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_is_confirmed_by_the_agent_or_fails_by_name() {
    let mut stage = Stage::set(3, 1).await;
    let follower = stage.cluster.follower().await;
    let id = format!("t{}", stage.tasks[0]);
    let request = |signal: &str, request_id: &str| api::SignalTaskRequest {
        id: id.clone(),
        signal: signal.to_owned(),
        request_id: request_id.to_owned(),
    };
    let mut client = stage.cluster.tasks(follower);
    let (answer, ()) = tokio::join!(client.signal_task(request("hup", "r1")), async {
        let relay = stage.relay().await;
        let Order::Signal(order) = &relay.order else { panic!("an order for a signal was expected") };
        assert_eq!((order.signal.as_str(), order.request_id.as_str()), ("SIGHUP", "r1"));
        relay.done().await;
    });
    answer.unwrap();
    let mut client = stage.cluster.tasks(follower);
    let (answer, ()) = tokio::join!(client.signal_task(request("SIGUSR1", "r2")), async {
        let mut relay = stage.relay().await;
        let (reason, message) = ("TASK_NOT_RUNNING".to_owned(), "its container ended".to_owned());
        relay.say(relay_request::Body::Fault(pb::RelayFault { reason, message })).await;
        let _ended = relay.heard().await;
    });
    assert_eq!(reason(answer), Reason::TaskNotRunning);
    let mut client = stage.cluster.tasks(follower);
    assert_eq!(reason(client.signal_task(request("SIGNOPE", "r3")).await), Reason::ArgumentInvalid);
    assert_eq!(reason(client.signal_task(request("SIGHUP", "")).await), Reason::ArgumentInvalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_speaks_in_both_directions_and_ends_with_its_exit_code() {
    let mut stage = Stage::set(3, 1).await;
    let follower = stage.cluster.follower().await;
    let (say, said) = mpsc::channel(4);
    let start = api::ExecStart {
        task: format!("t{}", stage.tasks[0]),
        command: vec!["cat".to_owned()],
        stdin: true,
        ..api::ExecStart::default()
    };
    let ask = async |body| say.send(api::ExecRequest { body: Some(body) }).await.unwrap();
    ask(exec_request::Body::Start(start)).await;
    let mut client = stage.cluster.tasks(follower);
    let (answers, mut relay) = tokio::join!(client.exec(ReceiverStream::new(said)), stage.relay());
    let mut answers = answers.unwrap().into_inner();
    relay.say(relay_request::Body::Started(pb::RelayStarted {})).await;
    ask(exec_request::Body::Stdin("hi".into())).await;
    ask(exec_request::Body::Resize(api::TerminalSize { rows: 5, columns: 4_000_000 })).await;
    ask(exec_request::Body::StdinClosed(true)).await;
    assert_eq!(relay.heard().await, Some(relay_response::Body::Stdin("hi".into())));
    let size = pb::RelayResize { rows: 5, columns: 1000 };
    assert_eq!(relay.heard().await, Some(relay_response::Body::Resize(size)), "within bounds");
    assert_eq!(relay.heard().await, Some(relay_response::Body::StdinClosed(true)));
    relay.say(relay_request::Body::Stdout("hi".into())).await;
    relay.say(relay_request::Body::ExitCode(3)).await;
    let mut heard = Vec::new();
    while let Some(answer) = tokio::time::timeout(PATIENCE, answers.next()).await.expect("no end") {
        heard.push(answer.unwrap().body.unwrap());
    }
    let [exec_response::Body::Started(started), rest @ ..] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(started.node, "n1");
    assert_eq!(rest, [exec_response::Body::Stdout("hi".into()), exec_response::Body::ExitCode(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_ends_its_command() {
    let mut stage = Stage::set(1, 1).await;
    let (say, said) = mpsc::channel(4);
    let command = vec!["sleep".to_owned()];
    let start = api::ExecStart { task: format!("t{}", stage.tasks[0]), command, ..Default::default() };
    say.send(api::ExecRequest { body: Some(exec_request::Body::Start(start)) }).await.unwrap();
    let mut client = stage.cluster.tasks(0);
    let (answers, mut relay) = tokio::join!(client.exec(ReceiverStream::new(said)), stage.relay());
    drop((answers.unwrap(), say));
    assert!(relay.heard().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_cannot_be_are_refused_by_name() {
    let mut stage = Stage::set(1, 1).await;
    let task = format!("t{}", stage.tasks[0]);
    let start = |task: &str, command: &[&str]| api::ExecStart {
        task: task.to_owned(),
        command: command.iter().map(|text| (*text).to_owned()).collect(),
        ..api::ExecStart::default()
    };
    let ask = async |body| {
        let request = tokio_stream::iter([api::ExecRequest { body: Some(body) }]);
        reason(stage.cluster.tasks(0).exec(request).await)
    };
    assert_eq!(ask(exec_request::Body::Stdin("x".into())).await, Reason::ArgumentInvalid);
    assert_eq!(ask(exec_request::Body::Start(start(&task, &[]))).await, Reason::ArgumentInvalid);
    assert_eq!(ask(exec_request::Body::Start(start(&task, &["a\0"]))).await, Reason::ArgumentInvalid);
    let long = "x".repeat(65 << 10);
    assert_eq!(ask(exec_request::Body::Start(start(&task, &[&long]))).await, Reason::ArgumentInvalid);
    assert_eq!(ask(exec_request::Body::Start(start("t77", &["a"]))).await, Reason::TaskNotFound);
    let away = api::ExecStart { workdir: "relative".to_owned(), ..start(&task, &["a"]) };
    assert_eq!(ask(exec_request::Body::Start(away)).await, Reason::ArgumentInvalid);
    let ended = stage.tasks[0];
    stage.report(ended, COMPLETE, 2).await;
    let ask = async |body| {
        let request = tokio_stream::iter([api::ExecRequest { body: Some(body) }]);
        reason(stage.cluster.tasks(0).exec(request).await)
    };
    assert_eq!(ask(exec_request::Body::Start(start(&task, &["a"]))).await, Reason::TaskNotRunning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_session_is_named() {
    let stage = Stage::set(1, 1).await;
    let Stage { cluster, agent, tasks, .. } = stage;
    drop(agent);
    let request = api::SignalTaskRequest {
        id: format!("t{}", tasks[0]),
        signal: "SIGHUP".to_owned(),
        request_id: "r".to_owned(),
    };
    // The leader notices the end of the session within a moment.
    let status = crate::cluster::until("an agent that is missed", async || {
        let answer = cluster.tasks(0).signal_task(request.clone()).await.err()?;
        let error = ApiError::from_status(&answer);
        (error.reason != Reason::CommitTimeout).then_some(error)
    });
    let error = tokio::time::timeout(Duration::from_secs(60), status).await.unwrap();
    assert_eq!(error.reason, Reason::AgentUnreachable);
    assert_eq!(error.metadata.get("node").map(String::as_str), Some("n1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_pinned_when_a_node_knows_it_and_a_retry_is_still_the_same_request() {
    let mut stage = Stage::set(1, 0).await;
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let image = |replicas| {
        let mut spec = service("shop", replicas);
        for container in spec.containers.values_mut() {
            container.runtime = quorate_wire::common::Runtime::Docker.into();
            container.image = "shop:1".to_owned();
        }
        api::ApplyJobRequest { request_id: format!("r{replicas}"), ..apply(spec) }
    };
    let pinned = |answer: api::ApplyJobResponse| {
        let spec = answer.job.unwrap().spec.unwrap();
        (spec.containers.into_values().next().unwrap().digest, answer.warnings)
    };
    let answer = async |stage: &mut Stage, digest: Option<String>| {
        let mut relay = stage.relay().await;
        let Order::Resolve(order) = &relay.order else { panic!("an image was to be resolved") };
        assert_eq!(order.image, "shop:1");
        relay
            .say(match digest {
                Some(digest) => relay_request::Body::Image(pb::ResolvedImage { digest }),
                None => relay_request::Body::Fault(pb::RelayFault {
                    reason: "INTERNAL".to_owned(),
                    message: "the registry is away".to_owned(),
                }),
            })
            .await;
        let _ended = relay.heard().await;
    };
    let mut jobs = stage.cluster.jobs(0);
    let (first, ()) = tokio::join!(jobs.apply_job(image(1)), answer(&mut stage, None));
    let (none, warnings) = pinned(first.unwrap().into_inner());
    assert_eq!(none, "");
    assert!(warnings[0].contains("shop:1") && warnings[0].contains("the registry is away"), "{warnings:?}");
    let (again, ()) = tokio::join!(jobs.apply_job(image(1)), answer(&mut stage, Some(digest("a"))));
    let (_, warnings) = pinned(again.unwrap().into_inner());
    assert_eq!(
        warnings.len(),
        0,
        "the same request, although another digest was found: it is no reuse of the id"
    );
    let (second, ()) = tokio::join!(jobs.apply_job(image(2)), answer(&mut stage, Some(digest("b"))));
    assert_eq!(pinned(second.unwrap().into_inner()), (digest("b"), vec![]));
    let third = jobs.apply_job(image(3)).await.unwrap().into_inner();
    assert_eq!(pinned(third).0, digest("b"), "nobody is asked again for the same reference");
}
