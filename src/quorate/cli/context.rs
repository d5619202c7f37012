//! What every verb needs: the client, the flags, and where to print.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use quorate_base::{Clock, Timestamp};
use quorate_client::{Client, Options};
use quorate_model::Name;
use quorate_wire::common;
use serde::Serialize;

use super::args::{Consistency, Global, Output};
use crate::failure::Failure;

/// The time of a command that waits for tasks, unless told.
const WAITING: Duration = Duration::from_secs(300);

/// The surroundings of a verb.
pub(crate) struct Context {
    /// The managers.
    pub(crate) client: Client,
    /// The flags.
    pub(crate) global: Global,
    /// The namespace of the command line, checked.
    pub(crate) namespace: Option<Name>,
    /// The clock.
    pub(crate) clock: Clock,
}

/// A job as the API names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobKey {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

impl Context {
    /// Must be called within a runtime.
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let defaults = Options::default();
        let deadline = global.timeout.map_or(defaults.deadline, |timeout| timeout.min(defaults.deadline));
        let options = Options { security: global.security.clone().unwrap_or_default(), deadline, ..defaults };
        let managers: Vec<String> =
            global.managers.iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
        let client = Client::new(&managers, options)?;
        let namespace = global.namespace.as_deref().map(|text| name("--namespace", text)).transpose()?;
        Ok(Self { client, global, namespace, clock: Clock::system() })
    }

    /// How fresh reads must be.
    pub(crate) fn read(&self) -> Option<common::ReadOptions> {
        Some(read_options(self.global.consistency))
    }

    /// The job that `text` names: `NAME` or `NAMESPACE/NAME`.
    pub(crate) fn job(&self, text: &str) -> Result<JobKey, Failure> {
        job_key(text, self.namespace.as_ref())
    }

    /// Namespace of lists: the one of the command line, else all.
    pub(crate) fn listed_namespace(&self) -> String {
        self.namespace.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// The request id of the command line for a verb that writes `writes` times.
    pub(crate) fn request_id(&self, writes: usize) -> Result<String, Failure> {
        match &self.global.request_id {
            Some(_) if writes > 1 => {
                let message = format!(
                    "--request-id names one write, and this command makes {writes}: run it once for each"
                );
                Err(Failure::new(2, message))
            }
            given => Ok(given.clone().unwrap_or_default()),
        }
    }

    /// The time for waiting.
    pub(crate) fn patience(&self) -> Duration {
        self.global.timeout.unwrap_or(WAITING)
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.global.output == Output::Json
    }

    /// Prints an answer as JSON, or `text` of it.
    pub(crate) fn answer<T: Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.json() { print_json(answer) } else { print(&text()) }
    }

    /// Asks on the terminal; anything but yes is no.
    pub(crate) fn confirm(&self, question: &str) -> Result<bool, Failure> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::new(2, format!("{question} This is no terminal to answer on: add --yes")));
        }
        let _ = write!(io::stderr(), "{question} [y/N] ");
        let mut line = String::new();
        io::stdin()
            .read_line(&mut line)
            .map_err(|error| Failure::new(1, format!("the answer cannot be read: {error}")))?;
        Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Reads as fresh as asked for.
pub(crate) fn read_options(consistency: Consistency) -> common::ReadOptions {
    let consistency = match consistency {
        Consistency::Linearizable => common::Consistency::Linearizable,
        Consistency::Stale => common::Consistency::Stale,
    };
    common::ReadOptions { consistency: consistency.into(), ..common::ReadOptions::default() }
}

fn name(what: &str, text: &str) -> Result<Name, Failure> {
    Name::parse(what, text).map_err(|invalid| Failure::new(5, invalid.to_string()))
}

fn job_key(text: &str, namespace: Option<&Name>) -> Result<JobKey, Failure> {
    let (space, job) = match text.split_once('/') {
        Some((space, job)) => (name("namespace", space)?, job),
        None => (namespace.cloned().unwrap_or_else(Name::default_namespace), text),
    };
    if namespace.is_some_and(|asked| *asked != space) {
        let message = format!("{text} and --namespace contradict each other: give one of them");
        return Err(Failure::new(5, message));
    }
    let job = name("job", job)?;
    Ok(JobKey { namespace: space.to_string(), name: job.to_string() })
}

/// Prints to standard output, with a line end.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}

/// Prints a document to standard output.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(1, format!("the answer cannot be printed as JSON: {error}")))?;
    print(&text)
}

/// Says something on standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_with_or_without_their_namespace() {
        let shop: Name = "shop".parse().unwrap();
        let key = |namespace: &str, name: &str| JobKey { namespace: namespace.into(), name: name.into() };
        assert_eq!(job_key("web", None).unwrap(), key("default", "web"));
        assert_eq!(job_key("web", Some(&shop)).unwrap(), key("shop", "web"));
        assert_eq!(job_key("shop/web", Some(&shop)).unwrap(), key("shop", "web"));
        for bad in ["", "Web", "a/b/c", "/web", "dev/web"] {
            assert_eq!(job_key(bad, Some(&shop)).unwrap_err().exit, 5, "{bad}");
        }
    }
}
