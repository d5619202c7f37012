//! Relays: logs, commands and signals, with a manager that the test plays.

#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quorate_agent::config::{LogLimits, ProcessConfig, RuntimeConfig, Storage};
use quorate_agent::runtime::fake::FakeStore;
use quorate_agent::{Agent, AgentConfig};
use quorate_base::Clock;
use quorate_model::{Resources, TaskEventKind, TaskState};
use quorate_pki::Security;
use quorate_wire::agent::relay_order::Order;
use quorate_wire::agent::{
    Assignment, ExecOrder, LogOrder, RelayResize, ResolveOrder, SignalOrder, relay_request, relay_response,
};
use support::manager::{Conn, Manager, Relay, fake_task, process_task, texts};
use support::{group, name, shim, until};

/// A manager and an agent whose task 1 runs.
struct Stage {
    manager: Manager,
    conn: Conn,
    store: FakeStore,
    _agent: Agent,
}

impl Stage {
    async fn set(storage: Storage, task: Assignment) -> Self {
        let (manager, store) = (Manager::start().await, FakeStore::new());
        let process = matches!(storage, Storage::Folder(_))
            .then(|| ProcessConfig { shim: shim(), logs: LogLimits::default() });
        let config = AgentConfig {
            node: name("n1"),
            storage,
            labels: BTreeMap::new(),
            managers: vec![manager.address.clone()],
            security: Security::default(),
            reserved: Resources::default(),
            capacity: Some(Resources { cpu_millis: 4_000, memory_bytes: 8 << 30 }),
            runtimes: RuntimeConfig { docker: None, process, fake: Some(store.clone()) },
            orphan_grace: Duration::from_secs(60),
            pressure: None,
        };
        let agent = Agent::start(config, Clock::system(), group()).await.unwrap();
        let mut conn = manager.accept_as_leader(1).await;
        conn.complete(vec![task]).await;
        conn.reaches(1, TaskState::Running).await;
        Self { manager, conn, store, _agent: agent }
    }

    async fn fake() -> Self {
        Self::set(Storage::Memory, fake_task(1, &[])).await
    }

    async fn process(folder: &Path, script: &str) -> Self {
        Self::set(Storage::Folder(folder.to_owned()), process_task(1, script)).await
    }

    fn write(&self, text: &str, stderr: bool) {
        let unit = self.store.starts().into_keys().next().unwrap();
        self.store.write(&unit, Clock::system().now(), stderr, text);
    }

    fn crash(&self) {
        let unit = self.store.starts().into_keys().next().unwrap();
        assert!(self.store.crash(&unit, 1));
    }

    async fn relay(&self, order: Order) -> Relay {
        self.manager.relay(&self.conn, order).await
    }

    async fn logs(&self, order: LogOrder) -> Relay {
        self.relay(Order::Logs(order)).await
    }

    async fn exec(&self, command: &[&str], stdin: bool) -> Relay {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        self.relay(Order::Exec(ExecOrder { task_id: 1, command, stdin, ..ExecOrder::default() })).await
    }
}

fn of(task_id: u64) -> LogOrder {
    LogOrder { task_id, ..LogOrder::default() }
}

#[tokio::test]
async fn a_log_is_read_whole_by_its_tail_by_stream_and_on_from_any_line() {
    let stage = Stage::fake().await;
    for line in 0..5 {
        stage.write(&format!("line {line}"), line % 2 == 1);
    }
    let all = stage.logs(of(1)).await.lines().await;
    assert_eq!(texts(&all), ["started 1", "line 0", "line 1", "line 2", "line 3", "line 4"]);
    assert!(all.iter().all(|line| line.time.is_some() && !line.unfinished));
    let tail = stage.logs(LogOrder { tail: Some(2), ..of(1) }).await.lines().await;
    assert_eq!(texts(&tail), ["line 3", "line 4"]);
    let errors = stage.logs(LogOrder { without_stdout: true, ..of(1) }).await.lines().await;
    assert_eq!(texts(&errors), ["line 1", "line 3"]);
    for (index, line) in all.iter().enumerate() {
        let rest = stage.logs(LogOrder { cursor: line.cursor.clone(), ..of(1) }).await.lines().await;
        assert_eq!(rest, all[index + 1..]);
    }
    let bad = stage.logs(LogOrder { cursor: "nonsense".to_owned(), ..of(1) }).await.fault().await;
    assert_eq!(bad.reason, "ARGUMENT_INVALID");
    let previous = stage.logs(LogOrder { previous: true, ..of(1) }).await.fault().await;
    assert_eq!(previous.reason, "LOG_NOT_FOUND");
    assert_eq!(stage.logs(of(9)).await.fault().await.reason, "TASK_NOT_FOUND");
}

#[tokio::test]
async fn a_followed_log_goes_on_over_a_restart_and_ends_with_its_task() {
    let mut stage = Stage::fake().await;
    let mut relay = stage.logs(LogOrder { follow: true, ..of(1) }).await;
    relay.line("started 1").await;
    stage.write("between", false);
    relay.line("between").await;
    stage.crash();
    relay.line("started 2").await;
    let run = stage.logs(LogOrder { previous: true, ..of(1) }).await.lines().await;
    assert_eq!(texts(&run), ["started 1", "between"]);
    stage
        .conn
        .increment(vec![support::manager::desired(fake_task(1, &[]), TaskState::Shutdown)], Vec::new())
        .await;
    assert_eq!(relay.lines().await, [], "everything was sent, and nothing twice");
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_its_relay_alone() {
    let stage = Stage::fake().await;
    for _ in 0..2_000 {
        stage.write(&"x".repeat(16 * 1024), false);
    }
    let mut stalled = stage.logs(of(1)).await;
    let quick = stage.logs(LogOrder { tail: Some(1), ..of(1) }).await.lines().await;
    assert_eq!(quick.len(), 1);
    // Everything is there when it reads at last.
    assert_eq!(stalled.lines().await.len(), 2_001);
}

#[tokio::test]
async fn commands_are_run_with_input_and_end_with_their_caller() {
    let stage = Stage::fake().await;
    assert_eq!(stage.exec(&["exit", "7"], false).await.outcome().await, (String::new(), String::new(), 7));
    assert_eq!(stage.exec(&["missing"], false).await.fault().await.reason, "EXEC_FAILED");
    let mut echo = stage.exec(&["cat"], true).await;
    echo.say(relay_response::Body::Stdin("hello".into())).await;
    echo.say(relay_response::Body::Resize(RelayResize { rows: 3, columns: 4 })).await;
    echo.say(relay_response::Body::StdinClosed(true)).await;
    assert_eq!(echo.outcome().await, ("cat\nhello".to_owned(), "3x4\n".to_owned(), 0));
    let mut killed = stage.exec(&["cat"], true).await;
    killed.say(relay_response::Body::Signal("SIGINT".to_owned())).await;
    assert_eq!(killed.outcome().await.2, 130);
    let mut left = stage.exec(&["cat"], true).await;
    assert!(matches!(left.next().await, Some(relay_request::Body::Started(_))));
    let mut follower = stage.logs(LogOrder { follow: true, ..of(1) }).await;
    drop(left);
    follower.line("command ended by hangup").await;
}

#[tokio::test]
async fn a_signal_is_sent_once_and_told_in_the_history() {
    let mut stage = Stage::fake().await;
    let order = |signal: &str| {
        Order::Signal(SignalOrder { task_id: 1, signal: signal.to_owned(), request_id: "q1".to_owned() })
    };
    assert_eq!(stage.relay(order("SIGNONE")).await.fault().await.reason, "ARGUMENT_INVALID");
    for _ in 0..2 {
        assert!(matches!(
            stage.relay(order("SIGHUP")).await.next().await,
            Some(relay_request::Body::Done(_))
        ));
    }
    let unit = stage.store.starts().into_keys().next().unwrap();
    assert_eq!(stage.store.signals(&unit).len(), 1);
    let kind = u32::from(TaskEventKind::Signaled as u16);
    stage.conn.status(1, |status| status.events.iter().any(|event| event.kind == kind)).await;
    let resolve = Order::Resolve(ResolveOrder { image: "busybox:1".to_owned() });
    let answer = stage.relay(resolve).await.next().await;
    assert!(matches!(answer, Some(relay_request::Body::Image(image)) if image.digest.is_empty()));
}

#[tokio::test]
async fn relays_are_bounded_and_a_refused_one_says_so() {
    let stage = Stage::fake().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut relay = stage.logs(LogOrder { follow: true, ..of(1) }).await;
        relay.line("started 1").await;
        open.push(relay);
    }
    assert_eq!(stage.logs(of(1)).await.fault().await.reason, "OVERLOADED");
    drop(open);
}

#[tokio::test]
async fn a_processs_log_tells_streams_and_goes_on_after_a_restart_of_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::process(folder.path(), "echo one; echo two >&2; printf three; exec sleep 600").await;
    let mut relay = stage.logs(LogOrder { follow: true, ..of(1) }).await;
    relay.line("two").await;
    let lines = stage.logs(of(1)).await.lines().await;
    let mut told: Vec<_> = lines.iter().map(|line| (line.stderr, line.data.to_vec())).collect();
    told.sort();
    assert_eq!(told, [(false, b"one".to_vec()), (true, b"two".to_vec())]);
    assert!(lines.iter().all(|line| line.time.unwrap().seconds > 1_500_000_000));
    let rest = stage.logs(LogOrder { cursor: lines[0].cursor.clone(), ..of(1) }).await.lines().await;
    assert_eq!(rest, lines[1..]);
}

#[tokio::test]
async fn commands_beside_a_process_have_its_surroundings_and_end_with_their_caller() {
    let folder = tempfile::tempdir().unwrap();
    let stage =
        Stage::process(folder.path(), "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done")
            .await;
    let mut log = stage.logs(LogOrder { follow: true, ..of(1) }).await;
    log.line("ready").await;
    let shell = |script: &'static str| ["sh", "-c", script];
    let out = stage.exec(&shell("pwd; echo err >&2; exit 3"), false).await.outcome().await;
    assert_eq!((out.0.trim_end().ends_with("tasks/t1/main"), out.1.as_str(), out.2), (true, "err\n", 3));
    let mut cat = stage.exec(&["cat"], true).await;
    cat.say(relay_response::Body::Stdin("some input".into())).await;
    cat.say(relay_response::Body::StdinClosed(true)).await;
    assert_eq!(cat.outcome().await, ("some input".to_owned(), String::new(), 0));
    assert_eq!(stage.exec(&shell("kill -9 $$"), false).await.outcome().await.2, 137);
    let fault = stage.exec(&["/no/program"], false).await.fault().await;
    assert_eq!((fault.reason.as_str(), fault.message.contains("/no/program")), ("EXEC_FAILED", true));
    let tty = ExecOrder { task_id: 1, command: vec!["sh".to_owned()], tty: true, ..ExecOrder::default() };
    assert_eq!(stage.relay(Order::Exec(tty)).await.fault().await.reason, "UNSUPPORTED");
    let mut left = stage.exec(&shell("echo $$; exec sleep 600"), false).await;
    let pid = loop {
        if let Some(relay_request::Body::Stdout(bytes)) = left.next().await {
            break String::from_utf8(bytes.to_vec()).unwrap().trim().to_owned();
        }
    };
    drop(left);
    until("the command's end", || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
    let signal = SignalOrder { task_id: 1, signal: "SIGUSR1".to_owned(), request_id: String::new() };
    let done = stage.relay(Order::Signal(signal)).await.next().await;
    assert!(matches!(done, Some(relay_request::Body::Done(_))), "{done:?}");
    log.line("usr1").await;
}
