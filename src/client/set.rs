//! The managers that a client knows.

use std::sync::Mutex;
use std::time::Duration;

use quorate_base::sync::lock;
use quorate_base::{Clock, Mono};
use quorate_pki::{EndpointError, Profile, Security};
use tonic::transport::Channel;

/// Most managers that are remembered: far more than a cluster has, so that a broken answer cannot fill the memory.
const MAX_MEMBERS: usize = 64;
/// How long an endpoint that failed stands behind the others.
const COOLING: Duration = Duration::from_secs(5);
/// What one that was not measured counts as having: whoever is nearer is near enough, whoever is farther is worth a
/// comparison.
const UNMEASURED: Duration = Duration::from_millis(10);
/// How long a measured latency counts.
const LATENCY_AGE: Duration = Duration::from_secs(60);

/// One manager's endpoint.
struct Member {
    address: String,
    channel: Channel,
    failed_at: Option<Mono>,
    latency: Option<(Duration, Mono)>,
}

/// All known endpoints and which of them leads.
pub(crate) struct ManagerSet {
    security: Security,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    members: Vec<Member>,
    leader: Option<String>,
}

/// What a call prefers among the endpoints: in each field the smaller is the better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    /// It failed a moment ago.
    pub(crate) cooling: bool,
    /// A write, and another one leads or nobody knows who does.
    pub(crate) not_leader: bool,
    /// Smoothed time of its answers.
    pub(crate) latency: Duration,
}

/// An endpoint as a call sees it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) address: String,
    pub(crate) channel: Channel,
    pub(crate) rank: Rank,
}

impl ManagerSet {
    /// The set of the configured `seeds`. Dials nothing.
    pub(crate) fn new(seeds: &[String], security: Security, clock: Clock) -> Result<Self, EndpointError> {
        let set = Self { security, clock, inner: Mutex::default() };
        for seed in seeds {
            set.add(seed)?;
        }
        Ok(set)
    }

    fn add(&self, address: &str) -> Result<(), EndpointError> {
        let mut inner = lock(&self.inner);
        if inner.members.len() >= MAX_MEMBERS || inner.members.iter().any(|member| member.address == address)
        {
            return Ok(());
        }
        let channel = self.security.endpoint(Profile::Api, address)?.connect_lazy();
        inner.members.push(Member { address: address.to_owned(), channel, failed_at: None, latency: None });
        Ok(())
    }

    /// Remembers an address that a manager told. One that may not be dialled is left out: it was not the user's word.
    pub(crate) fn learn(&self, address: &str) {
        if address.is_empty() {
            return;
        }
        if let Err(error) = self.add(address) {
            tracing::debug!(address, %error, "a manager told an address that cannot be used");
        }
    }

    /// Remembers who leads, and its address.
    pub(crate) fn learn_leader(&self, address: &str) {
        if address.is_empty() {
            return;
        }
        self.learn(address);
        let mut inner = lock(&self.inner);
        if inner.leader.as_deref() != Some(address) {
            tracing::debug!(leader = address, "the leader is known");
            inner.leader = Some(address.to_owned());
        }
    }

    /// The endpoints; for a write the leader ranks first, else the nearest.
    pub(crate) fn candidates(&self, write: bool) -> Vec<Candidate> {
        let (now, inner) = (self.clock.monotonic(), lock(&self.inner));
        let young = |(latency, at): (Duration, Mono)| (now.since(at) < LATENCY_AGE).then_some(latency);
        let rank = |member: &Member| Rank {
            cooling: member.failed_at.is_some_and(|at| now.since(at) < COOLING),
            not_leader: write && inner.leader.as_deref() != Some(&member.address),
            latency: member.latency.and_then(young).unwrap_or(UNMEASURED),
        };
        inner
            .members
            .iter()
            .map(|member| Candidate {
                address: member.address.clone(),
                channel: member.channel.clone(),
                rank: rank(member),
            })
            .collect()
    }

    /// The endpoint answered after `latency`.
    pub(crate) fn succeeded(&self, address: &str, latency: Duration) {
        let now = self.clock.monotonic();
        self.update(address, |member| {
            member.failed_at = None;
            // Smoothed like a TCP round trip (RFC 6298): an eighth of the new value.
            let smooth = member.latency.map_or(latency, |(old, _)| (old * 7 + latency) / 8);
            member.latency = Some((smooth, now));
        });
    }

    /// The endpoint did not answer: it is not the leader any more, as far as this client knows.
    pub(crate) fn failed(&self, address: &str) {
        let now = self.clock.monotonic();
        self.update(address, |member| member.failed_at = Some(now));
        self.forget_leader(address);
    }

    /// The endpoint does not lead.
    pub(crate) fn forget_leader(&self, address: &str) {
        let mut inner = lock(&self.inner);
        if inner.leader.as_deref() == Some(address) {
            inner.leader = None;
        }
    }

    fn update(&self, address: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = lock(&self.inner).members.iter_mut().find(|member| member.address == address) {
            change(member);
        }
    }

    /// The addresses, in the order in which they were learned.
    pub(crate) fn addresses(&self) -> Vec<String> {
        lock(&self.inner).members.iter().map(|member| member.address.clone()).collect()
    }

    /// The leader's address, when known.
    pub(crate) fn leader(&self) -> Option<String> {
        lock(&self.inner).leader.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::Timestamp;

    /// The addresses in the order in which a call would take them.
    fn order(set: &ManagerSet, write: bool) -> String {
        let mut candidates = set.candidates(write);
        candidates.sort_by_key(|one| (one.rank.cooling, one.rank.not_leader, one.rank.latency));
        candidates.iter().map(|one| one.address.trim_start_matches("127.0.0.1:")).collect()
    }

    fn address(port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    #[tokio::test]
    async fn the_near_the_healthy_and_for_writes_the_leader_come_first() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let set = ManagerSet::new(&[1, 2, 3].map(address), Security::default(), clock.clone()).unwrap();
        assert_eq!(order(&set, true), "123");
        set.learn_leader(&address(3));
        assert_eq!((order(&set, true), order(&set, false)), ("312".to_owned(), "123".to_owned()));
        set.succeeded(&address(2), Duration::from_millis(1));
        set.succeeded(&address(1), Duration::from_millis(50));
        assert_eq!((order(&set, true), order(&set, false)), ("321".to_owned(), "231".to_owned()));
        // One that fails is neither near nor the leader, for a while.
        set.failed(&address(3));
        set.failed(&address(2));
        assert_eq!((set.leader(), order(&set, true)), (None, "123".to_owned()));
        clock.advance(COOLING);
        assert_eq!(order(&set, false), "231");
        clock.advance(LATENCY_AGE);
        assert_eq!(order(&set, false), "123");
    }

    #[tokio::test]
    async fn addresses_told_by_others_are_taken_once_bounded_and_only_if_they_may_be_dialled() {
        let set = ManagerSet::new(&[address(1)], Security::default(), Clock::system()).unwrap();
        for told in ["", "nonsense", "192.0.2.1:7420", "127.0.0.1:1", "127.0.0.1:2"] {
            set.learn(told);
        }
        assert_eq!(set.addresses(), [address(1), address(2)]);
        for port in 1_000..2_000 {
            set.learn(&address(port));
        }
        assert_eq!(set.addresses().len(), MAX_MEMBERS);
    }
}
