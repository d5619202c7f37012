//! Durations as people write them: `250ms`, `10s`, `1h30m`, `2d`.

use std::time::Duration;

use thiserror::Error;

/// Largest first, so that a canonical text is one walk down the table. Milliseconds each.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Nothing, or blanks only.
    #[error("the duration is empty; write a number and a unit, like 10s or 1h30m")]
    Empty,
    /// A unit without a number before it, a sign, a decimal point or a blank.
    #[error(
        "duration {text:?}: expected a digit at {rest:?}; write whole numbers with a unit, like 10s or 1h30m"
    )]
    NoNumber {
        /// The whole input.
        text: String,
        /// Where a number should have begun.
        rest: String,
    },
    /// A number without a unit.
    #[error("duration {text:?}: {number} has no unit; append one of d, h, m, s, ms (like {number}s)")]
    NoUnit {
        /// The whole input.
        text: String,
        /// The number that lacks a unit.
        number: String,
    },
    /// A unit that we do not know.
    #[error("duration {text:?}: unknown unit {unit:?}; use one of d, h, m, s, ms")]
    UnknownUnit {
        /// The whole input.
        text: String,
        /// The unit as written.
        unit: String,
    },
    /// A unit twice, or a larger one after a smaller one.
    #[error("duration {text:?}: {unit} is out of order; write each unit once, the largest first, like 1h30m")]
    Order {
        /// The whole input.
        text: String,
        /// The offending unit.
        unit: &'static str,
    },
    /// More milliseconds than 64 bits hold.
    #[error(
        "duration {text:?} is too large; the most is {}",
        format_duration(Duration::from_millis(u64::MAX))
    )]
    TooLarge {
        /// The whole input.
        text: String,
    },
}

/// Parses a duration: whole numbers with units `d h m s ms`, largest unit first, without blanks.
///
/// # Errors
/// [`DurationError`], with the text and what to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text.trim().is_empty() {
        return Err(DurationError::Empty);
    }
    let owned = || text.to_owned();
    let (mut rest, mut total, mut units_left) = (text, 0_u64, &UNITS[..]);
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(DurationError::NoNumber { text: owned(), rest: rest.to_owned() });
        }
        let (unit, after) = split_while(after, char::is_alphabetic);
        if unit.is_empty() {
            return match after.is_empty() {
                true => Err(DurationError::NoUnit { text: owned(), number: number.to_owned() }),
                false => Err(DurationError::NoNumber { text: owned(), rest: after.to_owned() }),
            };
        }
        let Some((name, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit { text: owned(), unit: unit.to_owned() });
        };
        let Some(position) = units_left.iter().position(|(left, _)| left == name) else {
            return Err(DurationError::Order { text: owned(), unit: name });
        };
        units_left = &units_left[position + 1..];
        let amount = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
        total = amount
            .and_then(|amount| total.checked_add(amount))
            .ok_or_else(|| DurationError::TooLarge { text: owned() })?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// The canonical text of `span`, cut to whole milliseconds: `1h30m`, `250ms`, `0s`. [`parse_duration`] reads it back.
pub fn format_duration(span: Duration) -> String {
    let mut left = super::whole_millis(span);
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if left >= millis {
            text.push_str(&format!("{}{unit}", left / millis));
            left %= millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_what_people_write() {
        let table = [
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("250ms", 250),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            ("90m", 5_400_000),
        ];
        for (text, millis) in table {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_with_what_to_write_instead() {
        let table = [
            ("", "the duration is empty; write a number and a unit, like 10s or 1h30m"),
            ("  ", "the duration is empty; write a number and a unit, like 10s or 1h30m"),
            ("10", "duration \"10\": 10 has no unit; append one of d, h, m, s, ms (like 10s)"),
            ("1h30", "duration \"1h30\": 30 has no unit; append one of d, h, m, s, ms (like 30s)"),
            (
                "10 s",
                "duration \"10 s\": expected a digit at \" s\"; write whole numbers with a unit, like 10s or 1h30m",
            ),
            (
                "-5s",
                "duration \"-5s\": expected a digit at \"-5s\"; write whole numbers with a unit, like 10s or 1h30m",
            ),
            (
                "1.5s",
                "duration \"1.5s\": expected a digit at \".5s\"; write whole numbers with a unit, like 10s or 1h30m",
            ),
            ("3w", "duration \"3w\": unknown unit \"w\"; use one of d, h, m, s, ms"),
            ("3é", "duration \"3é\": unknown unit \"é\"; use one of d, h, m, s, ms"),
            (
                "1s1s",
                "duration \"1s1s\": s is out of order; write each unit once, the largest first, like 1h30m",
            ),
            (
                "30m1h",
                "duration \"30m1h\": h is out of order; write each unit once, the largest first, like 1h30m",
            ),
        ];
        for (text, message) in table {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), message);
        }
        for text in ["99999999999999999999s", "18446744073709551615s", "213503982334d15h"] {
            assert_eq!(parse_duration(text), Err(DurationError::TooLarge { text: text.to_owned() }));
        }
    }

    #[test]
    fn formats_canonically() {
        let table = [(0, "0s"), (250, "250ms"), (90_000, "1m30s"), (5_400_000, "1h30m"), (86_400_000, "1d")];
        for (millis, text) in table {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }

    proptest! {
        #[test]
        fn reads_back_what_it_prints(millis: u64) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(span)), Ok(span));
        }

        #[test]
        fn never_panics(text: String) {
            let _ = parse_duration(&text);
        }
    }
}
