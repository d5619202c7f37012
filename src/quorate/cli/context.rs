//! What every verb needs: the client, the flags, and where to print.

use std::sync::Mutex;
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Clock, Timestamp};
use quorate_client::{Client, Options};
use quorate_model::Name;
use quorate_pki::Security;
use quorate_wire::common::{self, duration};
use serde::Serialize;

use super::args::{Consistency, Global, Output};
use super::contexts::Contexts;
use super::print::Printer;
pub(super) use super::print::{print, say};
use crate::failure::Failure;

/// Where a manager is looked for, unless told.
const HOME: &str = "127.0.0.1:7420";

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
    /// Where and how results go.
    pub(super) printer: Printer,
    /// From the last answer: later reads reflect at least that one.
    session: Mutex<String>,
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
        bounds(&global)?;
        let saved = Contexts::load()?.choose(global.context.as_deref())?;
        let defaults = Options::default();
        let deadline = global.timeout.map_or(defaults.deadline, |timeout| timeout.min(defaults.deadline));
        let security = match (&global.security, &saved.security) {
            (Some(given), _) => given.clone(),
            (None, Some(saved)) => {
                saved.parse::<Security>().map_err(|error| Failure::new(5, error.to_string()))?
            }
            (None, None) => Security::default(),
        };
        let options = Options { security, deadline, ..defaults };
        let client = Client::new(&managers(&global.managers, saved.managers), options)?;
        let namespace = global.namespace.clone().or(saved.namespace);
        let namespace = namespace.as_deref().map(|text| name("--namespace", text)).transpose()?;
        let printer = Printer::new(&global);
        Ok(Self { client, global, namespace, clock: Clock::system(), printer, session: Mutex::default() })
    }

    /// How fresh reads must be.
    pub(crate) fn read(&self) -> Option<common::ReadOptions> {
        let consistency = match self.global.consistency {
            Consistency::Linearizable => common::Consistency::Linearizable,
            Consistency::Stale => common::Consistency::Stale,
            Consistency::Bounded => common::Consistency::Bounded,
        };
        Some(common::ReadOptions {
            consistency: consistency.into(),
            min_revision: self.global.min_revision.unwrap_or(0),
            max_staleness: self.global.max_staleness.map(duration),
            session_token: lock(&self.session).clone(),
        })
    }

    /// Remembers an answer, so that later reads of this command do not fall behind it.
    pub(crate) fn saw(&self, meta: Option<&common::ResponseMeta>) {
        if let Some(meta) = meta.filter(|meta| !meta.session_token.is_empty()) {
            lock(&self.session).clone_from(&meta.session_token);
        }
    }

    /// The job that `text` names: `NAME` or `NAMESPACE/NAME`.
    pub(crate) fn job(&self, text: &str) -> Result<JobKey, Failure> {
        job_key(text, self.namespace.as_ref())
    }

    /// A task as the API names it: an id, or a slot of a job in the namespace of the command line.
    pub(crate) fn task(&self, text: &str) -> Result<String, Failure> {
        let Some((job, slot)) = text.split_once('[') else { return Ok(text.to_owned()) };
        let JobKey { namespace, name } = self.job(job)?;
        Ok(format!("{namespace}/{name}[{slot}"))
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

    /// Whether results are documents, for programs.
    pub(crate) fn json(&self) -> bool {
        self.global.output().is_document()
    }

    /// Whether only names are printed.
    pub(crate) fn names_only(&self) -> bool {
        self.global.output() == Output::Name
    }

    /// Prints the answer to a write: as a document, or the object's name, or `text`.
    pub(crate) fn written<T: Serialize>(
        &self,
        answer: &T,
        name: &str,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match () {
            () if self.json() => self.printer.document(answer),
            () if self.names_only() => print(name),
            () => print(&text()),
        }
    }
}

/// The managers by flag or environment, else those of the context, else one on this machine.
fn managers(given: &[String], saved: Vec<String>) -> Vec<String> {
    let chosen = match (given.is_empty(), saved.is_empty()) {
        (false, _) => given.to_vec(),
        (true, false) => saved,
        (true, true) => vec![HOME.to_owned()],
    };
    chosen.iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

/// A client for completion, which knows of the line only what it found there itself.
///
/// # Errors
/// There is nothing that could be asked.
pub(super) fn quick_client(
    context: Option<&str>,
    given: &[String],
    deadline: Duration,
) -> Result<Client, Failure> {
    let saved = Contexts::load()?.choose(context)?;
    let security = saved.security.and_then(|text| text.parse().ok()).unwrap_or_default();
    let options = Options { security, deadline, ..Options::default() };
    Ok(Client::new(&managers(given, saved.managers), options)?)
}

/// Whether the flags about freshness go together.
fn bounds(global: &Global) -> Result<(), Failure> {
    let bounded = global.min_revision.is_some() || global.max_staleness.is_some();
    if global.consistency == Consistency::Bounded && !bounded {
        let message = "--consistency bounded needs --min-revision or --max-staleness";
        return Err(Failure::new(2, message));
    }
    Ok(())
}

/// Stale reads.
pub(crate) fn stale() -> Option<common::ReadOptions> {
    Some(common::ReadOptions {
        consistency: common::Consistency::Stale.into(),
        ..common::ReadOptions::default()
    })
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
