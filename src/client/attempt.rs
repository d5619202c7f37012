//! The tries of one call: which endpoint next, when, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_base::{Backoff, Mono, Rng};

use crate::error::{Failure, Try};
use crate::set::Candidate;

/// The wait after a first failure: shorter than a failover by far, so that a dead or changed leader is not felt.
const QUICK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// The memory of one call.
pub(crate) struct Attempts {
    rng: Rng,
    backoff: Backoff,
    try_limit: Duration,
    deadline: Mono,
    endpoints: BTreeMap<String, Past>,
    /// Between any two tries, whatever the endpoints.
    not_before: Mono,
}

/// What happened at one endpoint.
struct Past {
    failures: u32,
    not_before: Mono,
    last: String,
    connected: bool,
}

/// The next try.
pub(crate) struct Next {
    pub(crate) candidate: Candidate,
    /// Not earlier.
    pub(crate) at: Mono,
}

impl Attempts {
    pub(crate) fn new(rng: Rng, backoff: Backoff, try_limit: Duration, now: Mono, deadline: Mono) -> Self {
        Self { rng, backoff, try_limit, deadline, endpoints: BTreeMap::new(), not_before: now }
    }

    /// The endpoint that may be tried first; among several the leader, then the least tried, then the nearest. `None`
    /// when none may be tried within the deadline.
    pub(crate) fn next(&self, candidates: Vec<Candidate>) -> Option<Next> {
        let at = |candidate: &Candidate| {
            let past = self.endpoints.get(&candidate.address);
            past.map_or(self.not_before, |past| past.not_before.max(self.not_before))
        };
        let order = |candidate: &Candidate| {
            let failures = self.endpoints.get(&candidate.address).map_or(0, |past| past.failures);
            (
                at(candidate),
                candidate.rank.cooling,
                candidate.rank.not_leader,
                failures,
                candidate.rank.latency,
            )
        };
        let best = candidates.into_iter().min_by_key(order)?;
        let at = at(&best);
        (at < self.deadline).then_some(Next { candidate: best, at })
    }

    /// How long the try at `address` that begins `now` may take: doubled with each failure there, so that a frozen
    /// manager is left soon and a slow cluster still answers.
    pub(crate) fn budget(&self, address: &str, now: Mono) -> Duration {
        let failures = self.endpoints.get(address).map_or(0, |past| past.failures.min(8));
        self.try_limit.saturating_mul(1 << failures).min(self.deadline.since(now))
    }

    /// A try failed `now`. A `retry_after` of the server is honoured at the endpoint that said so; `redirected` goes on
    /// at once, elsewhere.
    pub(crate) fn failed(&mut self, address: &str, now: Mono, failure: &Failure, redirected: bool) {
        let failures = self.endpoints.get(address).map_or(0, |past| past.failures);
        let quick = self.rng.duration_between(QUICK.0, QUICK.1);
        let own = match failures {
            0 => quick,
            n => self.backoff.delay(n - 1, &mut self.rng),
        };
        let asked = match failure {
            Failure::Api(error) => error.retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let past = Past {
            failures: failures + 1,
            not_before: now.saturating_add(own.max(asked)),
            last: failure.words(),
            connected: !matches!(failure, Failure::NotConnected(_))
                || self.endpoints.get(address).is_some_and(|past| past.connected),
        };
        self.endpoints.insert(address.to_owned(), past);
        self.not_before = if redirected { now } else { now.saturating_add(quick) };
    }

    /// Whether every endpoint was tried at least `times` and none ever accepted a connection.
    pub(crate) fn all_unreachable(&self, times: u32) -> bool {
        !self.endpoints.is_empty()
            && self.endpoints.values().all(|past| !past.connected && past.failures >= times)
    }

    /// The report for the user.
    pub(crate) fn into_tries(self) -> Vec<Try> {
        self.endpoints
            .into_iter()
            .map(|(endpoint, past)| Try { endpoint, times: past.failures, failure: past.last })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::{Clock, Timestamp};
    use quorate_pki::{Profile, Security};
    use quorate_wire::status::{ApiError, Reason};

    use crate::set::ManagerSet;

    const BACKOFF: Backoff =
        Backoff { base: Duration::from_millis(100), factor: 2, max: Duration::from_secs(1), jitter: 0.0 };

    fn attempts(clock: &Clock) -> Attempts {
        let now = clock.monotonic();
        let deadline = now.saturating_add(Duration::from_secs(10));
        Attempts::new(Rng::seeded(1), BACKOFF, Duration::from_secs(2), now, deadline)
    }

    fn candidates() -> Vec<Candidate> {
        let seeds = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        assert!(Security::default().endpoint(Profile::Api, &seeds[0]).is_ok());
        let clock = Clock::manual(Timestamp::EPOCH);
        ManagerSet::new(&seeds, Security::default(), clock).unwrap().candidates(false)
    }

    fn lost() -> Failure {
        Failure::Lost("gone".into())
    }

    #[tokio::test]
    async fn the_other_endpoint_is_next_and_waits_grow_for_each_by_itself() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let start = clock.monotonic();
        let mut attempts = attempts(&clock);
        let mut log = Vec::new();
        for _ in 0..8 {
            let next = attempts.next(candidates()).unwrap();
            clock.advance(next.at.since(clock.monotonic()));
            attempts.failed(&next.candidate.address, clock.monotonic(), &lost(), false);
            log.push((next.candidate.address.ends_with('1'), next.at.since(start).as_millis()));
        }
        let turns: Vec<bool> = log.iter().map(|(first, _)| *first).collect();
        assert_eq!(turns, [true, false, true, false, true, false, true, false], "{log:?}");
        // Two quick rounds, then 100 ms and 200 ms after the one before.
        assert!(log[3].1 <= 80, "{log:?}");
        assert!(log[4].1 >= 100 && log[6].1 - log[4].1 >= 200, "{log:?}");
    }

    #[tokio::test]
    async fn a_redirect_goes_on_at_once_and_a_wait_asked_for_binds_its_endpoint_alone() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let now = clock.monotonic();
        let mut attempts = attempts(&clock);
        let refusal = ApiError::new(Reason::NoLeader, "x").after(Duration::from_secs(3));
        attempts.failed("127.0.0.1:1", now, &Failure::Api(Box::new(refusal)), true);
        let next = attempts.next(candidates()).unwrap();
        assert_eq!((next.candidate.address.as_str(), next.at), ("127.0.0.1:2", now));
        let only_first = candidates().into_iter().take(1).collect();
        assert_eq!(attempts.next(only_first).unwrap().at.since(now), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn a_try_gets_more_time_after_each_failure_and_never_beyond_the_deadline() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let now = clock.monotonic();
        let mut attempts = attempts(&clock);
        let mut budgets = Vec::new();
        for _ in 0..5 {
            budgets.push(attempts.budget("a:1", now).as_secs());
            attempts.failed("a:1", now, &lost(), false);
        }
        assert_eq!(budgets, [2, 4, 8, 10, 10]);
        assert_eq!(attempts.budget("b:1", now).as_secs(), 2);
        clock.advance(Duration::from_secs(10));
        attempts.failed("127.0.0.1:1", clock.monotonic(), &lost(), false);
        assert!(attempts.next(candidates()).is_none());
    }

    #[tokio::test]
    async fn one_accepted_connection_is_enough_to_count_as_reachable() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let now = clock.monotonic();
        let mut attempts = attempts(&clock);
        let refused = || Failure::NotConnected("refused".into());
        assert!(!attempts.all_unreachable(0));
        for _ in 0..3 {
            attempts.failed("a:1", now, &refused(), false);
        }
        assert!(attempts.all_unreachable(3) && !attempts.all_unreachable(4));
        attempts.failed("a:1", now, &lost(), false);
        attempts.failed("a:1", now, &refused(), false);
        assert!(!attempts.all_unreachable(3));
        assert_eq!(attempts.into_tries()[0].to_string(), "a:1: cannot connect: refused (5 times)");
    }
}
