//! The one source of randomness, always seeded, so that a failing run repeats from its seed.

use std::time::Duration;

use rand::rngs::ChaCha12Rng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

/// A seeded stream of random numbers (ChaCha with 12 rounds: the same numbers on each platform, unpredictable when
/// seeded from entropy, so fit for tokens as well).
///
/// Deliberately not `Clone`: two copies would draw the same request ids. Use [`Rng::fork`].
#[derive(Debug)]
pub struct Rng(ChaCha12Rng);

impl Rng {
    /// A stream that nobody can predict, seeded by the operating system.
    ///
    /// Ends the process's start with a panic of the `rand` crate if the operating system has no entropy: nothing here
    /// is safe to run without.
    pub fn from_entropy() -> Self {
        Self(rand::make_rng())
    }

    /// The stream of `seed`: the same numbers each time.
    pub fn seeded(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// An independent stream for `purpose`, seeded from this one.
    ///
    /// Each fork differs from all others, whatever their purposes. The purpose also parts the streams of parents that
    /// a test seeded alike (three managers of one seed, each forking by its name).
    pub fn fork(&mut self, purpose: &str) -> Self {
        let mut seed = self.bytes::<32>();
        for (byte, mix) in seed.iter_mut().zip(fnv1a(purpose).to_le_bytes()) {
            *byte ^= mix;
        }
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A number in `0..bound`, each equally likely; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// A number from `low` to `high`, both included and each equally likely; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if low >= high { low } else { self.0.random_range(low..=high) }
    }

    /// A span from `low` to `high`, both included, at nanosecond grain; `low` when the range is empty.
    pub fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX);
        low.saturating_add(Duration::from_nanos(self.between(0, span)))
    }

    /// `span` shortened by a random part of at most `fraction` (0 to 1, clamped): never longer than `span`, so a cap
    /// stays a cap.
    pub fn jitter(&mut self, span: Duration, fraction: f64) -> Duration {
        let fraction = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
        span.mul_f64(fraction.mul_add(-self.unit(), 1.0)).min(span)
    }

    /// True with probability `p` (0 to 1; beyond that never or always).
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// One item, each equally likely; none of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).unwrap_or(0))
    }

    /// Puts `items` into a random order, each order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        rand::seq::SliceRandom::shuffle(items, &mut self.0);
    }

    /// A number in `0.0..1.0`.
    fn unit(&mut self) -> f64 {
        self.0.random()
    }
}

/// FNV-1a, 64 bits: fixed for ever, unlike the standard library's hasher.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rand::Rng;
    use proptest::prelude::*;

    fn draw(rng: &mut Rng) -> [u64; 4] {
        std::array::from_fn(|_| rng.next_u64())
    }

    #[test]
    fn same_seed_same_numbers_other_seed_other_numbers() {
        assert_eq!(draw(&mut Rng::seeded(7)), draw(&mut Rng::seeded(7)));
        assert_ne!(draw(&mut Rng::seeded(7)), draw(&mut Rng::seeded(8)));
        assert_ne!(draw(&mut Rng::from_entropy()), draw(&mut Rng::from_entropy()));
    }

    #[test]
    fn forks_repeat_from_the_seed_and_never_share_a_stream() {
        let fork = |purpose| draw(&mut Rng::seeded(7).fork(purpose));
        assert_eq!(fork("disk"), fork("disk"));
        assert_ne!(fork("disk"), fork("network"));
        let mut parent = Rng::seeded(7);
        assert_ne!(draw(&mut parent.fork("disk")), draw(&mut parent.fork("disk")));
    }

    #[test]
    fn chance_holds_at_its_ends() {
        let mut rng = Rng::seeded(1);
        assert!((0..1_000).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
    }

    #[test]
    fn empty_ranges_and_slices_are_defined() {
        let mut rng = Rng::seeded(1);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(9, 3), 9);
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert_eq!(rng.jitter(Duration::from_secs(1), f64::NAN), Duration::from_secs(1));
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::seeded(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn draws_stay_in_their_ranges(seed: u64, low: u64, high: u64, millis in 0_u64..1_000_000, fraction in 0.0..1.0_f64) {
            let mut rng = Rng::seeded(seed);
            let drawn = rng.between(low, high);
            prop_assert!(drawn == low || (low..=high).contains(&drawn));
            let span = Duration::from_millis(millis);
            let jittered = rng.jitter(span, fraction);
            prop_assert!(jittered <= span && jittered + Duration::from_micros(1) >= span.mul_f64(1.0 - fraction));
            let wide = rng.duration_between(span, span * 2);
            prop_assert!(span <= wide && wide <= span * 2);
        }
    }
}
