//! Capped exponential back-off with jitter.

use std::time::Duration;

use crate::rand::Rng;

/// A back-off policy. Attempts count from 0; attempt `n` waits `base * factor^n`, at most `max`, shortened at random by
/// up to the fraction `jitter`.
///
/// Whole-number arithmetic, so [`Backoff::nominal`] gives the same result on every machine and may decide replicated
/// state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// What each further failure multiplies the wait by. 1 keeps it constant.
    pub factor: u32,
    /// The longest wait.
    pub max: Duration,
    /// The largest random part taken off, 0 to 1.
    pub jitter: f64,
}

impl Backoff {
    /// Doubling from `base` up to `max`, with up to half taken off at random so that a crowd spreads out.
    pub const fn doubling(base: Duration, max: Duration) -> Self {
        Self { base, factor: 2, max, jitter: 0.5 }
    }

    /// The wait after failure number `attempt` (from 0), before jitter.
    pub fn nominal(&self, attempt: u32) -> Duration {
        let mut delay = self.base.min(self.max);
        for _ in 0..attempt {
            let next = delay.saturating_mul(self.factor).min(self.max);
            if next == delay {
                break;
            }
            delay = next;
        }
        delay
    }

    /// The wait after failure number `attempt` (from 0), with jitter drawn from `rng`. Never above `max`.
    pub fn delay(&self, attempt: u32, rng: &mut Rng) -> Duration {
        rng.jitter(self.nominal(attempt), self.jitter)
    }

    /// The endless sequence of waits of one retry loop.
    pub const fn delays(self, rng: Rng) -> Delays {
        Delays { policy: self, rng, attempt: 0 }
    }
}

/// The waits of one retry loop: each `next` is a longer one, [`Delays::reset`] starts over after a success.
#[derive(Debug)]
pub struct Delays {
    policy: Backoff,
    rng: Rng,
    attempt: u32,
}

impl Delays {
    /// The wait after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.policy.delay(self.attempt, &mut self.rng);
        self.attempt = self.attempt.saturating_add(1);
        delay
    }

    /// Failures since the start or the last reset.
    pub const fn attempts(&self) -> u32 {
        self.attempt
    }

    /// A success: the next failure waits `base` again.
    pub const fn reset(&mut self) {
        self.attempt = 0;
    }
}

impl Iterator for Delays {
    type Item = Duration;

    /// Never `None`.
    fn next(&mut self) -> Option<Duration> {
        Some(self.next_delay())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rand::Rng;
    use proptest::prelude::*;

    const POLICY: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(1));

    #[test]
    fn doubles_up_to_the_cap() {
        let millis: Vec<_> = (0..6).map(|attempt| POLICY.nominal(attempt).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_000, 1_000]);
    }

    #[test]
    fn extreme_policies_are_defined() {
        let zero = Backoff { base: Duration::ZERO, ..POLICY };
        assert_eq!(zero.nominal(u32::MAX), Duration::ZERO);
        let endless = Backoff { max: Duration::MAX, ..POLICY };
        assert_eq!(endless.nominal(u32::MAX), Duration::MAX);
        let constant = Backoff { factor: 1, ..POLICY };
        assert_eq!(constant.nominal(u32::MAX), POLICY.base);
        let above_cap = Backoff { base: Duration::from_secs(5), ..POLICY };
        assert_eq!(above_cap.nominal(0), POLICY.max);
    }

    #[test]
    fn reset_starts_over() {
        let mut delays = Backoff { jitter: 0.0, ..POLICY }.delays(Rng::seeded(1));
        let first: Vec<_> = delays.by_ref().take(3).collect();
        assert_eq!(delays.attempts(), 3);
        delays.reset();
        assert_eq!(delays.take(3).collect::<Vec<_>>(), first);
    }

    proptest! {
        #[test]
        fn stays_between_the_jittered_floor_and_the_nominal_wait(seed: u64, attempt in 0_u32..64) {
            let (delay, nominal) = (POLICY.delay(attempt, &mut Rng::seeded(seed)), POLICY.nominal(attempt));
            prop_assert!(nominal / 2 <= delay + Duration::from_micros(1) && delay <= nominal);
        }
    }
}
