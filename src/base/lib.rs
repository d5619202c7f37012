//! Clock, seeded randomness, ids, back-off, supervised task groups, coalescing queue.
//!
//! The bottom floor: every other crate may use this one and this one uses none of ours. It is the only place that
//! reads a clock ([`time`]), draws entropy ([`rand`]) and spawns work ([`tasks`]), so that a test or the simulator
//! can replace all three and replay a run from its seed.

pub mod backoff;
pub mod coalesce;
pub mod id;
pub mod rand;
pub mod sync;
pub mod tasks;
pub mod time;

pub use backoff::{Backoff, Delays};
pub use coalesce::{CoalescingQueue, QueueFull};
pub use id::{ClusterId, InvalidId, RequestId, RequestIds, next_incarnation};
pub use rand::Rng;
pub use tasks::{OnCancel, OnError, ShutdownReport, TaskFailure, TaskGroup, TaskKind};
pub use time::{Clock, Mono, Timestamp, format_duration, parse_duration};
