//! What the tests of this crate share.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod engine;
pub mod manager;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use quorate_agent::config::{LogLimits, ShimCommand};
use quorate_agent::runtime::process::ProcessRuntime;
use quorate_agent::runtime::{Owner, Unit, Work};
use quorate_agent::step::{Exit, Seen};
use quorate_base::{Clock, TaskGroup};
use quorate_model::{ContainerSpec, Epoch, JobVersion, Name, RuntimeKind, Slot, StopPolicy, TaskId};

/// The longest that anything here may take; a hang then fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const CLUSTER: &str = "01ARYZ6S41TSV4RRFFQ69G5FAV";

pub fn name(text: &str) -> Name {
    Name::parse("name", text).unwrap()
}

/// Awaits `future`, at most [`PATIENCE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Looks again and again until `look` finds something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

pub fn group() -> TaskGroup {
    TaskGroup::new("test", |failure| eprintln!("{failure}"))
}

pub fn unit(task: u64) -> Unit {
    Unit {
        owner: Owner { cluster: CLUSTER.into(), node: name("n1") },
        epoch: Epoch(1),
        task: TaskId(task),
        container: name("main"),
        namespace: name("default"),
        job: name("web"),
        version: JobVersion(1),
        slot: Slot(0),
    }
}

/// `sh -c SCRIPT` as task `task`.
pub fn shell(task: u64, script: &str) -> Work {
    let spec = ContainerSpec {
        runtime: RuntimeKind::Process,
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        stop: StopPolicy { grace: Duration::from_secs(20), ..StopPolicy::default() },
        ..ContainerSpec::default()
    };
    Work { unit: unit(task), spec, volumes: BTreeMap::new(), ports: BTreeMap::new() }
}

pub fn shim() -> ShimCommand {
    ShimCommand { program: env!("CARGO_BIN_EXE_agent-shim-for-tests").into(), args: Vec::new() }
}

pub fn processes(root: &Path) -> ProcessRuntime {
    ProcessRuntime::new(root.to_owned(), shim(), LogLimits::default(), Clock::system(), group())
}

pub fn instance(seen: &Seen) -> String {
    match seen {
        Seen::Running { instance, .. } => instance.to_string(),
        other => panic!("does not run: {other:?}"),
    }
}

/// The pid of a running process.
pub fn pid(seen: &Seen) -> i32 {
    instance(seen).split(':').next().unwrap().parse().unwrap()
}

pub fn exit(seen: Seen) -> Exit {
    match seen {
        Seen::Exited(exit) => exit,
        other => panic!("has not ended: {other:?}"),
    }
}

/// What a process wrote to `stream` (stdout, stderr) since its output was last rotated.
pub fn output(folder: &std::path::Path, stream: &str) -> String {
    let text = std::fs::read_to_string(folder.join("output.log")).unwrap_or_default();
    let marks = if stream == "stdout" { ["o", "O"] } else { ["e", "E"] };
    let mut out = String::new();
    for line in text.lines().skip(1) {
        let mut parts = line.splitn(3, ' ');
        let (_, Some(mark), Some(data)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if marks.contains(&mark) {
            out.push_str(data);
            out.push_str(if mark == marks[0] { "\n" } else { "" });
        }
    }
    out
}
