//! A manager for agents to dial, played by the test.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use quorate_base::{TaskGroup, TaskKind};
use quorate_model::{TaskId, TaskState};
use quorate_pki::{Profile, Security};
use quorate_wire::agent::agent_service_server::{AgentService, AgentServiceServer};
use quorate_wire::agent::relay_order::Order;
use quorate_wire::agent::{
    Assignment, AssignmentSet, Fence, Hello, OpenRelay, Redirect, Refusal, RelayFault, RelayHello, RelayLine,
    RelayOrder, RelayRequest, RelayResponse, SessionRequest, SessionResponse, StatusAck, StatusMark,
    TaskSpec, TaskStatus, Wanted, Welcome, relay_request, relay_response, session_request, session_response,
    set_hash,
};
use quorate_wire::common;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{CLUSTER, soon};

/// A listening manager; what dials it comes out of [`Manager::accept`].
pub struct Manager {
    pub address: String,
    sessions: tokio::sync::Mutex<mpsc::Receiver<Conn>>,
    relays: tokio::sync::Mutex<mpsc::Receiver<Relay>>,
    tasks: TaskGroup,
}

/// A session of an agent, whose manager the test plays.
pub struct Conn {
    pub hello: Hello,
    inbound: Streaming<SessionRequest>,
    outbound: mpsc::Sender<Result<SessionResponse, Status>>,
    pub fence: Fence,
    number: u64,
    members: std::collections::BTreeMap<TaskId, Wanted>,
    /// Statuses that nobody asked for yet.
    backlog: Vec<TaskStatus>,
}

/// A relay that an agent dialled, whose manager the test plays.
pub struct Relay {
    pub hello: RelayHello,
    inbound: Streaming<RelayRequest>,
    outbound: mpsc::Sender<Result<RelayResponse, Status>>,
}

struct Service(Mutex<mpsc::Sender<Conn>>, Mutex<mpsc::Sender<Relay>>);

#[tonic::async_trait]
impl AgentService for Service {
    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;
    type RelayStream = ReceiverStream<Result<RelayResponse, Status>>;

    async fn relay(
        &self,
        request: Request<Streaming<RelayRequest>>,
    ) -> Result<Response<Self::RelayStream>, Status> {
        let mut inbound = request.into_inner();
        let relays = self.1.lock().unwrap().clone();
        let Some(RelayRequest { body: Some(relay_request::Body::Hello(hello)) }) = inbound.message().await?
        else {
            return Err(Status::invalid_argument("the first message must be hello"));
        };
        let (outbound, responses) = mpsc::channel(64);
        let relay = Relay { hello, inbound, outbound };
        relays.send(relay).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(responses)))
    }

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut inbound = request.into_inner();
        let sessions = self.0.lock().unwrap().clone();
        let Some(SessionRequest { body: Some(session_request::Body::Hello(hello)) }) =
            inbound.message().await?
        else {
            return Err(Status::invalid_argument("the first message must be hello"));
        };
        let (outbound, responses) = mpsc::channel(64);
        let fence = Fence { epoch: 1, term: 1 };
        let conn = Conn {
            hello,
            inbound,
            outbound,
            fence,
            number: 0,
            members: Default::default(),
            backlog: Vec::new(),
        };
        sessions.send(conn).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}

impl Manager {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(address: SocketAddr) -> Self {
        let security = Security::default();
        let listener = security.listen(Profile::Agent, address).await.unwrap();
        let address = listener.local_addr().to_string();
        let (sender, sessions) = mpsc::channel(64);
        let (dialled, relays) = mpsc::channel(128);
        let tasks = super::group();
        let service = AgentServiceServer::new(Service(Mutex::new(sender), Mutex::new(dialled)));
        let server = security.server(Profile::Agent).add_service(service);
        tasks.spawn(TaskKind::critical("manager"), server.serve_with_incoming(listener.incoming()));
        Self {
            address,
            sessions: tokio::sync::Mutex::new(sessions),
            relays: tokio::sync::Mutex::new(relays),
            tasks,
        }
    }

    /// The next session.
    pub async fn accept(&self) -> Conn {
        soon("a session", async { self.sessions.lock().await.recv().await.unwrap() }).await
    }

    /// Asks for a relay over the session, and gives it its order when it is dialled.
    pub async fn relay(&self, conn: &Conn, order: Order) -> Relay {
        conn.send(session_response::Body::OpenRelay(OpenRelay { relay_id: "r1".to_owned() })).await;
        let next = async { self.relays.lock().await.recv().await.unwrap() };
        let relay = soon("a relay", next).await;
        assert_eq!((relay.hello.relay_id.as_str(), relay.hello.node.as_str()), ("r1", "n1"));
        relay.say(relay_response::Body::Order(RelayOrder { order: Some(order) })).await;
        relay
    }

    /// The next session, welcomed with an empty complete set in `term`.
    pub async fn accept_as_leader(&self, term: u64) -> Conn {
        let mut conn = self.accept().await;
        conn.fence.term = term;
        conn.welcome(&[]).await;
        conn
    }

    /// Dies: open sessions break, new ones are refused.
    pub async fn kill(self) {
        self.tasks.shutdown(Duration::ZERO).await;
    }
}

impl Relay {
    pub async fn say(&self, body: relay_response::Body) {
        self.outbound.send(Ok(RelayResponse { body: Some(body) })).await.unwrap();
    }

    /// The next message; `None` when the agent ended the relay.
    pub async fn next(&mut self) -> Option<relay_request::Body> {
        let next = soon("a message of the relay", self.inbound.message()).await;
        next.ok().flatten().map(|request| request.body.unwrap())
    }

    /// All lines until the agent says that it is done, and ends the relay.
    pub async fn lines(&mut self) -> Vec<RelayLine> {
        let mut all = Vec::new();
        loop {
            match self.next().await.expect("the agent must say that it is done") {
                relay_request::Body::Lines(lines) => all.extend(lines.lines),
                relay_request::Body::Done(_) => {
                    assert_eq!(self.next().await, None, "nothing comes after the end");
                    return all;
                }
                other => panic!("a line was expected, not {other:?}"),
            }
        }
    }

    /// Reads on until a line holds `text`.
    pub async fn line(&mut self, text: &str) {
        loop {
            match self.next().await.expect(text) {
                relay_request::Body::Lines(lines)
                    if lines.lines.iter().any(|line| *line.data == *text.as_bytes()) =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    /// The fault that ends it.
    pub async fn fault(&mut self) -> RelayFault {
        loop {
            if let relay_request::Body::Fault(fault) = self.next().await.expect("a fault") {
                return fault;
            }
        }
    }

    /// A command's whole output, and its exit code.
    pub async fn outcome(&mut self) -> (String, String, i32) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next().await.expect("an exit code") {
                relay_request::Body::Started(_) => {}
                relay_request::Body::Stdout(bytes) => stdout.extend(bytes),
                relay_request::Body::Stderr(bytes) => stderr.extend(bytes),
                relay_request::Body::ExitCode(code) => {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    return (text(stdout), text(stderr), code);
                }
                other => panic!("not of a command: {other:?}"),
            }
        }
    }
}

/// The text of lines.
pub fn texts(lines: &[RelayLine]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8(line.data.to_vec()).unwrap()).collect()
}

impl Conn {
    pub async fn send(&self, body: session_response::Body) {
        self.outbound.send(Ok(SessionResponse { body: Some(body) })).await.unwrap();
    }

    pub async fn welcome(&self, managers: &[&str]) {
        self.welcome_with(|welcome| welcome.managers = managers.iter().map(|m| (*m).to_owned()).collect())
            .await;
    }

    pub async fn welcome_with(&self, change: impl FnOnce(&mut Welcome)) {
        let mut welcome = Welcome {
            fence: Some(self.fence),
            cluster_id: CLUSTER.to_owned(),
            leader: "m1".to_owned(),
            heartbeat: Some(quorate_wire::common::duration(Duration::from_millis(50))),
            lease: Some(quorate_wire::common::duration(Duration::from_secs(30))),
            managers: Vec::new(),
            node_id: 1,
        };
        change(&mut welcome);
        self.send(session_response::Body::Welcome(welcome)).await;
    }

    pub async fn redirect(&self, leader: &str, managers: &[&str]) {
        let managers = managers.iter().map(|m| (*m).to_owned()).collect();
        self.send(session_response::Body::Redirect(Redirect { leader_address: leader.to_owned(), managers }))
            .await;
    }

    pub async fn refuse(&self, reason: &str, message: &str) {
        let refusal = Refusal { reason: reason.to_owned(), message: message.to_owned() };
        self.send(session_response::Body::Refusal(refusal)).await;
    }

    fn set(&mut self, applies_to: u64, assignments: Vec<Assignment>, removals: Vec<u64>) -> AssignmentSet {
        for assignment in &assignments {
            let desired = TaskState::from_number(assignment.desired_state as u16).unwrap();
            let wanted = Wanted { desired, restarts_asked: assignment.restarts_asked };
            self.members.insert(TaskId(assignment.task_id), wanted);
        }
        for id in &removals {
            self.members.remove(&TaskId(*id));
        }
        self.number += 1;
        AssignmentSet {
            fence: Some(self.fence),
            applies_to,
            results_in: self.number,
            assignments,
            removals,
            set_hash: set_hash(self.members.clone()),
        }
    }

    pub async fn complete(&mut self, assignments: Vec<Assignment>) {
        self.members.clear();
        let set = self.set(0, assignments, Vec::new());
        self.send(session_response::Body::Complete(set)).await;
    }

    pub async fn increment(&mut self, assignments: Vec<Assignment>, removals: Vec<u64>) {
        let set = self.set(self.number, assignments, removals);
        self.send(session_response::Body::Increment(set)).await;
    }

    /// An increment that does not fit what was sent before.
    pub async fn increment_after_a_lost_one(&mut self) {
        self.number += 1;
        let set = self.set(self.number, Vec::new(), Vec::new());
        self.send(session_response::Body::Increment(set)).await;
    }

    pub async fn ack(&self, status: &TaskStatus) {
        let marks = vec![StatusMark { task_id: status.task_id, seq: status.seq }];
        self.send(session_response::Body::Ack(StatusAck { marks })).await;
    }

    /// The next message; `None` when the agent ended the session.
    pub async fn next(&mut self) -> Option<session_request::Body> {
        let next = soon("a message of the agent", self.inbound.message()).await;
        next.ok().flatten().map(|request| request.body.unwrap())
    }

    /// Waits until the agent ends the session.
    pub async fn ended(&mut self) {
        while self.next().await.is_some() {}
    }

    /// Waits for a heartbeat that says that set `number` is applied.
    pub async fn applied(&mut self, number: u64) {
        loop {
            match self.next().await.expect("the session stands") {
                session_request::Body::Heartbeat(beat) if beat.applied_sequence == number => return,
                _ => {}
            }
        }
    }

    /// The next status of `task` that `wanted` takes; those of other tasks are kept for later. Acknowledges nothing.
    pub async fn status(&mut self, task: u64, wanted: impl Fn(&TaskStatus) -> bool) -> TaskStatus {
        loop {
            let mut found = None;
            self.backlog.retain(|status| {
                if status.task_id != task || found.is_some() {
                    return true;
                }
                found = wanted(status).then(|| status.clone());
                false
            });
            if let Some(status) = found {
                return status;
            }
            if let session_request::Body::Status(batch) = self.next().await.expect("the session stands") {
                self.backlog.extend(batch.statuses);
            }
        }
    }

    /// The next status of `task` in `state`, acknowledged.
    pub async fn reaches(&mut self, task: u64, state: TaskState) -> TaskStatus {
        let status = self.status(task, |status| status.state == u32::from(state.number())).await;
        self.ack(&status).await;
        status
    }
}

/// A task of the fake runtime, programmed by `env`.
pub fn fake_task(id: u64, env: &[(&str, &str)]) -> Assignment {
    let env = env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assignment(id, common::ContainerSpec { runtime: common::Runtime::Fake.into(), env, ..Default::default() })
}

/// A task that runs `sh -c SCRIPT`.
pub fn process_task(id: u64, script: &str) -> Assignment {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    assignment(
        id,
        common::ContainerSpec { runtime: common::Runtime::Process.into(), command, ..Default::default() },
    )
}

pub fn assignment(id: u64, container: common::ContainerSpec) -> Assignment {
    let restart = common::RestartPolicy {
        delay: Some(quorate_wire::common::duration(Duration::from_millis(20))),
        max_delay: Some(quorate_wire::common::duration(Duration::from_millis(100))),
        ..Default::default()
    };
    let containers = [("main".to_owned(), container)].into();
    Assignment {
        task_id: id,
        namespace: "default".to_owned(),
        job: "web".to_owned(),
        job_version: 1,
        slot: 0,
        desired_state: TaskState::Running.number().into(),
        spec: Some(TaskSpec { containers, restart: Some(restart), ..Default::default() }),
        observed_state: TaskState::Assigned.number().into(),
        observed_seq: 0,
        restarts_asked: 0,
        traceparent: String::new(),
    }
}

/// The same task with another wish.
pub fn desired(mut assignment: Assignment, state: TaskState) -> Assignment {
    assignment.desired_state = state.number().into();
    assignment
}
