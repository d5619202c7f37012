//! Waiting on conditions, with a bound and a reason.

use std::time::Duration;

use anyhow::{Result, bail};
use quorate_base::{Clock, format_duration};

use crate::term::Note;

/// How long to rest between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What one look at a condition saw.
pub enum Look<T> {
    /// It holds.
    Done(T),
    /// Not yet; the text says what is missing and is part of the error when time runs out.
    NotYet(String),
}

impl<T> Look<T> {
    /// The same look, with what is missing shown beside the running step.
    pub fn noted(self, note: &Note) -> Self {
        if let Self::NotYet(missing) = &self {
            note.set(missing.as_str());
        }
        self
    }
}

/// Looks until the condition holds.
///
/// # Errors
/// When it does not hold within `limit`, with what was missing at the last look; and what `look` itself gives up with.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Look<T>>,
) -> Result<T> {
    let clock = Clock::system();
    let deadline = clock.monotonic().saturating_add(limit);
    loop {
        let missing = match look().await? {
            Look::Done(value) => return Ok(value),
            Look::NotYet(missing) => missing,
        };
        if clock.monotonic() >= deadline {
            bail!("{what}: not within {}: {missing}", format_duration(limit));
        }
        clock.sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn returns_the_value_of_the_first_look_that_holds() {
        let mut looks = 0;
        let seen = until("third look", Duration::from_secs(1), async || {
            looks += 1;
            Ok(if looks < 3 { Look::NotYet("too early".to_owned()) } else { Look::Done(looks) })
        })
        .await;
        assert_eq!(seen.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_with_what_was_missing() {
        let seen: Result<()> =
            until("a leader", Duration::from_secs(2), async || Ok(Look::NotYet("m1 knows none".to_owned())))
                .await;
        assert_eq!(seen.unwrap_err().to_string(), "a leader: not within 2s: m1 knows none");
    }
}
