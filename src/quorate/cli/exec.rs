//! `exec`

use std::io::{self, IsTerminal as _, Read as _};

use clap::Args;
use clap_complete::ArgValueCandidates;
use quorate_base::tasks::spawn_thread;
use quorate_client::{Exec, Input};
use quorate_wire::api::{ExecStart, TerminalSize, exec_request, exec_response};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::complete;
use super::context::Context;
use crate::failure::Failure;

/// Bytes of standard input per message.
const CHUNK: usize = 16 << 10;
/// Chunks of standard input that may wait.
const AHEAD: usize = 4;

/// `exec`
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Task, as an id like t42, or JOB[SLOT]
    #[arg(add = ArgValueCandidates::new(complete::tasks))]
    pub(crate) task: String,
    /// The program and its arguments, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Send standard input [default: where it is no terminal, or with a terminal for the command]
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the command a terminal [default: where standard input and output are one]
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// No terminal for the command
    #[arg(short = 'T', long, conflicts_with = "tty")]
    pub(crate) no_tty: bool,
    /// Variables for the command, as NAME=VALUE
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Who runs it: user, uid, user:group or uid:gid
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Working directory
    #[arg(short, long, value_name = "PATH")]
    pub(crate) workdir: Option<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// Runs a command in a task's container; ends with the command's exit code.
pub(super) async fn run(context: &Context, args: ExecArgs) -> Result<(), Failure> {
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if args.tty && !io::stdin().is_terminal() {
        return Err(Failure::new(2, "--tty needs a terminal as standard input: leave it out"));
    }
    let tty = args.tty || (terminal && !args.no_tty);
    let stdin = args.interactive || tty || !io::stdin().is_terminal();
    let start = ExecStart {
        task: context.task(&args.task)?,
        command: args.command,
        tty,
        size: tty.then(window),
        env: args.env.into_iter().collect(),
        user: args.user.unwrap_or_default(),
        workdir: args.workdir.unwrap_or_default(),
        stdin,
    };
    let exec = context.client.exec(start).await?;
    let _raw = if tty { Some(Raw::enter()?) } else { None };
    match converse(exec, stdin, tty).await? {
        0 => Ok(()),
        code => Err(Failure::silent(u8::try_from(code).unwrap_or(1))),
    }
}

/// Passes words on in both directions; the exit code.
async fn converse(mut exec: Exec, stdin: bool, tty: bool) -> Result<i32, Failure> {
    let input = exec.input();
    let mut typed = if stdin { Some(read_stdin()?) } else { None };
    let mut winch = signals(SignalKind::window_change())?;
    let mut interrupt = signals(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            said = exec.next() => match said? {
                Some(exec_response::Body::Stdout(bytes)) => write(&mut io::stdout().lock(), &bytes)?,
                Some(exec_response::Body::Stderr(bytes)) => write(&mut io::stderr().lock(), &bytes)?,
                Some(exec_response::Body::ExitCode(code)) => return Ok(code),
                Some(exec_response::Body::Started(_)) => {}
                None => return Err(Failure::new(1, "the command ended without an exit code")),
            },
            chunk = next(&mut typed) => match chunk {
                Some(bytes) => { input.say(exec_request::Body::Stdin(bytes.into())).await; }
                None => {
                    typed = None;
                    input.say(exec_request::Body::StdinClosed(true)).await;
                }
            },
            _ = winch.recv(), if tty => { input.say(exec_request::Body::Resize(window())).await; }
            // Without a terminal of its own the command would not hear of it.
            _ = interrupt.recv(), if !tty => interrupted(&input).await,
        }
    }
}

async fn interrupted(input: &Input) {
    input.say(exec_request::Body::Signal("SIGINT".to_owned())).await;
}

/// What was typed next; `None` at its end. Without standard input it never comes.
async fn next(typed: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}

/// Standard input, read by a thread of its own: a read that waits for a key must not keep the program from ending.
fn read_stdin() -> Result<mpsc::Receiver<Vec<u8>>, Failure> {
    let (send, typed) = mpsc::channel(AHEAD);
    let read = move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = io::stdin().read(&mut buffer) {
            let chunk = buffer.get(..count).unwrap_or_default().to_vec();
            if send.blocking_send(chunk).is_err() {
                return;
            }
        }
    };
    spawn_thread("quorate-stdin", read).map_err(|error| own(&error))?;
    Ok(typed)
}

fn signals(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| own(&error))
}

fn write(out: &mut impl io::Write, bytes: &[u8]) -> Result<(), Failure> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// This machine's own trouble.
fn own(error: &io::Error) -> Failure {
    Failure::new(1, format!("this terminal cannot be used: {error}"))
}

/// The size of this terminal.
fn window() -> TerminalSize {
    let (columns, rows) =
        terminal_size::terminal_size_of(io::stdout()).map_or((80, 24), |(width, height)| (width.0, height.0));
    TerminalSize { rows: rows.into(), columns: columns.into() }
}

/// This terminal without its own line editing; as it was when dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> Result<Self, Failure> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).map_err(|error| own(&error.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).map_err(|error| own(&error.into()))?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ignored = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(variable("A="), Ok(("A".to_owned(), String::new())));
        assert!(variable("=x").is_err() && variable("A").is_err());
    }
}
