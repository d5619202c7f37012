//! Processes of the node itself, each under a shim that outlives the agent.
//!
//! All that is known of a process lies in its folder `<data>/tasks/t<id>/<container>`: `unit.json` (whose it is, from
//! its creation on), `run.json` (what to run), `state.json` (what became of it) and the output files. So an agent that
//! starts anew, even one that lost its ledger, finds what runs.

mod exec;
mod folder;
mod logs;
mod user;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr as _;
use std::time::Duration;

use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use quorate_base::{Clock, TaskGroup, TaskKind, Timestamp};
use quorate_model::{RuntimeKind, StopPolicy, TaskId};
use quorate_wire::status::ApiError;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::shim::{ALIVE, Process, Run, State};
use super::streams::{Exec, LogItem, LogRead};
use super::{Counters, Owner, Runtime, Unit, Work, by_signal};
use crate::config::{LogLimits, ShimCommand};
use crate::durable;
use crate::machine::groups_use;
use crate::step::{Exit, Fault, Seen};
use folder::{Folder, Folders};

/// Where programs are looked up, unless the specification sets its own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The longest that a shim may take to say what became of a start.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The longest that a group may live on after SIGKILL (it may hang in the kernel) before the stop counts as failed.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How often a process is looked at whose shim was killed. While the shim lives nothing polls.
const ORPHAN_LOOK: Duration = Duration::from_secs(1);

/// Runs processes.
#[derive(Debug)]
pub struct ProcessRuntime {
    folders: Folders,
    shim: ShimCommand,
    logs: LogLimits,
    clock: Clock,
    tasks: TaskGroup,
}

impl ProcessRuntime {
    /// A runtime with its folders below `root`. Reaps its shims in `tasks`.
    #[must_use]
    pub fn new(root: PathBuf, shim: ShimCommand, logs: LogLimits, clock: Clock, tasks: TaskGroup) -> Self {
        Self { folders: Folders::new(root), shim, logs, clock, tasks }
    }

    fn prepare(&self, work: &Work) -> Result<Seen, Fault> {
        let folder = self.folders.of(&work.unit);
        if let Some(stored) = folder.unit()?
            && stored != work.unit
        {
            return Err(Fault::transient(format!(
                "{} still belongs to {stored}; it is being removed",
                folder.path().display()
            )));
        }
        let user = work.spec.user.as_deref().map(user::resolve).transpose()?;
        let argv = work.spec.command.iter().chain(&work.spec.args).cloned().collect();
        let mut env = work.spec.env.clone();
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        let run = Run {
            argv,
            env,
            workdir: work.spec.workdir.as_ref().map(PathBuf::from),
            user,
            log_bytes: self.logs.file_bytes,
            log_files: self.logs.files,
        };
        folder.create(&work.unit, &work.spec.stop, &run)?;
        look(&folder)
    }

    async fn launch(&self, work: &Work) -> Result<Seen, Fault> {
        let folder = self.folders.of(&work.unit);
        if let seen @ (Seen::Running { .. } | Seen::Absent) = look(&folder)? {
            return Ok(seen);
        }
        let mut command = Command::new(&self.shim.program);
        command.args(&self.shim.args).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        let mut shim = command.spawn().map_err(|error| {
            let program = self.shim.program.display();
            Fault::transient(format!("cannot start the supervisor {program}: {}", durable::text(&error)))
        })?;
        let stdout = shim.stdout.take();
        // A zombie would stay behind otherwise. On the agent's end init takes over.
        self.tasks.spawn(TaskKind::best_effort("shim"), async move { shim.wait().await.map(drop) });
        let Some(stdout) = stdout else { return look(&folder) };
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        let read = tokio::time::timeout(START_DEADLINE, reader.read_line(&mut line)).await;
        match (read, serde_json::from_str(&line)) {
            (Ok(Ok(_)), Ok(State::Running(process))) => Ok(running(&process)),
            (Ok(Ok(_)), Ok(State::Failed { message, transient })) => {
                // Until then it holds the folder, and the next attempt would meet it.
                let _ = tokio::time::timeout(START_DEADLINE, shim_ended(&folder)).await;
                Err(if transient { Fault::transient(message) } else { Fault::permanent(message) })
            }
            // It said nothing: another shim has the folder, or it died.
            _ => match look(&folder)? {
                seen @ Seen::Running { .. } => Ok(seen),
                _ => Err(Fault::transient(format!("cannot start {}: its supervisor ended", work.unit))),
            },
        }
    }

    async fn wait_for_end(&self, unit: &Unit) -> Result<Seen, Fault> {
        let folder = self.folders.of(unit);
        shim_ended(&folder).await;
        loop {
            match look(&folder)? {
                Seen::Running { .. } => self.clock.sleep(ORPHAN_LOOK).await,
                ended => return Ok(ended),
            }
        }
    }

    async fn end(&self, unit: &Unit, policy: Option<&StopPolicy>) -> Result<Seen, Fault> {
        let folder = self.folders.of(unit);
        let seen = look(&folder)?;
        let (Seen::Running { .. }, Some(State::Running(process))) = (&seen, folder.state()?) else {
            return Ok(seen);
        };
        let (name, grace) = match policy {
            Some(policy) => (policy.signal.clone(), policy.grace),
            None => folder.stop()?,
        };
        let signal = Signal::from_str(&name).unwrap_or(Signal::SIGTERM);
        for (signal, patience) in [(signal, grace), (Signal::SIGKILL, KILL_DEADLINE)] {
            process.signal_group(signal).map_err(|errno| {
                Fault::transient(format!(
                    "cannot send {signal} to process group {}: {}",
                    process.pid,
                    errno.desc()
                ))
            })?;
            tokio::select! {
                ended = self.wait_for_end(unit) => return ended,
                () = self.clock.sleep(patience) => {}
            }
        }
        Err(Fault::transient(format!("process group {} outlives SIGKILL", process.pid)))
    }
}

/// What the folder shows.
fn look(folder: &Folder) -> Result<Seen, Fault> {
    if folder.unit()?.is_none() {
        return Ok(Seen::Absent);
    }
    match (folder.shim_lives()?, folder.state()?) {
        (_, Some(State::Running(process))) if process.is_alive() => Ok(running(&process)),
        // Between two files, for an instant.
        (true, _) => Err(Fault::unavailable("the supervisor of the process is just starting or ending")),
        (false, None | Some(State::Failed { .. })) => Ok(Seen::Created),
        (false, Some(State::Running(process))) => {
            let cause = if process.is_of_another_boot() {
                "the machine was restarted"
            } else {
                "its supervisor was killed"
            };
            let detail = format!("ended, exit code unknown: {cause}");
            Ok(Seen::Exited(Exit { detail, ..Exit::default() }))
        }
        (false, Some(State::Exited { signal: Some(signal), .. })) => Ok(Seen::Exited(by_signal(signal))),
        (false, Some(State::Exited { code, signal: None })) => {
            Ok(Seen::Exited(Exit { code, ..Exit::default() }))
        }
    }
}

fn running(process: &Process) -> Seen {
    Seen::Running {
        instance: format!("{}:{}", process.pid, process.start_time).into(),
        since: Some(Timestamp::from_millis(process.since)),
    }
}

/// Returns when no shim holds the folder, at once if none does.
async fn shim_ended(folder: &Folder) {
    let Ok(mut alive) = pipe::OpenOptions::new().open_receiver(folder.path().join(ALIVE)) else { return };
    // The kernel tells of the end of a writer, not of the absence of one; so look, once the pipe is open.
    if !folder.shim_lives().unwrap_or(false) {
        return;
    }
    let mut nothing = [0; 16];
    // Nobody ever writes: the read ends when the last writer is gone.
    while alive.read(&mut nothing).await.is_ok_and(|count| count > 0) {}
}

impl Runtime for ProcessRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Process
    }

    fn probe(&self) -> BoxFuture<'_, Result<String, Fault>> {
        Box::pin(async { Ok(env!("CARGO_PKG_VERSION").to_owned()) })
    }

    fn list<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Vec<Unit>, Fault>> {
        Box::pin(
            async move { Ok(self.folders.all()?.into_iter().filter(|unit| unit.owner == *owner).collect()) },
        )
    }

    /// Nothing to fetch: programs are the node's.
    fn pull<'a>(&'a self, _work: &'a Work) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn create<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move { self.prepare(work) })
    }

    fn start<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.launch(work))
    }

    fn inspect<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let folder = self.folders.of(unit);
            match folder.unit()? {
                Some(stored) if stored == *unit => look(&folder),
                // Of an earlier epoch, or of nobody: not this one.
                _ => Ok(Seen::Absent),
            }
        })
    }

    fn wait<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.wait_for_end(unit))
    }

    fn stop<'a>(
        &'a self,
        unit: &'a Unit,
        policy: Option<&'a StopPolicy>,
    ) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(self.end(unit, policy))
    }

    fn usage<'a>(&'a self, units: &'a [Unit]) -> BoxFuture<'a, BTreeMap<TaskId, Counters>> {
        let running = units.iter().filter_map(|unit| match self.folders.of(unit).state() {
            Ok(Some(State::Running(process))) if process.is_alive() => Some((process.pid, unit.task)),
            _ => None,
        });
        let running: BTreeMap<i32, TaskId> = running.collect();
        Box::pin(async move {
            let groups = running.keys().copied().collect();
            // A walk through all processes takes a while on a busy machine.
            let counted = tokio::task::spawn_blocking(move || groups_use(&groups)).await.unwrap_or_default();
            counted.into_iter().filter_map(|(group, used)| Some((*running.get(&group)?, used))).collect()
        })
    }

    fn logs<'a>(
        &'a self,
        unit: &'a Unit,
        read: &'a LogRead,
        sink: &'a mpsc::Sender<LogItem>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.read_logs(unit, read, sink))
    }

    fn exec<'a>(&'a self, exec: Exec<'a>) -> BoxFuture<'a, Result<i32, ApiError>> {
        Box::pin(self.run_beside(exec))
    }

    fn signal<'a>(&'a self, unit: &'a Unit, signal: Signal) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move { self.signal_main(unit, signal) })
    }

    fn remove<'a>(&'a self, unit: &'a Unit) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let folder = self.folders.of(unit);
            if let Seen::Running { .. } = look(&folder)? {
                return Err(Fault::transient(format!("{unit} still runs")));
            }
            folder.remove()
        })
    }
}

/// A failed access to a folder, as the task's user reads it.
fn cannot(what: &str, path: &std::path::Path, error: &io::Error) -> Fault {
    Fault::transient(format!("cannot {what} {}: {}", path.display(), durable::text(error)))
}
