//! Managers as their clients and agents meet them: real servers, real stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod agents;
mod cluster;
mod http;
mod reads;
mod relays;
mod store;
mod words;
mod writes;
