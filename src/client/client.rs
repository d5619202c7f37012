//! The client and its retry loop.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Backoff, Clock, Mono, RequestId, RequestIds, Rng};
use quorate_pki::Security;
use quorate_wire::common::{Consistency, ReadOptions, ResponseMeta};
use quorate_wire::status::{Reason, Retry};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::ClientError;
use crate::answer::Answer;
use crate::attempt::Attempts;
use crate::calls::Question;
use crate::error::Failure;
use crate::set::ManagerSet;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What protects the traffic.
    pub security: Security,
    /// The most that a call takes, with all its retries. 10 s.
    pub deadline: Duration,
    /// The most that the first try at an endpoint takes, so that a frozen manager is left; doubles with each further
    /// try there. 2 s.
    pub try_limit: Duration,
    /// The waits between tries at the same endpoint, after a first quick one of 5-20 ms. From 50 ms doubling to 1 s.
    pub backoff: Backoff,
    /// How long to go on when no endpoint even accepts a connection. 3 s.
    pub unreachable_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            security: Security::default(),
            deadline: Duration::from_secs(10),
            try_limit: Duration::from_secs(2),
            backoff: Backoff {
                base: Duration::from_millis(50),
                factor: 2,
                max: Duration::from_secs(1),
                jitter: 0.3,
            },
            unreachable_after: Duration::from_secs(3),
        }
    }
}

/// How often each endpoint is tried before all of them count as unreachable.
const UNREACHABLE_TRIES: u32 = 3;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With options of how fresh the answer must be.
    Read,
    /// Without.
    Ask,
    Write,
    /// Opens a stream, which may then last as long as it likes; the leader serves it at the least cost.
    Stream,
}

/// Calls the managers of one cluster. A clone shares connections and memory.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    options: Options,
}

struct Shared {
    set: ManagerSet,
    clock: Clock,
    ids: RequestIds,
    rng: Mutex<Rng>,
    session: Mutex<Session>,
}

/// The newest that this client has seen of its cluster.
#[derive(Debug, Default)]
struct Session {
    cluster: String,
    revision: u64,
    token: String,
}

impl Session {
    fn learn(&mut self, meta: &ResponseMeta) {
        let newer = self.cluster != meta.cluster_id || self.revision < meta.applied_revision;
        if newer && !meta.session_token.is_empty() {
            self.cluster.clone_from(&meta.cluster_id);
            self.revision = meta.applied_revision;
            self.token.clone_from(&meta.session_token);
        }
    }
}

impl Client {
    /// A client of the managers at `seeds` (`host:port`); it learns of further ones from their answers. Dials nothing
    /// yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// No seed, or one that is no address or may not be dialled.
    pub fn new(seeds: &[String], options: Options) -> Result<Self, ClientError> {
        Self::with(seeds, options, Clock::system(), Rng::from_entropy())
    }

    /// The same with a chosen source of randomness. `clock` must be the system's or a paused runtime's: tonic's own
    /// timers follow tokio.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with(seeds: &[String], options: Options, clock: Clock, mut rng: Rng) -> Result<Self, ClientError> {
        if seeds.is_empty() {
            return Err(ClientError::NoManagers);
        }
        // Many clients of one list should not all begin with the same manager.
        let mut order = seeds.to_vec();
        rng.shuffle(&mut order);
        let set = ManagerSet::new(&order, options.security.clone(), clock.clone())?;
        let ids = RequestIds::new(clock.clone(), rng.fork("request ids"));
        let shared = Shared { set, clock, ids, rng: Mutex::new(rng), session: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), options })
    }

    /// The same client with another deadline per call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), options: Options { deadline, ..self.options.clone() } }
    }

    /// A fresh request id: the way to repeat a write safely after this client gave up.
    #[must_use]
    pub fn new_request_id(&self) -> String {
        self.shared.ids.generate().to_string()
    }

    /// The managers known so far.
    #[must_use]
    pub fn managers(&self) -> Vec<String> {
        self.shared.set.addresses()
    }

    /// The leader's address, when known.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        self.shared.set.leader()
    }

    pub(crate) fn set(&self) -> &ManagerSet {
        &self.shared.set
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// A source of randomness of its own.
    pub(crate) fn fork_rng(&self, name: &str) -> Rng {
        lock(&self.shared.rng).fork(name)
    }

    /// The caller's request id, checked, or a fresh one.
    pub(crate) fn request_id(&self, given: &str) -> Result<String, ClientError> {
        if given.is_empty() {
            return Ok(self.new_request_id());
        }
        Ok(RequestId::new(given)?.to_string())
    }

    /// Sends `request` until a manager answers for good or the deadline is over.
    pub(crate) async fn call<Q, A, F>(
        &self,
        name: &'static str,
        kind: Kind,
        request: Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A, ClientError>
    where
        Q: Question,
        A: Answer,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let clock = &self.shared.clock;
        let start = clock.monotonic();
        let deadline = start.saturating_add(self.options.deadline);
        let rng = self.fork_rng(name);
        let mut attempts = Attempts::new(rng, self.options.backoff, self.options.try_limit, start, deadline);
        let mut progress = Progress::default();
        while let Some(next) =
            attempts.next(self.shared.set.candidates(!matches!(kind, Kind::Read | Kind::Ask)))
        {
            clock.sleep_until(next.at).await;
            let (address, began) = (next.candidate.address, clock.monotonic());
            let budget = attempts.budget(&address, began);
            let failure = match once(&send, next.candidate.channel, request.clone(), budget, kind).await {
                Ok(answer) => {
                    self.learn(&address, &answer, clock.monotonic().since(began));
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            tracing::debug!(call = name, endpoint = address, failure = failure.words(), "a try failed");
            let redirected = self.note(&address, &failure);
            progress.note(&failure);
            if let Some(error) = final_answer(&failure, &address, request.request_id()) {
                return Err(error);
            }
            attempts.failed(&address, clock.monotonic(), &failure, redirected);
            if self.gives_up(&attempts, start) {
                return Err(ClientError::Unreachable { tries: attempts.into_tries() });
            }
        }
        Err(ClientError::Deadline {
            after: self.options.deadline,
            tries: attempts.into_tries(),
            last: progress.last,
            outcome_unknown: kind == Kind::Write && progress.maybe_done,
            request_id: request.request_id().map(str::to_owned),
        })
    }

    /// Remembers what an answer tells about the cluster.
    pub(crate) fn learn<A: Answer>(&self, address: &str, answer: &A, latency: Duration) {
        let set = &self.shared.set;
        set.succeeded(address, latency);
        for manager in answer.managers() {
            set.learn(&manager.api_address);
        }
        if let Some(meta) = answer.meta() {
            set.learn_leader(&meta.leader_address);
            lock(&self.shared.session).learn(meta);
        }
    }

    /// Makes a read that another manager may answer reflect what this client has seen, its own writes above all. One
    /// with a token of its own, and one that is as fresh as can be, stay as they are.
    pub(crate) fn read_own_writes(&self, read: Option<&mut ReadOptions>) {
        let Some(read) = read.filter(|read| read.session_token.is_empty()) else { return };
        if matches!(read.consistency(), Consistency::Stale | Consistency::Bounded) {
            read.session_token.clone_from(&lock(&self.shared.session).token);
        }
    }

    /// Remembers what a failure tells about the cluster; whether it named another endpoint to go to.
    pub(crate) fn note(&self, address: &str, failure: &Failure) -> bool {
        let set = &self.shared.set;
        match failure {
            Failure::NotConnected(_) | Failure::Lost(_) => set.failed(address),
            Failure::Api(error) if error.reason == Reason::NotLeader => {
                set.forget_leader(address);
                let leader = error.metadata.get("leader_address").filter(|leader| *leader != address);
                if let Some(leader) = leader {
                    set.learn_leader(leader);
                    return true;
                }
            }
            Failure::Api(error) if error.reason == Reason::NoLeader => set.forget_leader(address),
            Failure::Api(error) if error.reason == Reason::ShuttingDown => set.failed(address),
            Failure::Api(_) | Failure::Foreign(_) => {}
        }
        false
    }

    fn gives_up(&self, attempts: &Attempts, start: Mono) -> bool {
        self.shared.clock.monotonic().since(start) >= self.options.unreachable_after
            && attempts.all_unreachable(UNREACHABLE_TRIES)
    }
}

/// What all tries together say about a write.
#[derive(Default)]
struct Progress {
    last: Option<Box<quorate_wire::status::ApiError>>,
    maybe_done: bool,
}

impl Progress {
    fn note(&mut self, failure: &Failure) {
        match failure {
            Failure::Lost(_) => self.maybe_done = true,
            Failure::Api(error) => {
                self.maybe_done |= error.reason == Reason::CommitTimeout;
                self.last = Some(error.clone());
            }
            Failure::NotConnected(_) | Failure::Foreign(_) => {}
        }
    }
}

/// One try. `budget` also goes to the server, which stops working past it.
async fn once<Q, A, F>(
    send: &impl Fn(Channel, Request<Q>) -> F,
    channel: Channel,
    request: Q,
    budget: Duration,
    kind: Kind,
) -> Result<A, Failure>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let mut request = Request::new(request);
    if kind != Kind::Stream {
        request.set_timeout(budget);
    }
    // tonic's own timer starts only once a connection stands; this one bounds connecting, too.
    match tokio::time::timeout(budget, send(channel, request)).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Failure::of(status)),
        Err(_) => Err(Failure::Lost("no answer in time".to_owned())),
    }
}

/// The error for the caller when trying again cannot help.
pub(crate) fn final_answer(
    failure: &Failure,
    address: &str,
    request_id: Option<&str>,
) -> Option<ClientError> {
    match failure {
        Failure::NotConnected(_) | Failure::Lost(_) => None,
        Failure::Api(error) => match error.reason.retry() {
            Retry::ClientSameRequestId | Retry::HonourRetryInfo => None,
            Retry::Never | Retry::CallerReReads => Some(ClientError::Api {
                error: error.clone(),
                endpoint: address.to_owned(),
                request_id: request_id.map(str::to_owned),
            }),
        },
        Failure::Foreign(status) => Some(ClientError::Foreign {
            endpoint: address.to_owned(),
            code: status.code(),
            message: status.message().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(cluster: &str, revision: u64) -> ResponseMeta {
        ResponseMeta {
            cluster_id: cluster.to_owned(),
            applied_revision: revision,
            session_token: format!("{cluster}-{revision}"),
            ..ResponseMeta::default()
        }
    }

    #[tokio::test]
    async fn a_read_that_may_lag_carries_the_newest_token() {
        let client = Client::new(&["127.0.0.1:7420".to_owned()], Options::default()).unwrap();
        let sent = |consistency: Consistency, token: &str| {
            let mut read = ReadOptions {
                consistency: consistency.into(),
                session_token: token.to_owned(),
                ..ReadOptions::default()
            };
            client.read_own_writes(Some(&mut read));
            read.session_token
        };
        assert_eq!(sent(Consistency::Stale, ""), "", "nothing was seen yet");
        for (cluster, revision) in [("a", 7), ("a", 9), ("a", 8)] {
            lock(&client.shared.session).learn(&told(cluster, revision));
        }
        assert_eq!(sent(Consistency::Stale, ""), "a-9");
        assert_eq!(sent(Consistency::Bounded, ""), "a-9");
        assert_eq!(sent(Consistency::Linearizable, ""), "", "it sees every write anyway");
        assert_eq!(sent(Consistency::Stale, "own"), "own");
        lock(&client.shared.session).learn(&told("b", 1));
        assert_eq!(sent(Consistency::Stale, ""), "b-1", "a cluster that began anew counts from the start");
    }
}
