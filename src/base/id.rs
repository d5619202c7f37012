//! Identifiers that are drawn rather than counted.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use thiserror::Error;

use crate::rand::Rng;
use crate::sync::lock;
use crate::time::{Clock, Timestamp};

/// Crockford's base 32: no I, L, O, U.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of a ULID: 130 bits for 128, so the first is at most 7.
const ULID_LEN: usize = 26;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidId {
    /// Empty or too long.
    #[error("the request id has {length} bytes; it needs 1 to {}", RequestId::MAX_LEN)]
    RequestIdLength {
        /// Bytes of the input.
        length: usize,
    },
    /// A blank, a control character, or anything beyond ASCII.
    #[error("request id {text:?}: {character:?} is not allowed; use visible ASCII characters without blanks")]
    RequestIdCharacter {
        /// The input.
        text: String,
        /// The first offender.
        character: char,
    },
    /// Not the 26 characters of a ULID.
    #[error("cluster id {text:?} is not a ULID; copy the 26 characters that `quorate cluster status` prints")]
    ClusterId {
        /// The input.
        text: String,
    },
}

/// Names one intended write: all retries of it carry the same id, and the state applies it once.
///
/// 1 to 64 visible ASCII characters; ours are ULIDs, a client may bring its own. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// The most bytes that an id may have.
    pub const MAX_LEN: usize = 64;

    /// Checks and takes a client's id.
    ///
    /// # Errors
    /// [`InvalidId`] when it is empty, longer than [`RequestId::MAX_LEN`], or holds anything but visible ASCII.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() || text.len() > Self::MAX_LEN {
            return Err(InvalidId::RequestIdLength { length: text.len() });
        }
        match text.chars().find(|c| !c.is_ascii_graphic()) {
            Some(character) => Err(InvalidId::RequestIdCharacter { text: text.to_owned(), character }),
            None => Ok(Self(text.into())),
        }
    }

    /// A fresh id: a ULID of `now` and 80 random bits.
    pub fn generate(now: Timestamp, rng: &mut Rng) -> Self {
        Self(ulid_text(ulid(now, rng)).into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RequestId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

/// A shared source of fresh request ids.
#[derive(Debug)]
pub struct RequestIds {
    clock: Clock,
    rng: Mutex<Rng>,
}

impl RequestIds {
    /// Ids of this clock's time and this stream's bits.
    pub const fn new(clock: Clock, rng: Rng) -> Self {
        Self { clock, rng: Mutex::new(rng) }
    }

    /// A fresh id.
    pub fn generate(&self) -> RequestId {
        RequestId::generate(self.clock.now(), &mut lock(&self.rng))
    }
}

/// Names a cluster for ever; drawn once, when it is bootstrapped. Prints as a ULID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(u128);

impl ClusterId {
    /// A fresh id: a ULID of `now` and 80 random bits.
    pub fn generate(now: Timestamp, rng: &mut Rng) -> Self {
        Self(ulid(now, rng))
    }

    /// The id of these 128 bits, as stored.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits, for storing.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&ulid_text(self.0))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl FromStr for ClusterId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        ulid_parse(text).map(Self).ok_or_else(|| InvalidId::ClusterId { text: text.to_owned() })
    }
}

/// The number of one life of a process: greater than `previous` and, clocks permitting, than any before it.
///
/// 48 bits of milliseconds, then 16 random bits, so that two lives started in one millisecond differ as well. Pass the
/// last stored number where there is one: it holds the order even when the clock was set back.
pub fn next_incarnation(previous: Option<u64>, now: Timestamp, rng: &mut Rng) -> u64 {
    let drawn = (now.as_millis() << 16) | rng.below(1 << 16);
    previous.map_or(drawn, |previous| drawn.max(previous.saturating_add(1)))
}

/// 48 bits of milliseconds, then 80 random bits.
fn ulid(now: Timestamp, rng: &mut Rng) -> u128 {
    let random = u128::from_le_bytes(rng.bytes());
    (u128::from(now.as_millis()) << 80) | (random >> 48)
}

fn ulid_text(bits: u128) -> String {
    (0..ULID_LEN).rev().map(|place| char::from(CROCKFORD[(bits >> (5 * place)) as usize & 31])).collect()
}

fn ulid_parse(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != ULID_LEN || bytes[0] > b'7' {
        return None;
    }
    bytes.iter().try_fold(0_u128, |bits, byte| {
        let digit = CROCKFORD.iter().position(|c| *c == byte.to_ascii_uppercase())?;
        Some((bits << 5) | digit as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rand::Rng;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_469_918_176_385);

    #[test]
    fn ulid_text_matches_the_specification() {
        // The time part of the ULID specification's example, and the two ends of the range.
        assert_eq!(&ulid_text(u128::from(NOW.as_millis()) << 80)[..10], "01ARYZ6S41");
        assert_eq!(ulid_text(0), "00000000000000000000000000");
        assert_eq!(ulid_text(u128::MAX), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    #[test]
    fn request_ids_sort_by_time_and_differ_within_a_millisecond() {
        let mut rng = Rng::seeded(1);
        let (a, b) = (RequestId::generate(NOW, &mut rng), RequestId::generate(NOW, &mut rng));
        assert_ne!(a, b);
        let later = RequestId::generate(Timestamp::from_millis(NOW.as_millis() + 1), &mut rng);
        assert!(later > a && later > b);
        let ids = RequestIds::new(Clock::manual(NOW), Rng::seeded(1));
        assert_eq!((ids.generate(), ids.generate()), (a, b));
    }

    #[test]
    fn request_ids_are_checked() {
        let longest = "x".repeat(64);
        for good in ["1", "my-ci-job#42", longest.as_str()] {
            assert_eq!(RequestId::new(good).unwrap().as_str(), good);
        }
        let table = [
            ("", "the request id has 0 bytes; it needs 1 to 64"),
            ("a b", "request id \"a b\": ' ' is not allowed; use visible ASCII characters without blanks"),
            ("a\n", "request id \"a\\n\": '\\n' is not allowed; use visible ASCII characters without blanks"),
            ("é", "request id \"é\": 'é' is not allowed; use visible ASCII characters without blanks"),
        ];
        for (bad, message) in table {
            assert_eq!(RequestId::new(bad).unwrap_err().to_string(), message);
        }
        assert_eq!(RequestId::new(&"x".repeat(65)), Err(InvalidId::RequestIdLength { length: 65 }));
    }

    #[test]
    fn cluster_ids_are_checked() {
        let too_large = format!("8{}", "0".repeat(25));
        for bad in
            ["", "01ARYZ6S41", too_large.as_str(), "0000000000000000000000000U", "0000000000000000000000000é"]
        {
            assert_eq!(bad.parse::<ClusterId>(), Err(InvalidId::ClusterId { text: bad.to_owned() }));
        }
    }

    #[test]
    fn incarnations_only_grow() {
        let mut rng = Rng::seeded(1);
        let first = next_incarnation(None, NOW, &mut rng);
        assert_eq!(first >> 16, NOW.as_millis());
        assert!(next_incarnation(Some(first), NOW, &mut rng) > first);
        assert_eq!(next_incarnation(Some(first), Timestamp::EPOCH, &mut rng), first + 1, "clock set back");
    }

    proptest! {
        #[test]
        fn cluster_ids_read_back_in_either_case(bits: u128) {
            let id = ClusterId::from_u128(bits);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert_eq!(id.to_string().to_lowercase().parse(), Ok(id));
        }
    }
}
