//! What runtimes say of the output of containers, and of commands that are run in them.

use prost::bytes::Bytes;
use quorate_model::ContainerSpec;
use quorate_wire::agent::ExecOrder;
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::mpsc;

use super::Unit;
use crate::step::Fault;

/// The most bytes of one piece of a line.
pub const MOST_PIECE: usize = 16 * 1024;

/// A piece of a container's output: a line, or a part of one that is too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written: seconds and nanoseconds since 1970.
    pub time: (i64, i32),
    /// Whether it was written to standard error.
    pub stderr: bool,
    /// At most [`MOST_PIECE`] bytes, without the end of the line.
    pub data: Bytes,
    /// Whether the line goes on in the next piece of its stream.
    pub unfinished: bool,
    /// Position after it; only its runtime reads it.
    pub cursor: String,
}

/// What comes when a log is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// A piece of output.
    Line(LogLine),
    /// Something that the reader should know.
    Notice(String),
}

/// Which part of a log is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogRead {
    /// Go on after this position; empty = from the oldest line that there is.
    pub cursor: String,
    /// Wait for more until the container does not run.
    pub follow: bool,
    /// What was written before then need not be read, in seconds since 1970; it may come all the same.
    pub since: i64,
}

/// What the caller of a command says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInput {
    /// Standard input.
    Stdin(Bytes),
    /// No more standard input.
    StdinClosed,
    /// Rows and columns of the terminal.
    Resize(u16, u16),
    /// A signal for the command.
    Signal(nix::sys::signal::Signal),
}

/// What a command says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecOutput {
    /// It runs.
    Started,
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
}

/// A command to run in a container, with what its caller says and hears. When `input` ends the caller is gone, and the
/// command is ended.
#[derive(Debug)]
pub struct Exec<'a> {
    /// The container.
    pub unit: &'a Unit,
    /// What it was made of.
    pub spec: &'a ContainerSpec,
    /// The command.
    pub order: ExecOrder,
    /// From the caller.
    pub input: mpsc::Receiver<ExecInput>,
    /// To the caller.
    pub output: mpsc::Sender<ExecOutput>,
}

/// The container is not there, or does not run.
pub(crate) fn not_running(unit: &Unit) -> ApiError {
    let text = format!("task {} does not run on this node at the moment", unit.task);
    ApiError::new(Reason::TaskNotRunning, text)
}

/// A log that cannot be had.
pub(crate) fn no_log(unit: &Unit) -> ApiError {
    let text =
        format!("task {} has no output on this node: it was not started here yet, or is removed", unit.task);
    ApiError::new(Reason::LogNotFound, text)
}

/// A cursor that this runtime did not write.
pub(crate) fn bad_cursor(cursor: &str) -> ApiError {
    let text = format!("log position {cursor:?} is none of this task's log: read without it");
    ApiError::new(Reason::ArgumentInvalid, text)
}

/// What a runtime's failure means to who asked.
pub(crate) fn failed(fault: &Fault) -> ApiError {
    ApiError::new(Reason::AgentUnreachable, fault.message.clone())
}

/// What this runtime cannot do.
pub(crate) fn unsupported(what: &str) -> ApiError {
    ApiError::new(Reason::Unsupported, what)
}
