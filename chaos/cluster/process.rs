//! One process of ours: its own process group, its output in a file, gone when its owner is gone.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::wait::{Look, until};

/// How to start a process.
#[derive(Clone, Debug)]
pub struct Program {
    /// Named in messages.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Receives standard output and standard error, appended.
    pub log: PathBuf,
}

/// A program and, while it runs, its process.
#[derive(Debug)]
pub struct Process {
    program: Program,
    child: Option<Child>,
}

impl Process {
    /// A program that does not run yet.
    pub const fn new(program: Program) -> Self {
        Self { program, child: None }
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Starts it.
    ///
    /// Call it on a thread that lives as long as the harness: the kernel kills the process when that thread ends, so
    /// that a killed harness leaves nothing behind.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start(&mut self) -> Result<u32> {
        let program = &self.program;
        if self.child.is_some() {
            bail!("{} runs already", program.name);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&program.log)
            .with_context(|| format!("cannot write the log {}", program.log.display()))?;
        let child = die_with_us(&program.path)
            .args(&program.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {} ({})", program.name, program.path.display()))?;
        let pid = child.id();
        self.child = Some(child);
        Ok(pid)
    }

    /// Its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends a signal, without waiting for what it does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.program.name))?;
        signal::kill(Pid::from_raw(i32::try_from(pid)?), signal)
            .with_context(|| format!("cannot send {signal} to {}", self.program.name))
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it does not run, or runs on for longer than `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let name = self.program.name.clone();
        let child = self.child.as_mut().with_context(|| format!("{name} does not run"))?;
        let status = until(&format!("the end of {name}"), limit, async || {
            Ok(child.try_wait()?.map_or_else(|| Look::NotYet("it still runs".to_owned()), Look::Done))
        })
        .await?;
        self.child = None;
        Ok(status)
    }

    /// Asks it to end and waits; kills it when it does not end within `limit`.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn stop(&mut self, limit: Duration) -> Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        self.signal(Signal::SIGTERM)?;
        if self.ended(limit).await.is_err() {
            self.signal(Signal::SIGKILL)?;
            self.ended(limit).await?;
        }
        Ok(())
    }

    /// The process must run: a dead one is an error with the end of its log.
    ///
    /// # Errors
    /// When it has ended by itself.
    pub fn must_run(&mut self) -> Result<()> {
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let Some(status) = child.try_wait()? else { return Ok(()) };
        self.child = None;
        bail!(
            "{} ended by itself ({}); the end of its log:\n{}",
            self.program.name,
            in_words(status),
            self.log_tail(12)
        );
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.program.log, lines)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut() {
            // Only a process that is gone already refuses: nothing is left to do then.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A command that the kernel kills together with the harness, where `setpriv` (util-linux) is there to ask for it.
fn die_with_us(path: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if setpriv.exists() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(path);
        command
    } else {
        Command::new(path)
    }
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(number)) => format!("signal {number}"),
        (None, None) => "unknown status".to_owned(),
    }
}

/// The last lines of a text file; empty when it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(folder: &TempDir, script: &str) -> Process {
        Process::new(Program {
            name: "shell".to_owned(),
            path: PathBuf::from("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            log: folder.path().join("log"),
        })
    }

    #[tokio::test]
    async fn a_process_that_ends_by_itself_is_reported_with_its_log() {
        let folder = TempDir::new().unwrap();
        let mut process = shell(&folder, "echo port in use; exit 3");
        process.start().unwrap();
        let error = until("the end", LIMIT, async || {
            Ok(process.must_run().err().map_or(Look::NotYet(String::new()), Look::Done))
        })
        .await
        .unwrap();
        assert_eq!(
            error.to_string(),
            "shell ended by itself (exit code 3); the end of its log:\nport in use"
        );
        assert!(process.pid().is_none());
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_request_to_end_is_killed() {
        let folder = TempDir::new().unwrap();
        let mut process = shell(&folder, "trap '' TERM; echo ready; while :; do sleep 1; done");
        process.start().unwrap();
        until("its start", LIMIT, async || {
            Ok(if process.log_tail(1) == "ready" { Look::Done(()) } else { Look::NotYet(String::new()) })
        })
        .await
        .unwrap();
        process.stop(Duration::from_millis(50)).await.unwrap();
        assert!(process.pid().is_none());
    }

    #[tokio::test]
    async fn dropping_the_owner_kills_the_process() {
        let folder = TempDir::new().unwrap();
        let mut process = shell(&folder, "sleep 1000");
        let pid = process.start().unwrap();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[tokio::test]
    async fn a_running_process_is_not_started_twice() {
        let folder = TempDir::new().unwrap();
        let mut process = shell(&folder, "sleep 1000");
        process.start().unwrap();
        assert_eq!(process.start().unwrap_err().to_string(), "shell runs already");
    }
}
