//! What several tests of this crate share.

#![allow(dead_code, reason = "every test binary compiles this module and uses its own part of it")]

pub(crate) mod bytes;
pub(crate) mod history;
pub(crate) mod story;
pub(crate) mod values;
pub(crate) mod world;

use quorate_model::Name;

/// A legal name.
pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}
