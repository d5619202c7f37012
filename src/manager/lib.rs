//! A manager: one replica of the control plane.
//!
//! ```text
//! client ──▶ api ──▶ routing ──▶ proposer ──▶ raft ──▶ state ──▶ events
//!              │        └─ a follower passes a write on to the leader, once
//!              └─ reads: every manager, from its own view
//! leader:   duties ─ controller (reconcilers) ─ members ─ liveness
//! agents ──▶ dispatcher ─ one session per node: complete set, increments, statuses
//! ```

pub mod admin;
pub mod api;
pub mod config;
pub mod core;
pub mod dispatcher;
pub mod duties;
pub mod health;
mod http;
mod hub;
pub mod manager;
mod measures;
pub mod proposer;
pub mod routing;
mod rpc;

pub use config::{Address, ManagerConfig, RESYNC};
pub use manager::{Addresses, Listeners, Manager, StartError};
