//! Output of simulated containers, and commands that echo.

use nix::sys::signal::Signal;
use prost::bytes::Bytes;
use quorate_base::Timestamp;
use quorate_base::sync::lock;
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::mpsc;

use super::{Fake, FakeRuntime, FakeStore, State};
use crate::runtime::Unit;
use crate::runtime::streams::{
    Exec, ExecInput, ExecOutput, LogItem, LogLine, LogRead, bad_cursor, no_log, not_running,
};
use crate::step::{Cause, Exit};

/// Lines that a container keeps.
const MOST_LINES: usize = 10_000;

/// A line of a simulated container.
#[derive(Debug, Clone)]
pub(super) struct Written {
    at: Timestamp,
    stderr: bool,
    text: String,
}

impl Fake {
    pub(super) fn write(&mut self, at: Timestamp, stderr: bool, text: &str) {
        if self.output.len() < MOST_LINES {
            self.output.push(Written { at, stderr, text: text.to_owned() });
        }
    }
}

impl FakeStore {
    /// Lets a container write a line. Beyond a bound it writes no more.
    pub fn write(&self, unit: &Unit, at: Timestamp, stderr: bool, text: &str) {
        if let Some(fake) = lock(&self.0.containers).get_mut(unit) {
            fake.write(at, stderr, text);
        }
        self.0.changed.notify_waiters();
    }

    /// Signals that a container got, other than those of its stop.
    #[must_use]
    pub fn signals(&self, unit: &Unit) -> Vec<Signal> {
        lock(&self.0.containers).get(unit).map(|fake| fake.signals.clone()).unwrap_or_default()
    }
}

impl FakeRuntime {
    pub(super) async fn read_logs(
        &self,
        unit: &Unit,
        read: &LogRead,
        sink: &mpsc::Sender<LogItem>,
    ) -> Result<(), ApiError> {
        let mut next = match read.cursor.as_str() {
            "" => 0,
            cursor => {
                let position = cursor.strip_prefix('f').and_then(|text| text.parse::<usize>().ok());
                position.ok_or_else(|| bad_cursor(cursor))?
            }
        };
        loop {
            let mut changed = std::pin::pin!(self.store.0.changed.notified());
            changed.as_mut().enable();
            let (written, runs) = {
                let mut containers = lock(&self.store.0.containers);
                let fake = containers.get_mut(unit).ok_or_else(|| no_log(unit))?;
                fake.settle(&self.clock);
                let written: Vec<Written> = fake.output.iter().skip(next).cloned().collect();
                (written, matches!(fake.state, State::Running { .. }))
            };
            for Written { at, stderr, text } in written {
                next += 1;
                let (seconds, millis) = (at.as_millis() / 1_000, at.as_millis() % 1_000);
                let nanos = i32::try_from(millis).unwrap_or(0) * 1_000_000;
                let line = LogLine {
                    time: (i64::try_from(seconds).unwrap_or(i64::MAX), nanos),
                    stderr,
                    data: Bytes::from(text),
                    unfinished: false,
                    cursor: format!("f{next}"),
                };
                if sink.send(LogItem::Line(line)).await.is_err() {
                    return Ok(());
                }
            }
            if !read.follow || !runs {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                _ = self.wait_for_end(unit) => {}
                () = sink.closed() => return Ok(()),
            }
        }
    }

    pub(super) fn note_signal(&self, unit: &Unit, signal: Signal) -> Result<(), ApiError> {
        let mut done = false;
        self.store.with(&self.clock, unit, |fake| {
            done = matches!(fake.state, State::Running { .. });
            if done {
                fake.signals.push(signal);
                if let Signal::SIGKILL | Signal::SIGTERM = signal {
                    let number = signal as i32;
                    let cause = Cause::Signal(number);
                    fake.state = State::Exited(Exit { code: Some(128 + number), cause, ..Exit::default() });
                }
            }
        });
        if done { Ok(()) } else { Err(not_running(unit)) }
    }

    /// `exit N` ends with N; any other command is told, and so is standard input until it ends. Signals end it.
    pub(super) async fn echo(&self, exec: Exec<'_>) -> Result<i32, ApiError> {
        let Exec { unit, order, mut input, output, .. } = exec;
        if !matches!(self.store.with_quietly(&self.clock, unit), crate::step::Seen::Running { .. }) {
            return Err(not_running(unit));
        }
        let [program, ..] = order.command.as_slice() else {
            return Err(ApiError::new(Reason::ExecFailed, "the command is empty"));
        };
        if program == "missing" {
            return Err(ApiError::new(Reason::ExecFailed, "cannot run missing: no such program"));
        }
        let _gone = output.send(ExecOutput::Started).await;
        if let [word, code] = order.command.as_slice()
            && word == "exit"
        {
            return Ok(code.parse().unwrap_or(-1));
        }
        let told = format!("{}\n", order.command.join(" "));
        let _gone = output.send(ExecOutput::Stdout(Bytes::from(told))).await;
        if !order.stdin {
            return Ok(0);
        }
        loop {
            match input.recv().await {
                Some(ExecInput::Stdin(bytes)) => {
                    let _gone = output.send(ExecOutput::Stdout(bytes)).await;
                }
                Some(ExecInput::Resize(rows, columns)) => {
                    let told = format!("{rows}x{columns}\n");
                    let _gone = output.send(ExecOutput::Stderr(Bytes::from(told))).await;
                }
                Some(ExecInput::Signal(signal)) => return Ok(128 + signal as i32),
                Some(ExecInput::StdinClosed) => return Ok(0),
                None => {
                    self.store.write(unit, self.clock.now(), true, "command ended by hangup");
                    return Ok(128 + Signal::SIGHUP as i32);
                }
            }
        }
    }
}
