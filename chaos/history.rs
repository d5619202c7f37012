//! What happened: every call with its outcome, every fault, in one file of JSON lines.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quorate_base::sync::lock;
use quorate_base::time::Mono;
use quorate_base::{Clock, RequestId};
use serde::{Deserialize, Serialize};

use crate::api::{Ack, Api, Refused};

/// What is known of a call's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Acknowledged: it took effect, once.
    Ok,
    /// Refused: it took no effect.
    Fail,
    /// Nobody said: it may have taken effect, or may still.
    Unknown,
}

impl Outcome {
    /// What is known once the same request was sent again: it has one effect, so one acknowledgement is enough.
    pub fn with(self, again: Self) -> Self {
        match (self, again) {
            (Self::Ok, _) | (_, Self::Ok) => Self::Ok,
            (Self::Fail, Self::Fail) => Self::Fail,
            _ => Self::Unknown,
        }
    }
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// A job that must not exist yet.
    Create,
    /// The end of a job, and that it is forgotten.
    Delete,
}

/// One call as its client saw it, all tries together. Times are microseconds since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number in the history.
    pub id: u64,
    /// Who called.
    pub client: String,
    /// What for.
    pub op: Op,
    /// The job's name.
    pub key: String,
    /// Kept over all tries.
    pub request_id: String,
    /// When the first try began.
    pub invoke: u64,
    /// When the last answer came.
    #[serde(rename = "return")]
    pub returned: u64,
    /// What is known of its effect.
    pub outcome: Outcome,
    /// Revision of the write, when it was acknowledged.
    pub revision: Option<u64>,
    /// Who acknowledged or refused it.
    pub manager: Option<String>,
    /// The last error.
    pub error: Option<String>,
}

/// A fault of our own making.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What, e.g. kill or start.
    pub fault: String,
    /// To whom.
    pub target: String,
    /// When, in microseconds since the start of the run.
    pub at: u64,
}

/// Records calls and faults; shared by all clients of a run.
#[derive(Debug)]
pub struct History {
    clock: Clock,
    start: Mono,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    calls: Vec<Call>,
    next_id: u64,
    file: Option<BufWriter<File>>,
    broken: Option<std::io::Error>,
}

impl History {
    /// A new history, also written to `path` when there is one.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let clock = Clock::system();
        let file = match path {
            Some(path) => {
                let file = File::create(path)
                    .with_context(|| format!("cannot create the history {}", path.display()))?;
                Some(BufWriter::new(file))
            }
            None => None,
        };
        let start = clock.monotonic();
        let book = Book { calls: Vec::new(), next_id: 0, file, broken: None };
        Ok(Self { clock, start, book: Mutex::new(book) })
    }

    /// Microseconds since the start of the run.
    pub fn now(&self) -> u64 {
        micros(self.clock.monotonic().since(self.start))
    }

    /// Records a call that has ended; its number is given here.
    pub fn record(&self, call: Call) {
        let mut book = lock(&self.book);
        let call = Call { id: book.next_id, ..call };
        book.next_id += 1;
        book.write(&call);
        book.calls.push(call);
    }

    /// Records a fault, and returns when it was.
    pub fn fault(&self, fault: &str, target: &str) -> u64 {
        let at = self.now();
        lock(&self.book).write(&Fault { fault: fault.to_owned(), target: target.to_owned(), at });
        at
    }

    /// Every call so far, in the order of their ends; the file holds them too from here on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn calls(&self) -> Result<Vec<Call>> {
        let mut book = lock(&self.book);
        if let Some(error) = book.broken.take() {
            return Err(error).context("cannot write the history");
        }
        if let Some(file) = book.file.as_mut() {
            file.flush().context("cannot write the history")?;
        }
        Ok(book.calls.clone())
    }
}

impl Book {
    fn write(&mut self, line: &impl Serialize) {
        let Some(file) = self.file.as_mut() else { return };
        let written = serde_json::to_writer(&mut *file, line).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|()| file.write_all(b"\n")) {
            self.file = None;
            self.broken = Some(error);
        }
    }
}

/// Whole microseconds, capped.
pub fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A call that has begun.
#[derive(Debug)]
pub struct Begun {
    client: String,
    op: Op,
    key: String,
    request_id: RequestId,
    invoke: u64,
}

impl Begun {
    /// Notes the begin of a call.
    pub fn now(history: &History, client: &str, op: Op, key: &str, request_id: RequestId) -> Self {
        Self { client: client.to_owned(), op, key: key.to_owned(), request_id, invoke: history.now() }
    }

    /// Notes its end.
    pub fn end(self, history: &History, end: End) {
        history.record(Call {
            id: 0,
            client: self.client,
            op: self.op,
            key: self.key,
            request_id: self.request_id.to_string(),
            invoke: self.invoke,
            returned: history.now(),
            outcome: end.outcome,
            revision: end.revision,
            manager: end.manager,
            error: end.error,
        });
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct End {
    /// What is known of its effect.
    pub outcome: Outcome,
    /// Revision of the write.
    pub revision: Option<u64>,
    /// Who acknowledged or refused it.
    pub manager: Option<String>,
    /// The last error.
    pub error: Option<String>,
}

impl End {
    /// What one manager answered.
    pub fn of(manager: &Api, answer: &Result<Ack, Refused>) -> Self {
        match answer {
            Ok(ack) => Self::acknowledged(ack.revision, ack.manager.clone()),
            Err(refused) => Self {
                outcome: refused.outcome,
                revision: None,
                manager: Some(manager.name.clone()),
                error: Some(refused.error.clone()),
            },
        }
    }

    /// An acknowledgement.
    pub const fn acknowledged(revision: u64, manager: String) -> Self {
        Self { outcome: Outcome::Ok, revision: Some(revision), manager: Some(manager), error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::{Rng, Timestamp};

    #[test]
    fn the_file_holds_each_call_and_fault_as_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let history = History::create(Some(&path)).unwrap();
        let id = RequestId::generate(Timestamp::EPOCH, &mut Rng::seeded(1));
        let begun = Begun::now(&history, "w1", Op::Create, "job-1", id);
        let killed_at = history.fault("kill", "m1");
        let error = Some("no leader".to_owned());
        begun.end(&history, End { outcome: Outcome::Unknown, revision: None, manager: None, error });
        let calls = history.calls().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let fault: Fault = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(fault, Fault { fault: "kill".to_owned(), target: "m1".to_owned(), at: killed_at });
        let call: Call = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(vec![call], calls);
        assert!(lines.next().is_none());
    }

    #[test]
    fn calls_are_numbered_in_the_order_of_their_ends() {
        let history = History::create(None).unwrap();
        let ids = quorate_base::RequestIds::new(Clock::system(), Rng::seeded(1));
        let end = End { outcome: Outcome::Ok, revision: Some(1), manager: None, error: None };
        let first = Begun::now(&history, "a", Op::Create, "x", ids.generate());
        let second = Begun::now(&history, "b", Op::Create, "y", ids.generate());
        second.end(&history, end.clone());
        first.end(&history, end);
        let seen: Vec<(u64, String)> =
            history.calls().unwrap().into_iter().map(|call| (call.id, call.key)).collect();
        assert_eq!(seen, [(0, "y".to_owned()), (1, "x".to_owned())]);
    }
}
