//! The one clock: wall time for people and the log, monotonic time for leases and timers.
//!
//! Wall time ([`Timestamp`]) may jump; it is stamped into commands by the proposer and shown to people. Monotonic time
//! ([`Mono`]) never goes back and is the only ground for a lease, a deadline or a measured duration.

mod duration;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub use duration::{DurationError, format_duration, parse_duration};

/// Wall-clock time: milliseconds since the Unix epoch, UTC.
///
/// Prints as RFC 3339 with milliseconds, for example `2026-11-30T22:10:00.250Z`. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The last representable moment; later ones saturate here.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This moment plus `span`, whole milliseconds, at most [`Timestamp::MAX`].
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(span)))
    }

    /// This moment minus `span`, whole milliseconds, at least [`Timestamp::EPOCH`].
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(whole_millis(span)))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1_000, self.0 % 1_000);
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Proleptic Gregorian date of the day `days` after 1970-01-01.
///
/// The well-known civil-from-days algorithm: shift the epoch to 0000-03-01 so that the leap day ends a year, then
/// split into 400-year eras of 146,097 days.
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Monotonic time of one process: comparable and subtractable, meaningless to any other process.
///
/// Like `std::time::Instant`, and it follows tokio's clock, so it stands still when a test pauses that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(Instant);

impl Mono {
    /// This moment plus `span`; a moment beyond what the platform can represent becomes one 30 years away.
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(add(self.0, span))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// For tokio's own timers (`sleep_until`, `timeout_at`). Right for the system clock alone: a manual clock's timers
    /// are [`Clock::sleep_until`].
    pub const fn instant(self) -> Instant {
        self.0
    }
}

fn add(instant: Instant, span: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
    instant.checked_add(span).unwrap_or_else(|| instant + THIRTY_YEARS)
}

/// Where time comes from. A clone shows the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<Manual>),
}

#[derive(Debug)]
struct Manual {
    start_wall: Timestamp,
    start_mono: Instant,
    elapsed: watch::Sender<Duration>,
}

impl Clock {
    /// The machine's clock.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `start` and moves only by [`Clock::advance`]. For tests and simulation.
    pub fn manual(start: Timestamp) -> Self {
        let elapsed = watch::Sender::new(Duration::ZERO);
        Self(Source::Manual(Arc::new(Manual { start_wall: start, start_mono: system_mono(), elapsed })))
    }

    /// Wall time. May jump in either direction when the machine's clock is set.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_wall(),
            Source::Manual(manual) => manual.start_wall.saturating_add(*manual.elapsed.borrow()),
        }
    }

    /// Monotonic time. Never goes back.
    pub fn monotonic(&self) -> Mono {
        match &self.0 {
            Source::System => Mono(system_mono()),
            Source::Manual(manual) => Mono(add(manual.start_mono, *manual.elapsed.borrow())),
        }
    }

    /// Moves a manual clock on by `span` and wakes who sleeps on it. Returns false, and does nothing, on the system clock.
    pub fn advance(&self, span: Duration) -> bool {
        match &self.0 {
            Source::System => false,
            Source::Manual(manual) => {
                manual.elapsed.send_modify(|elapsed| *elapsed = elapsed.saturating_add(span));
                true
            }
        }
    }

    /// Waits until this clock shows `deadline`. Safe to cancel.
    pub async fn sleep_until(&self, deadline: Mono) {
        match &self.0 {
            Source::System => tokio::time::sleep_until(deadline.0).await,
            Source::Manual(manual) => {
                let mut elapsed = manual.elapsed.subscribe();
                // An error means that the sender is gone, and `self` keeps it alive.
                let _ = elapsed.wait_for(|elapsed| add(manual.start_mono, *elapsed) >= deadline.0).await;
            }
        }
    }

    /// Waits for `span` on this clock. Safe to cancel.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.monotonic().saturating_add(span)).await;
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
fn system_wall() -> Timestamp {
    let now = std::time::SystemTime::now();
    // A clock set before 1970 counts as 1970: replicated time never goes back, so the state stays sound.
    let span = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(whole_millis(span))
}

#[expect(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
fn system_mono() -> Instant {
    Instant::now()
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_rfc3339() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_234_567_890_123, "2009-02-13T23:31:30.123Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, text) in table {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
        assert!(Timestamp::MAX.to_string().ends_with('Z'));
    }

    #[test]
    fn arithmetic_saturates() {
        let second = Duration::from_secs(1);
        assert_eq!(Timestamp::MAX.saturating_add(second), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_sub(second), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(2_500).since(Timestamp::from_millis(1_500)), second);
        let now = Clock::system().monotonic();
        assert!(now.saturating_add(Duration::MAX) > now);
    }

    #[test]
    fn manual_clock_moves_only_when_told_and_clones_share_it() {
        let clock = Clock::manual(Timestamp::from_millis(1_000));
        let (other, before) = (clock.clone(), clock.monotonic());
        assert!(other.advance(Duration::from_millis(250)));
        assert_eq!(clock.now(), Timestamp::from_millis(1_250));
        assert_eq!(clock.monotonic().since(before), Duration::from_millis(250));
        assert!(!Clock::system().advance(Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn manual_sleep_ends_when_the_clock_reaches_it() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let deadline = clock.monotonic().saturating_add(Duration::from_secs(10));
        let early = async {
            clock.advance(Duration::from_secs(9));
            tokio::task::yield_now().await;
        };
        tokio::select! {
            biased;
            () = clock.sleep_until(deadline) => panic!("woke a second early"),
            () = early => {}
        }
        clock.advance(Duration::from_secs(1));
        clock.sleep_until(deadline).await;
    }

    #[tokio::test(start_paused = true)]
    async fn system_monotonic_follows_a_paused_runtime() {
        let clock = Clock::system();
        let before = clock.monotonic();
        clock.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(clock.monotonic().since(before).as_secs(), 3_600);
    }

    proptest! {
        #[test]
        fn text_order_is_time_order(a in 0_u64..253_402_300_800_000, b in 0_u64..253_402_300_800_000) {
            let (x, y) = (Timestamp::from_millis(a), Timestamp::from_millis(b));
            prop_assert_eq!(x.cmp(&y), x.to_string().cmp(&y.to_string()));
        }
    }
}
