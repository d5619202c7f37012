//! Watches that go on when a manager is lost: nothing is missing and nothing comes twice.

mod assembly;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use quorate_base::{Delays, Mono, Timestamp};
use quorate_wire::api::watch_service_client::WatchServiceClient;
use quorate_wire::api::{Change, WatchRequest, WatchResponse};
use quorate_wire::common::ResponseMeta;
use quorate_wire::status::Reason;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::client::final_answer;
use crate::error::{Failure, Try};
use crate::set::Candidate;
use crate::{Client, ClientError};
use assembly::Assembly;

/// Most bytes of one message; managers send far smaller ones.
const MAX_MESSAGE: usize = 16 << 20;
/// How long a manager may say nothing: its bookmarks come every 5 s.
const SILENCE: Duration = Duration::from_secs(12);
/// A manager that did not hear from the leader for so long is left, if another one has.
const CUT_OFF: Duration = Duration::from_secs(5);

/// What a watch brings, in the order of revisions.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// All objects as they are: complete, so that whatever is not among them is not there.
    Snapshot {
        /// The revision that it shows.
        revision: u64,
        /// The objects; every change is of kind `PRESENT`.
        changes: Vec<Change>,
    },
    /// All changes of one revision.
    Changes {
        /// The revision.
        revision: u64,
        /// When, by the replicated clock.
        time: Option<Timestamp>,
        /// The changes, in order.
        changes: Vec<Change>,
    },
    /// No change that is asked for, up to this revision.
    Bookmark {
        /// The revision that is reached.
        revision: u64,
        /// Who says so, and how fresh it is.
        meta: ResponseMeta,
    },
    /// The watch broke and goes on at another manager.
    Moved {
        /// Name of the manager that served it before.
        from: String,
        /// Name of the one that serves it now.
        to: String,
        /// What that one says about itself.
        meta: ResponseMeta,
    },
    /// No manager keeps the changes since the last revision: forget everything, a new snapshot follows.
    Restarted {
        /// A manager's words.
        reason: String,
    },
}

/// A watch. It resumes by itself, on any manager, for as long as it is asked for the next event.
pub struct Watch {
    client: Client,
    request: WatchRequest,
    way: Way,
    /// A try to find a manager that is nearer to the leader.
    probe: Option<Opening>,
    assembly: Assembly,
    waiting: VecDeque<WatchEvent>,
    /// Name of the manager that served last.
    manager: String,
    past: Past,
}

/// A future that opens a stream at the named address and waits for its first message.
type Opening = Pin<Box<dyn Future<Output = (String, Result<Link, Failure>)> + Send>>;

enum Way {
    Closed,
    Opening(Opening),
    Open(Box<Link>),
}

/// A stream that has begun.
struct Link {
    address: String,
    stream: Streaming<WatchResponse>,
    first: Option<WatchResponse>,
    heard_at: Mono,
    messages: u64,
}

/// What went wrong since the last progress.
struct Past {
    delays: Delays,
    rounds: u32,
    /// Addresses tried in this round.
    tried: BTreeSet<String>,
    /// What a manager said that does not keep the changes since our revision.
    compacted: Option<String>,
    failures: BTreeMap<String, Try>,
    /// When the caller began to wait for the first message; `None` once there was one.
    since: Option<Mono>,
    /// Not before that: a manager asked for it.
    wait: Duration,
}

impl Past {
    fn forget(&mut self) {
        self.delays.reset();
        self.rounds = 0;
        self.tried.clear();
        self.compacted = None;
        self.failures.clear();
        self.wait = Duration::ZERO;
    }
}

impl Client {
    /// Watches objects: a snapshot and then every change, or, with a `start_revision`, the changes after it. Nothing is
    /// asked before the first [`Watch::next`].
    #[must_use]
    pub fn watch(&self, request: WatchRequest) -> Watch {
        let delays = self.options().backoff.delays(self.fork_rng("watch"));
        let past = Past {
            delays,
            rounds: 0,
            tried: BTreeSet::new(),
            compacted: None,
            failures: BTreeMap::new(),
            since: Some(self.clock().monotonic()),
            wait: Duration::ZERO,
        };
        let assembly = Assembly::resuming(request.start_revision);
        let (way, waiting, manager) = (Way::Closed, VecDeque::new(), String::new());
        Watch { client: self.clone(), request, way, probe: None, assembly, waiting, manager, past }
    }
}

impl Watch {
    /// The last finished revision: where another watch could go on. 0 before the snapshot.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.assembly.revision()
    }

    /// The next event. Safe to cancel. Once a manager answered there is no limit on how long it looks for one that goes
    /// on; wrap it to have one.
    ///
    /// # Errors
    /// A refusal for good, such as bad arguments or a revision in the future. Before the first answer also that no
    /// manager could be reached, or none answered within the client's deadline; calling again tries again.
    pub async fn next(&mut self) -> Result<WatchEvent, ClientError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            match &mut self.way {
                Way::Closed => self.dial(),
                Way::Opening(opening) => {
                    let (address, opened) = opening.await;
                    self.way = Way::Closed;
                    match opened {
                        Ok(link) => self.begin(link)?,
                        Err(failure) => self.failed(address, failure)?,
                    }
                }
                Way::Open(_) => self.hear().await?,
            }
        }
    }

    /// Begins to open a stream at the manager that was tried least.
    fn dial(&mut self) {
        let mut delay = std::mem::take(&mut self.past.wait);
        if self.untried().is_none() {
            self.past.tried.clear();
            self.past.rounds += 1;
            delay = delay.max(self.past.delays.next_delay());
            if let Some(reason) = self.past.compacted.take() {
                self.assembly = Assembly::resuming(0);
                self.waiting.push_back(WatchEvent::Restarted { reason });
            }
        }
        let Some(candidate) = self.untried() else { return };
        self.past.tried.insert(candidate.address.clone());
        self.way = Way::Opening(self.open(candidate, delay));
    }

    fn untried(&self) -> Option<Candidate> {
        let candidates = self.client.set().candidates(false).into_iter();
        let untried = candidates.filter(|one| !self.past.tried.contains(&one.address));
        untried.min_by_key(|one| (one.rank.cooling, one.rank.latency))
    }

    fn open(&self, candidate: Candidate, delay: Duration) -> Opening {
        let request = WatchRequest { start_revision: self.assembly.revision(), ..self.request.clone() };
        let Candidate { address, channel, .. } = candidate;
        let limit = self.client.options().try_limit.saturating_mul(1 << self.past.rounds.min(4)).min(SILENCE);
        let clock = self.client.clock().clone();
        Box::pin(async move {
            clock.sleep(delay).await;
            let opened = match tokio::time::timeout(limit, first_message(channel, request)).await {
                Ok(Ok((stream, first))) => Ok(Link {
                    address: address.clone(),
                    stream,
                    first: Some(first),
                    heard_at: clock.monotonic(),
                    messages: 1,
                }),
                Ok(Err(failure)) => Err(failure),
                Err(_) => Err(Failure::Lost("no answer in time".to_owned())),
            };
            (address, opened)
        })
    }

    fn begin(&mut self, mut link: Link) -> Result<(), ClientError> {
        self.past.since = None;
        self.assembly.drop_unfinished();
        let first = link.first.take();
        self.way = Way::Open(Box::new(link));
        first.map_or(Ok(()), |first| self.take(first))
    }

    async fn hear(&mut self) -> Result<(), ClientError> {
        let Way::Open(link) = &mut self.way else { return Ok(()) };
        let silent_at = link.heard_at.saturating_add(SILENCE);
        let clock = self.client.clock().clone();
        let probing = async {
            match &mut self.probe {
                Some(probe) => probe.await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            heard = link.stream.message() => match heard {
                Ok(Some(message)) => Ok(message),
                Ok(None) => Err(Failure::Lost("the watch ended".to_owned())),
                Err(status) => Err(Failure::of(status)),
            },
            (_, probed) = probing => {
                self.probe = None;
                // One that cannot be reached, or is no better off, is no reason to move.
                return match probed {
                    Ok(better) if better.first.as_ref().is_some_and(|first| is_fresh(first.meta.as_ref())) => {
                        self.begin(better)
                    }
                    _ => Ok(()),
                };
            }
            () = clock.sleep_until(silent_at) => Err(Failure::Lost("nothing was heard in time".to_owned())),
        };
        match heard {
            Ok(message) => {
                link.heard_at = clock.monotonic();
                link.messages += 1;
                self.take(message)
            }
            Err(failure) => {
                let address = link.address.clone();
                self.way = Way::Closed;
                // Whoever had the watch is asked last.
                self.past.tried.insert(address.clone());
                self.failed(address, failure)
            }
        }
    }

    fn take(&mut self, message: WatchResponse) -> Result<(), ClientError> {
        let Way::Open(link) = &self.way else { return Ok(()) };
        let (address, settled) = (link.address.clone(), link.messages > 1);
        if let Some(meta) = &message.meta {
            self.client.set().learn_leader(&meta.leader_address);
            if self.manager != meta.manager {
                let from = std::mem::replace(&mut self.manager, meta.manager.clone());
                if !from.is_empty() {
                    let (to, meta) = (self.manager.clone(), meta.clone());
                    self.waiting.push_back(WatchEvent::Moved { from, to, meta });
                }
            }
        }
        let lagging = message.bookmark && !is_fresh(message.meta.as_ref());
        match self.assembly.take(message) {
            Ok(events) => {
                if settled && !events.is_empty() {
                    self.past.forget();
                }
                self.waiting.extend(events);
            }
            Err(broken) => {
                self.way = Way::Closed;
                self.failed(address, broken)?;
                return Ok(());
            }
        }
        if !lagging {
            self.probe = None;
        } else if self.probe.is_none() && self.assembly.revision() > 0 {
            self.past.tried.insert(address);
            if self.untried().is_none() {
                self.past
                    .tried
                    .retain(|tried| matches!(&self.way, Way::Open(link) if link.address == *tried));
            }
            if let Some(other) = self.untried() {
                self.past.tried.insert(other.address.clone());
                self.probe = Some(self.open(other, Duration::ZERO));
            }
        }
        Ok(())
    }

    /// Remembers a failure, and ends the watch when another try cannot help.
    fn failed(&mut self, address: String, failure: Failure) -> Result<(), ClientError> {
        self.assembly.drop_unfinished();
        tracing::debug!(endpoint = address, failure = failure.words(), "a watch broke");
        self.client.note(&address, &failure);
        if let Failure::Api(error) = &failure {
            if error.reason == Reason::RevisionCompacted {
                self.past.compacted = Some(error.message.clone());
            }
            // A wait is asked for by that manager alone: others are tried at once.
            let asked = if self.untried().is_none() { error.retry_after } else { None };
            self.past.wait = asked.unwrap_or_default();
        }
        let goes_on = matches!(&failure, Failure::Api(error)
            if matches!(error.reason, Reason::RevisionCompacted | Reason::WatchTooSlow));
        if let Some(error) = final_answer(&failure, &address, None).filter(|_| !goes_on) {
            return Err(error);
        }
        let last = match &failure {
            Failure::Api(error) => Some(error.clone()),
            _ => None,
        };
        let entry = self.past.failures.entry(address.clone());
        let entry = entry.or_insert(Try { endpoint: address, times: 0, failure: String::new() });
        entry.times += 1;
        entry.failure = failure.words();
        self.gives_up(last, matches!(failure, Failure::NotConnected(_)))
    }

    /// Before the first answer a caller wants to know that there is none.
    fn gives_up(
        &mut self,
        last: Option<Box<quorate_wire::status::ApiError>>,
        refused: bool,
    ) -> Result<(), ClientError> {
        let (now, options) = (self.client.clock().monotonic(), self.client.options());
        let Some(since) = self.past.since else { return Ok(()) };
        let (waited, after) = (now.since(since), options.deadline);
        let unreachable = refused && last.is_none() && self.untried().is_none();
        if waited < after && !(unreachable && waited >= options.unreachable_after) {
            return Ok(());
        }
        self.past.since = Some(now);
        let tries = std::mem::take(&mut self.past.failures).into_values().collect();
        Err(if unreachable {
            ClientError::Unreachable { tries }
        } else {
            ClientError::Deadline { after, tries, last, request_id: None, outcome_unknown: false }
        })
    }
}

/// Opens a stream and waits for what it brings first.
async fn first_message(
    channel: Channel,
    request: WatchRequest,
) -> Result<(Streaming<WatchResponse>, WatchResponse), Failure> {
    let mut client = WatchServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    let mut stream = client.watch(request).await.map_err(Failure::of)?.into_inner();
    match stream.message().await {
        Ok(Some(first)) => Ok((stream, first)),
        Ok(None) => Err(Failure::Lost("the watch ended".to_owned())),
        Err(status) => Err(Failure::of(status)),
    }
}

/// Whether the manager is in touch with the leader.
fn is_fresh(meta: Option<&ResponseMeta>) -> bool {
    let contact = meta.and_then(|meta| meta.last_contact.as_ref());
    contact.is_some_and(|ago| ago.seconds < CUT_OFF.as_secs().cast_signed())
}
