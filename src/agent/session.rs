//! The one stream to the leader: found by redirects, dialled again with growing waits, fenced against older leaders.

mod converse;
mod link;
mod set;
mod target;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use quorate_base::sync::lock;
use quorate_base::{Backoff, Mono};
use quorate_model::NodeFacts;
use quorate_pki::Profile;
use quorate_telemetry::metrics;
use quorate_wire::agent::agent_service_client::AgentServiceClient;
use quorate_wire::agent::{Fence, Hello, Redirect, session_request, session_response};
use tokio::sync::watch;

use crate::config::AgentConfig;
use crate::data_dir::Identity;
use crate::facts;
use crate::machine::Machine;
use crate::relay::Relays;
use crate::runner::Core;
use crate::worker::Worker;
use link::Link;
use target::Targets;

/// Waits after failed attempts: short at first, since a new leader is elected within a second.
const RETRY: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(3));
/// A session that lasted this long was a sound one: the next waits begin anew. One that breaks at once must not.
const SOUND: Duration = Duration::from_secs(2);
/// Waits after a refusal, which only an operator can lift.
const REFUSED: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(60));
/// The longest that a manager may take to take a stream and to say its first word.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// After so long without a first word another manager is dialled beside the silent one. Well below any lease: a manager
/// that starts or is frozen takes the connection and says nothing, and waiting for it would cost the node its tasks.
const BESIDE: Duration = Duration::from_millis(500);
/// Managers that are dialled at once.
const MOST_AT_ONCE: usize = 3;
/// Redirects in a row that are followed at once; managers that disagree must not make an agent spin.
const MOST_REDIRECTS: u32 = 3;
/// Reasons of failed attempts that are remembered, so that each is logged once.
const MOST_REASONS: usize = 32;
/// Largest message that is taken: a complete set of very many tasks.
const MOST_BYTES: usize = 64 << 20;

/// How the session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState {
    /// None since the start.
    Connecting,
    /// One stands, and the complete set was applied.
    Connected {
        /// Address of the leader.
        address: String,
        /// Its name.
        leader: String,
    },
    /// The last one ended.
    Lost {
        /// Why.
        reason: String,
    },
}

/// Why a session, or the attempt at one, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The manager is not the leader; perhaps it knows who is.
    Redirected(Option<String>),
    /// The manager will not have this agent, or it is of another cluster.
    Refused(String),
    /// Could not be had, or broke.
    Broken(String),
    /// What was said cannot be continued: ask for the complete set.
    Gap(String),
}

impl End {
    /// For the metric: few fixed words.
    const fn label(&self) -> &'static str {
        match self {
            Self::Redirected(_) => "redirected",
            Self::Refused(_) => "refused",
            Self::Broken(_) => "broken",
            Self::Gap(_) => "gap",
        }
    }

    fn reason(&self) -> String {
        match self {
            Self::Redirected(Some(leader)) => format!("redirected to {leader}"),
            Self::Redirected(None) => "no leader is known".to_owned(),
            Self::Refused(reason) | Self::Broken(reason) | Self::Gap(reason) => reason.clone(),
        }
    }
}

/// Keeps the session.
#[derive(Debug)]
pub(crate) struct Session {
    core: Arc<Core>,
    worker: Arc<Worker>,
    config: AgentConfig,
    identity: Identity,
    machine: Arc<Machine>,
    relays: Arc<Relays>,
    state: watch::Sender<SessionState>,
    targets: Mutex<Targets>,
}

impl Session {
    pub(crate) fn new(
        core: Arc<Core>,
        worker: Arc<Worker>,
        machine: Arc<Machine>,
        relays: Arc<Relays>,
        config: AgentConfig,
        identity: Identity,
    ) -> Self {
        let targets = Mutex::new(Targets::new(core.fork("targets")));
        let state = watch::Sender::new(SessionState::Connecting);
        Self { core, worker, config, identity, machine, relays, state, targets }
    }

    pub(crate) fn state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    /// Keeps a session for as long as it is polled.
    pub(crate) async fn run(&self) {
        let mut retry = RETRY.delays(self.core.fork("retry"));
        let mut refused = REFUSED.delays(self.core.fork("refused"));
        let (mut redirects, mut known) = (0, BTreeSet::new());
        loop {
            let (address, opened) = self.reach(&mut known).await;
            let mut welcomed = None;
            let end = self.attend(&address, opened, &mut welcomed).await;
            self.core.reporter.rewind();
            if welcomed.is_some() {
                known.clear();
            }
            self.note(&address, &end, &mut known);
            let sound = welcomed.is_some_and(|at| self.core.clock.monotonic().since(at) >= SOUND);
            if sound {
                retry.reset();
                refused.reset();
            }
            redirects = if matches!(end, End::Redirected(Some(_))) { redirects + 1 } else { 0 };
            let wait = match end {
                End::Redirected(Some(leader)) => {
                    lock(&self.targets).prefer(leader);
                    if redirects <= MOST_REDIRECTS { Duration::ZERO } else { retry.next_delay() }
                }
                End::Refused(_) => refused.next_delay(),
                End::Gap(_) => {
                    lock(&self.targets).prefer(address);
                    retry.next_delay()
                }
                End::Broken(_) if welcomed.is_some() => {
                    let learned = self.core.ledger.read().managers.clone();
                    lock(&self.targets).lost(address, &learned, &self.config.managers);
                    // The next manager is dialled at once; only what fails again waits.
                    if sound { Duration::ZERO } else { retry.next_delay() }
                }
                End::Redirected(None) | End::Broken(_) => retry.next_delay(),
            };
            self.core.clock.sleep(wait).await;
        }
    }

    fn next_target(&self) -> String {
        let learned = self.core.ledger.read().managers.clone();
        lock(&self.targets).next(&learned, &self.config.managers)
    }

    fn note(&self, address: &str, end: &End, known: &mut BTreeSet<String>) {
        metrics::agent_reconnects(end.label(), 1);
        let reason = format!("{address}: {}", end.reason());
        self.state.send_replace(SessionState::Lost { reason: reason.clone() });
        if known.len() >= MOST_REASONS {
            known.clear();
        }
        // What failed like this since the last session is no news.
        let news = known.insert(reason.clone());
        match end {
            End::Refused(_) => tracing::error!(reason, "the manager refuses this agent"),
            End::Broken(_) | End::Gap(_) if news => tracing::warn!(reason, "no session; tasks go on"),
            _ => tracing::debug!(reason, "no session"),
        }
    }

    /// Dials managers until one has said its first word, or none that was dialled is left to say one.
    async fn reach(&self, known: &mut BTreeSet<String>) -> (String, Result<Opened, End>) {
        let (mut tries, mut dialled) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let address = self.next_target();
            if dialled.insert(address.clone()) {
                tries.push(async {
                    let opened = self.open(&address).await;
                    (address, opened)
                });
            }
            loop {
                let next = tokio::select! {
                    biased;
                    next = tries.next() => next,
                    () = self.core.clock.sleep(BESIDE), if tries.len() < MOST_AT_ONCE => break,
                };
                match next {
                    Some((address, Err(end))) if !tries.is_empty() => {
                        self.note(&address, &end, known);
                        dialled.remove(&address);
                    }
                    Some(ended) => return ended,
                    None => break,
                }
            }
        }
    }

    /// One session, or the attempt at one.
    async fn attend(&self, address: &str, opened: Result<Opened, End>, welcomed: &mut Option<Mono>) -> End {
        match opened {
            Ok((link, first)) => match self.welcome(address, first).await {
                Ok(welcome) => {
                    *welcomed = Some(self.core.clock.monotonic());
                    self.converse(address, link, welcome).await
                }
                Err(end) => end,
            },
            Err(end) => end,
        }
    }

    async fn open(&self, address: &str) -> Result<Opened, End> {
        let broken = |what: &str, error: &dyn std::fmt::Display| End::Broken(format!("{what}: {error}"));
        let endpoint = self.config.security.endpoint(Profile::Agent, address);
        let endpoint = endpoint.map_err(|error| broken("cannot dial", &error))?;
        let channel =
            endpoint.connect().await.map_err(|error| broken("cannot connect", &innermost(&error)))?;
        let client = AgentServiceClient::new(channel).max_decoding_message_size(MOST_BYTES);
        let hello = session_request::Body::Hello(self.hello());
        let open = async {
            let link = Link::open(client, hello).await;
            let mut link = link.map_err(|status| End::Broken(status.message().to_owned()))?;
            let first = link.next().await?;
            Ok((link, first))
        };
        let late = |_| End::Broken("it does not answer".to_owned());
        tokio::time::timeout(FIRST_WORD, open).await.map_err(late)?
    }

    /// The machine as it is now.
    fn facts(&self) -> NodeFacts {
        let facts = facts::gather(&self.config, self.core.runtimes.offer().borrow().clone());
        NodeFacts { conditions: self.machine.conditions().borrow().clone(), ..facts }
    }

    fn hello(&self) -> Hello {
        let facts = self.facts();
        let contents = self.core.ledger.read();
        Hello {
            node: self.config.node.to_string(),
            agent_id: self.identity.agent_id.clone(),
            incarnation: self.identity.incarnation,
            facts: Some((&facts).into()),
            cluster_id: contents.cluster.to_string(),
            fence: Some(contents.fence),
        }
    }

    /// Checks a manager's first word, and remembers what it says of the cluster.
    async fn welcome(&self, address: &str, first: session_response::Body) -> Result<Welcome, End> {
        let welcome = match first {
            session_response::Body::Welcome(welcome) => welcome,
            session_response::Body::Redirect(redirect) => return Err(self.redirected(address, redirect)),
            session_response::Body::Refusal(refusal) => {
                return Err(End::Refused(format!("{}: {}", refusal.reason, refusal.message)));
            }
            _ => return Err(End::Broken("its first word was none of welcome, redirect, refusal".to_owned())),
        };
        let fence = welcome.fence.unwrap_or_default();
        self.check_fence(fence)?;
        let cluster = Arc::clone(&self.core.ledger.read().cluster);
        if welcome.cluster_id.is_empty() {
            return Err(End::Broken("it does not name its cluster".to_owned()));
        }
        if !cluster.is_empty() && *cluster != *welcome.cluster_id {
            return Err(End::Refused(format!(
                "it belongs to cluster {}, this agent's data directory to cluster {cluster}: correct the managers in the \
                 agent's configuration, or give it an empty data directory to join the other cluster",
                welcome.cluster_id
            )));
        }
        let heartbeat =
            welcome.heartbeat.map(|sent| link::span(sent.seconds, sent.nanos)).filter(|span| !span.is_zero());
        let heartbeat = heartbeat.ok_or_else(|| End::Broken("it names no heartbeat".to_owned()))?;
        let lease =
            welcome.lease.map(|sent| link::span(sent.seconds, sent.nanos)).unwrap_or_default().max(heartbeat);
        let ((), change) = self.core.ledger.change(|contents| {
            contents.cluster = welcome.cluster_id.into();
            contents.fence = contents.fence.max(fence);
            if !welcome.managers.is_empty() {
                contents.managers = welcome.managers;
            }
        });
        self.core.ledger.durable(change).await;
        Ok(Welcome { leader: welcome.leader, heartbeat, lease })
    }

    /// Refuses the word of an older leader than one that was obeyed.
    fn check_fence(&self, fence: Fence) -> Result<(), End> {
        let newest = self.core.ledger.read().fence;
        if fence >= newest {
            return Ok(());
        }
        Err(End::Broken(format!(
            "it leads in epoch {} term {}, and this agent has obeyed epoch {} term {}: an older leader is not followed",
            fence.epoch, fence.term, newest.epoch, newest.term
        )))
    }

    fn redirected(&self, address: &str, redirect: Redirect) -> End {
        self.learn(redirect.managers);
        End::Redirected(
            Some(redirect.leader_address).filter(|leader| !leader.is_empty() && leader != address),
        )
    }

    fn learn(&self, managers: Vec<String>) {
        self.core.ledger.change_if(|contents| {
            let news = !managers.is_empty() && contents.managers != managers;
            if news {
                contents.managers = managers;
            }
            ((), news)
        });
    }
}

/// A stream, and the manager's first word on it.
type Opened = (Link, session_response::Body);

/// A leader's welcome, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Welcome {
    leader: String,
    heartbeat: Duration,
    lease: Duration,
}

/// The cause that says something: tonic's own texts are "transport error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
