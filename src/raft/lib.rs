//! Consensus: the only crate that names openraft.
//!
//! A [`Node`] replicates one [`quorate_state::State`] among the managers. It
//! finds its cluster by itself, proposes, reads linearizably on any member,
//! and publishes what was applied.
//!
//! ```text
//! propose ─→ openraft ─→ log (storage: one flush per group) ─→ quorum ─→ apply ─→ reply
//!               │                                                          ├→ view, applied, updates
//!               └─ network: three connections per peer (append · control · bulk) ─→ service of the peer
//! ```

mod codec;
mod config;
mod core;
mod death;
mod error;
mod formation;
mod leadership;
mod log;
mod machine;
mod membership;
mod network;
mod node;
mod peers;
mod service;
mod snapshot;
mod status;
mod types;

pub use config::{RaftConfig, Timers};
pub use error::{FatalError, MembershipError, ProposeError, ReadError, StartError};
pub use machine::Update;
pub use node::{Identity, Node, RaftServer, Reply, Setup, Told};
pub use service::Service;
pub use status::{LeaderInfo, Leadership, MemberStatus, RaftStatus, Role};

#[cfg(test)]
mod suite;
