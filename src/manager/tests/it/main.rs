//! Managers as their clients and agents meet them: real servers, real stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod agents;
mod bad_input;
mod cluster;
mod http;
mod reads;
mod relays;
mod semantics;
mod store;
mod watch;
mod words;
mod writes;
