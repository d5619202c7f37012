//! Where log lines go and how they look.
//!
//! One line per event on standard error: readable text on a terminal, one JSON object per line otherwise. A library
//! emits events with `tracing` and knows nothing of this; the executable calls [`init`] once.

mod journal;
mod json;
mod ring;

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::time::Clock;
use quorate_base::{OnError, TaskFailure};
use thiserror::Error;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: time, name, level, target, message, fields; coloured on a terminal unless `NO_COLOR` is set.
    Text,
    /// For machines: one object with `ts level target msg`, the process's name, and every field of the event and of the
    /// spans around it.
    Json,
    /// Text when standard error is a terminal, JSON otherwise.
    #[default]
    Auto,
}

impl FromStr for Format {
    type Err = LogError;

    fn from_str(text: &str) -> Result<Self, LogError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "auto" => Ok(Self::Auto),
            _ => Err(LogError::Format { text: text.to_owned() }),
        }
    }
}

/// Who logs: a field of every JSON line, a word of every text line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A manager, by name: field `manager`.
    Manager(String),
    /// An agent, by its node's name: field `node`.
    Node(String),
    /// A command line: no field.
    Anonymous,
}

impl Identity {
    fn field(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Manager(name) => Some(("manager", name)),
            Self::Node(name) => Some(("node", name)),
            Self::Anonymous => None,
        }
    }
}

/// What to log and how.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A level (`error warn info debug trace off`), or `target=level` pairs, separated by commas:
    /// `info,quorate_raft=debug`. The most specific one counts.
    pub filter: String,
    /// How a line looks.
    pub format: Format,
    /// Who logs.
    pub identity: Identity,
}

/// Why logging could not be set up or changed.
#[derive(Debug, Error)]
pub enum LogError {
    /// A filter that means nothing.
    #[error(
        "log filter {filter:?}: {reason}; write a level (error, warn, info, debug, trace, off) or target=level pairs, \
         like info,quorate_raft=debug"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A format that we do not know.
    #[error("log format {text:?} is unknown; use text, json or auto")]
    Format {
        /// As given.
        text: String,
    },
    /// Something else logs already.
    #[error("logging is already set up in this process ({reason}); set it up once, at the start")]
    AlreadySet {
        /// What the subscriber said.
        reason: String,
    },
    /// The subscriber is gone.
    #[error("the log filter cannot be changed: {reason}")]
    Reload {
        /// What the subscriber said.
        reason: String,
    },
}

/// Changes what is logged while the process runs, and has the newest lines. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    lasting: Arc<Mutex<Lasting>>,
    ring: ring::Ring,
    clock: Clock,
}

/// The filter that lasts.
#[derive(Debug)]
struct Lasting {
    filter: String,
    /// Counts the changes.
    change: u64,
}

/// A filter that is to be taken back: [`LogHandle::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan(u64);

impl LogHandle {
    /// Replaces the filter, for all threads at once.
    ///
    /// # Errors
    /// [`LogError::Filter`] when the filter means nothing; the old one stays.
    pub fn set_filter(&self, filter: &str) -> Result<(), LogError> {
        let mut lasting = lock(&self.lasting);
        self.reload(filter)?;
        filter.clone_into(&mut lasting.filter);
        lasting.change += 1;
        Ok(())
    }

    /// Replaces the filter for a while: the last one that was not lent comes back with [`LogHandle::restore`].
    ///
    /// # Errors
    /// As [`LogHandle::set_filter`].
    pub fn lend_filter(&self, filter: &str) -> Result<Loan, LogError> {
        let mut lasting = lock(&self.lasting);
        self.reload(filter)?;
        lasting.change += 1;
        Ok(Loan(lasting.change))
    }

    /// Takes a lent filter back, unless another one was set since. Returns the filter that is in force again.
    ///
    /// # Errors
    /// [`LogError::Reload`] when the subscriber is gone.
    pub fn restore(&self, loan: Loan) -> Result<Option<String>, LogError> {
        let lasting = lock(&self.lasting);
        if lasting.change != loan.0 {
            return Ok(None);
        }
        self.reload(&lasting.filter)?;
        Ok(Some(lasting.filter.clone()))
    }

    /// The filter in force.
    ///
    /// # Errors
    /// [`LogError::Reload`] when the subscriber is gone.
    pub fn filter(&self) -> Result<String, LogError> {
        self.filter
            .with_current(ToString::to_string)
            .map_err(|error| LogError::Reload { reason: error.to_string() })
    }

    /// The lines of the last `span` of time that are still in memory, oldest first: JSON, whatever the format is.
    #[must_use]
    pub fn recent(&self, span: Duration) -> String {
        self.ring.since(self.clock.now().saturating_sub(span))
    }

    fn reload(&self, filter: &str) -> Result<(), LogError> {
        self.filter
            .reload(parse_filter(filter)?)
            .map_err(|error| LogError::Reload { reason: error.to_string() })
    }
}

/// Sets up the process's logging to standard error and to memory. Call it once, first thing.
///
/// # Errors
/// [`LogError::Filter`] when the filter means nothing, [`LogError::AlreadySet`] on a second call.
pub fn init(config: LogConfig) -> Result<LogHandle, LogError> {
    let (filter, handle) = reload::Layer::new(parse_filter(&config.filter)?);
    let clock = Clock::system();
    let ring = ring::Ring::new(clock.clone());
    let terminal = io::stderr().is_terminal();
    let json = match config.format {
        Format::Text => false,
        Format::Json => true,
        Format::Auto => !terminal,
    };
    let lines: Box<dyn Layer<_> + Send + Sync> = if json {
        let both = io::stderr.and(ring.clone());
        Box::new(json::JsonLayer::new(clock.clone(), &config.identity, both))
    } else {
        let kept = json::JsonLayer::new(clock.clone(), &config.identity, ring.clone());
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let prefix = Prefix { clock: clock.clone(), identity: config.identity };
        let format = journal::Prioritised {
            inner: tracing_subscriber::fmt::format().with_timer(prefix),
            on: journal::is_connected(),
        };
        let shown =
            tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colour).event_format(format);
        Box::new(shown.and_then(kept))
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|error| LogError::AlreadySet { reason: error.to_string() })?;
    let lasting = Arc::new(Mutex::new(Lasting { filter: config.filter, change: 0 }));
    Ok(LogHandle { filter: handle, lasting, ring, clock })
}

/// The hook for a root [`quorate_base::TaskGroup`]: logs a failure that stops its group as an error, others as warnings.
pub fn log_task_failure(failure: &TaskFailure) {
    let TaskFailure { task, reason, panicked, on_error } = failure;
    match on_error {
        OnError::StopGroup => tracing::error!(task, reason, panicked, "task ended; its group stops"),
        OnError::LogOnly => tracing::warn!(task, reason, panicked, "task ended"),
    }
}

fn parse_filter(filter: &str) -> Result<EnvFilter, LogError> {
    let refuse = |reason: String| LogError::Filter { filter: filter.to_owned(), reason };
    if filter.trim().is_empty() {
        return Err(refuse("it is empty".to_owned()));
    }
    let parts: Vec<&str> = filter.split(',').map(str::trim).collect();
    // The parser takes a misspelt level for a target and then logs nothing else.
    for part in parts.iter().filter(|part| !part.contains('[')) {
        // Of `target=` it makes "everything of that target", and nothing else is logged.
        let level = part.split_once('=').map_or(*part, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(refuse(format!("{part:?} is no level")));
        }
    }
    EnvFilter::builder().parse(parts.join(",")).map_err(|error| refuse(error.to_string()))
}

/// Begins a text line: the time, then who logs.
struct Prefix {
    clock: Clock,
    identity: Identity,
}

impl FormatTime for Prefix {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{}", self.clock.now())?;
        match self.identity.field() {
            Some((_, name)) => write!(writer, " {name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for good in [
            "info",
            "OFF",
            "info,quorate_raft=debug",
            "warn, sled=error",
            "quorate[apply{kind=3}]=trace",
            "quorate[apply]",
        ] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        let table = [
            ("", "it is empty"),
            ("inof", "\"inof\" is no level"),
            ("info,quorate_raft", "\"quorate_raft\" is no level"),
            ("quorate_raft=loud", "\"quorate_raft=loud\" is no level"),
            ("quorate_raft=", "\"quorate_raft=\" is no level"),
        ];
        for (bad, reason) in table {
            let message = parse_filter(bad).unwrap_err().to_string();
            assert!(message.starts_with(&format!("log filter {bad:?}: {reason}")), "{message}");
        }
    }

    #[test]
    fn formats_are_checked() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        let message = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(message, "log format \"yaml\" is unknown; use text, json or auto");
    }
}
