//! Commands beside a process: with its environment, user and directory, in a group of their own.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use prost::bytes::Bytes;
use quorate_wire::status::{ApiError, Reason};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::{ProcessRuntime, look, user};
use crate::durable;
use crate::runtime::Unit;
use crate::runtime::shim::State;
use crate::runtime::streams::{Exec, ExecInput, ExecOutput, failed, not_running, unsupported};
use crate::step::Seen;

/// Between SIGHUP and SIGKILL, when the caller is gone.
const GRACE: Duration = Duration::from_secs(5);
/// How long output may still come after the end: a process that left the group may hold the pipe for ever.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;

/// Ends what is left of a group when the command is over, or is given up.
struct Group(i32);

impl Group {
    fn signal(&self, signal: Signal) {
        // A group that is gone is what is wanted.
        let _ = killpg(Pid::from_raw(self.0), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

impl ProcessRuntime {
    pub(super) fn signal_main(&self, unit: &Unit, signal: Signal) -> Result<(), ApiError> {
        let folder = self.folders.of(unit);
        let state = folder.state().map_err(|fault| failed(&fault))?;
        let (Ok(Seen::Running { .. }), Some(State::Running(process))) = (look(&folder), state) else {
            return Err(not_running(unit));
        };
        match process.signal(signal) {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_running(unit)),
            Err(errno) => {
                let text = format!("cannot send {signal} to process {}: {}", process.pid, errno.desc());
                Err(ApiError::new(Reason::ExecFailed, text))
            }
        }
    }

    /// Runs a command until it ends by itself or its caller is gone.
    pub(super) async fn run_beside(&self, exec: Exec<'_>) -> Result<i32, ApiError> {
        let Exec { unit, order, input, output, .. } = exec;
        if order.tty {
            return Err(unsupported("tasks of the process runtime give no terminal: leave the terminal out"));
        }
        let stdin = order.stdin;
        let mut child = self.spawn_beside(unit, order)?;
        let group = Group(child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(i32::MAX));
        let pipes = (child.stdout.take(), child.stderr.take());
        let stdin = child.stdin.take().filter(|_| stdin);
        let _gone = output.send(ExecOutput::Started).await;
        let copies = async {
            tokio::join!(
                copy(pipes.0, &output, ExecOutput::Stdout),
                copy(pipes.1, &output, ExecOutput::Stderr)
            )
        };
        let mut copies = std::pin::pin!(copies);
        let mut listening = Box::pin(listen(input, stdin, &group));
        let (mut copied, mut spoken) = (false, false);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                _ = &mut copies, if !copied => copied = true,
                () = &mut listening, if !spoken => {
                    spoken = true;
                    group.signal(Signal::SIGHUP);
                    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
                        break status;
                    }
                    group.signal(Signal::SIGKILL);
                }
            }
        };
        drop(listening);
        drop(group);
        if !copied {
            let _late = tokio::time::timeout(LAST_OUTPUT, copies).await;
        }
        let status = status.map_err(|error| ApiError::new(Reason::ExecFailed, durable::text(&error)))?;
        Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1))
    }

    fn spawn_beside(&self, unit: &Unit, order: quorate_wire::agent::ExecOrder) -> Result<Child, ApiError> {
        let folder = self.folders.of(unit);
        let run = folder.run().map_err(|fault| failed(&fault))?;
        let (Ok(Seen::Running { .. }), Some(run)) = (look(&folder), run) else {
            return Err(not_running(unit));
        };
        let refuse = |text: String| ApiError::new(Reason::ExecFailed, text);
        let [program, args @ ..] = order.command.as_slice() else {
            return Err(refuse("the command is empty".to_owned()));
        };
        let user = match order.user.as_str() {
            "" => run.user,
            user => Some(user::resolve(user).map_err(|fault| refuse(fault.message))?),
        };
        let workdir = match order.workdir.as_str() {
            "" => run.workdir.unwrap_or_else(|| folder.path().to_owned()),
            workdir => workdir.into(),
        };
        if let Err(error) = std::fs::read_dir(&workdir) {
            let text = durable::text(&error);
            return Err(refuse(format!(
                "cannot run {program}: working directory {}: {text}",
                workdir.display()
            )));
        }
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(&run.env).envs(&order.env).current_dir(&workdir);
        command.process_group(0).kill_on_drop(true);
        command.stdin(if order.stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command.spawn().map_err(|error| refuse(format!("cannot run {program}: {}", durable::text(&error))))
    }
}

/// Passes on what the caller says; returns when it is gone.
async fn listen(mut input: mpsc::Receiver<ExecInput>, mut stdin: Option<ChildStdin>, group: &Group) {
    while let Some(said) = input.recv().await {
        match said {
            ExecInput::Stdin(bytes) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&bytes).await.is_err()
                {
                    // The command reads no more; it may go on all the same.
                    stdin = None;
                }
            }
            ExecInput::StdinClosed => stdin = None,
            ExecInput::Signal(signal) => group.signal(signal),
            ExecInput::Resize(..) => {}
        }
    }
}

async fn copy(
    pipe: Option<impl AsyncRead + Unpin>,
    output: &mpsc::Sender<ExecOutput>,
    wrap: impl Fn(Bytes) -> ExecOutput,
) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        // Without a listener it is read all the same, so that the command does not hang.
        let _gone = output.send(wrap(Bytes::copy_from_slice(&buffer[..count]))).await;
    }
}
