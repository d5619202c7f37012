//! Commands in containers, signals for them, and digests of images.
//!
//! The engine has no call that ends a command. Where the agent shares the machine with the engine it signals the
//! command's process itself; elsewhere a command whose caller is gone is left its closed input only.

use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, ResizeExecOptions, StartExecResults};
use bollard::query_parameters::KillContainerOptionsBuilder;
use futures::StreamExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prost::bytes::Bytes;
use quorate_wire::agent::ExecOrder;
use quorate_wire::status::{ApiError, Reason};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::auth::{self, Login};
use super::fault::{Trouble, is_status};
use super::{DockerRuntime, look};
use crate::runtime::Unit;
use crate::runtime::streams::{Exec, ExecInput, ExecOutput, failed, not_running};
use crate::step::Seen;

/// Between SIGHUP and SIGKILL, when the caller is gone.
const GRACE: Duration = Duration::from_secs(5);
/// The longest that a registry may take to say what a reference stands for.
const RESOLVE: Duration = Duration::from_secs(5);
/// Between looks at a command whose streams have ended, and how many there are.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 40;
/// Exit codes of the engine for a command that it could not run.
const NOT_RUN: [i64; 2] = [126, 127];
/// How the engine's word on such a command begins.
const NOT_RUN_TEXT: &str = "OCI runtime exec failed";

impl DockerRuntime {
    pub(super) async fn signal_main(&self, unit: &Unit, signal: Signal) -> Result<(), ApiError> {
        let engine = self.engine().await.map_err(|fault| failed(&fault))?;
        let options = KillContainerOptionsBuilder::new().signal(signal.as_str()).build();
        match engine.kill_container(&unit.to_string(), Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if is_status(&error, 404) || is_status(&error, 409) => Err(not_running(unit)),
            Err(error) => Err(failed(&Trouble::Stop.fault(&error))),
        }
    }

    pub(super) async fn run_in(&self, exec: Exec<'_>) -> Result<i32, ApiError> {
        let Exec { unit, order, input, output, .. } = exec;
        let engine = self.engine().await.map_err(|fault| failed(&fault))?;
        let container = self.inspect_container(unit).await.map_err(|fault| failed(&fault))?;
        let Some(container) = container else { return Err(not_running(unit)) };
        let Ok(Seen::Running { .. }) = look::seen(&container, false) else { return Err(not_running(unit)) };
        let init = container.state.and_then(|state| state.pid).unwrap_or(0);
        let program = order.command.first().cloned().unwrap_or_default();
        let size = (order.tty && order.rows > 0 && order.columns > 0).then_some((order.rows, order.columns));
        let created = engine.create_exec(&unit.to_string(), options(order)).await;
        let id = created.map_err(|error| refused(unit, &program, &error))?.id;
        let command = Command { engine: &engine, id: &id, init };
        let started = engine.start_exec(&id, None).await.map_err(|error| refused(unit, &program, &error))?;
        let StartExecResults::Attached { output: heard, input: stdin } = started else {
            return Err(ApiError::new(Reason::ExecFailed, "the engine gave the command no streams"));
        };
        if let Some((rows, columns)) = size {
            command.resize(cells(rows), cells(columns)).await;
        }
        let mut hearing = std::pin::pin!(hear(heard, &output));
        let first = {
            let mut speaking = std::pin::pin!(speak(&command, input, stdin));
            tokio::select! {
                first = &mut hearing => Some(first),
                () = &mut speaking => None,
            }
        };
        let first = match first {
            Some(first) => first,
            None => {
                // The caller is gone.
                command.signal(Signal::SIGHUP).await;
                match tokio::time::timeout(GRACE, &mut hearing).await {
                    Ok(first) => first,
                    Err(_) => {
                        command.signal(Signal::SIGKILL).await;
                        tokio::time::timeout(GRACE, &mut hearing).await.unwrap_or_default()
                    }
                }
            }
        };
        let code = command.exit_code().await.map_err(|error| refused(unit, &program, &error))?;
        let code = code.ok_or_else(|| {
            let text = format!("the engine broke off with {program}, which may still run in the container");
            ApiError::new(Reason::AgentUnreachable, text)
        })?;
        if let Some(text) = first {
            if NOT_RUN.contains(&code) {
                return Err(ApiError::new(
                    Reason::ExecFailed,
                    format!("cannot run {program}: {}", text.trim()),
                ));
            }
            let _gone = output.send(ExecOutput::Started).await;
            let _gone = output.send(ExecOutput::Stdout(Bytes::from(text))).await;
        }
        Ok(i32::try_from(code).unwrap_or(-1))
    }

    /// What a reference stands for, by the image on the node or by its registry.
    pub(super) async fn digest_of(&self, image: &str) -> Result<String, ApiError> {
        let engine = self.engine().await.map_err(|fault| failed(&fault))?;
        match engine.inspect_image(image).await {
            Ok(found) => {
                return Ok(known_digest(image, &found.repo_digests.unwrap_or_default()));
            }
            Err(error) if is_status(&error, 404) => {}
            Err(error) => return Err(failed(&Trouble::Pull(image).fault(&error))),
        }
        let login = auth::find(self.config.auth_file.as_deref(), image, &self.host().index);
        let credentials = match login.map_err(|fault| failed(&fault))? {
            Login::Known(credentials) => Some(credentials),
            Login::Anonymous | Login::Helper { .. } => None,
        };
        let asked = tokio::time::timeout(RESOLVE, engine.inspect_registry_image(image, credentials)).await;
        let late = || {
            ApiError::new(
                Reason::AgentUnreachable,
                format!("the registry of {image} did not answer within 5s"),
            )
        };
        let found =
            asked.map_err(|_| late())?.map_err(|error| failed(&Trouble::Pull(image).fault(&error)))?;
        found.descriptor.digest.ok_or_else(|| {
            ApiError::new(Reason::AgentUnreachable, format!("the registry of {image} names no digest"))
        })
    }
}

fn options(order: ExecOrder) -> CreateExecOptions<String> {
    let some = |text: String| (!text.is_empty()).then_some(text);
    CreateExecOptions {
        attach_stdin: Some(order.stdin),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(order.tty),
        env: Some(order.env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()),
        cmd: Some(order.command),
        user: some(order.user),
        working_dir: some(order.workdir),
        ..CreateExecOptions::default()
    }
}

fn refused(unit: &Unit, program: &str, error: &bollard::errors::Error) -> ApiError {
    if is_status(error, 404) || is_status(error, 409) {
        return not_running(unit);
    }
    let fault = Trouble::Inspect.fault(error);
    if is_status(error, 400) || is_status(error, 500) {
        return ApiError::new(Reason::ExecFailed, format!("cannot run {program}: {}", fault.message));
    }
    failed(&fault)
}

fn cells(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// A command that the engine runs.
struct Command<'a> {
    engine: &'a Docker,
    id: &'a str,
    /// The container's main process, as the engine's machine numbers it.
    init: i64,
}

impl Command<'_> {
    async fn resize(&self, rows: u16, columns: u16) {
        // A command that has ended has no terminal.
        let _ = self.engine.resize_exec(self.id, ResizeExecOptions { height: rows, width: columns }).await;
    }

    /// `None` when it still runs. Its streams may end an instant before it does.
    async fn exit_code(&self) -> Result<Option<i64>, bollard::errors::Error> {
        for _ in 0..LOOKS {
            let inspected = self.engine.inspect_exec(self.id).await?;
            if inspected.running != Some(true) {
                return Ok(Some(inspected.exit_code.unwrap_or(-1)));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(None)
    }

    async fn signal(&self, signal: Signal) {
        let Ok(inspected) = self.engine.inspect_exec(self.id).await else { return };
        if inspected.running != Some(true) {
            return;
        }
        let sent = inspected
            .pid
            .filter(|pid| self.is_here(*pid))
            .and_then(|pid| kill(Pid::from_raw(i32::try_from(pid).ok()?), signal).ok());
        if sent.is_none() {
            tracing::warn!(exec = self.id, %signal, "the engine's processes cannot be signalled from here");
        }
    }

    /// Whether the number means the same process here: it shares the container's namespace of processes, and that is
    /// not ours.
    fn is_here(&self, pid: i64) -> bool {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let its = namespace(&pid.to_string());
        its.is_some() && its == namespace(&self.init.to_string()) && its != namespace("self")
    }
}

/// Passes on what the caller says; returns when it is gone.
async fn speak(command: &Command<'_>, mut input: mpsc::Receiver<ExecInput>, stdin: impl AsyncWrite) {
    let mut stdin = std::pin::pin!(stdin);
    while let Some(said) = input.recv().await {
        match said {
            ExecInput::Stdin(bytes) => {
                // A command that reads no more may go on all the same.
                let _ = stdin.write_all(&bytes).await;
                let _ = stdin.flush().await;
            }
            ExecInput::StdinClosed => {
                let _ = stdin.shutdown().await;
            }
            ExecInput::Resize(rows, columns) => command.resize(rows, columns).await,
            ExecInput::Signal(signal) => command.signal(signal).await,
        }
    }
}

/// Passes on what the command says. Its first word is given back instead, if it looks like the engine's on a command
/// that it cannot run.
async fn hear(
    mut heard: impl futures::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin,
    output: &mpsc::Sender<ExecOutput>,
) -> Option<String> {
    let mut started = false;
    let mut held: Option<String> = None;
    loop {
        let said = match (started, held.is_some()) {
            (false, false) => match tokio::time::timeout(BEGIN, heard.next()).await {
                Ok(said) => said,
                Err(_) => {
                    started = true;
                    let _gone = output.send(ExecOutput::Started).await;
                    continue;
                }
            },
            _ => heard.next().await,
        };
        let Some(Ok(said)) = said else {
            if held.is_none() && !started {
                let _gone = output.send(ExecOutput::Started).await;
            }
            return held;
        };
        let (stderr, bytes) = match said {
            LogOutput::StdErr { message } => (true, message),
            LogOutput::StdOut { message } | LogOutput::Console { message } => (false, message),
            LogOutput::StdIn { .. } => continue,
        };
        if !started && held.is_none() && bytes.starts_with(NOT_RUN_TEXT.as_bytes()) {
            held = Some(String::from_utf8_lossy(&bytes).into_owned());
            continue;
        }
        if !std::mem::replace(&mut started, true) {
            let _gone = output.send(ExecOutput::Started).await;
        }
        if let Some(text) = held.take() {
            let _gone = output.send(ExecOutput::Stdout(Bytes::from(text))).await;
        }
        let _gone =
            output.send(if stderr { ExecOutput::Stderr(bytes) } else { ExecOutput::Stdout(bytes) }).await;
    }
}

/// How long a command may say nothing before it counts as started: a failed start is told sooner.
const BEGIN: Duration = Duration::from_millis(300);

/// The digest by which the reference's own repository knows an image; empty when it does not know it. An image may have
/// names in several repositories, each with a digest of its own.
fn known_digest(image: &str, digests: &[String]) -> String {
    let repository = match image.rsplit_once(':') {
        // A colon before a slash belongs to a registry's port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    };
    let own = |name: &&String| name.split_once('@').is_some_and(|(other, _)| other == repository);
    let digest = digests.iter().find(own).and_then(|name| name.split_once('@'));
    digest.map(|(_, digest)| digest.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_references_own_repository() {
        let digests =
            ["other/web@sha256:1", "127.0.0.1:5000/web@sha256:2", "web@sha256:3"].map(str::to_owned);
        assert_eq!(known_digest("web:1", &digests), "sha256:3");
        assert_eq!(known_digest("web", &digests), "sha256:3");
        assert_eq!(known_digest("127.0.0.1:5000/web", &digests), "sha256:2");
        assert_eq!(known_digest("127.0.0.1:5000/web:7", &digests), "sha256:2");
        assert_eq!(known_digest("third/web:1", &digests), "");
        assert_eq!(known_digest("web:1", &[]), "");
    }
}
