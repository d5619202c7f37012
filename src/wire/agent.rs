//! The agents' protocol, and its conversions for both sides.

mod assignment;
mod facts;
mod held;

use std::cmp::Ordering;

pub use crate::generated::agent::*;
pub use assignment::{AssignedTask, Wanted, Workload, assignment, member_hash, set_hash};
pub use quorate_state::Report;

impl Ord for Fence {
    /// By epoch, then by term.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.epoch, self.term).cmp(&(other.epoch, other.term))
    }
}

impl PartialOrd for Fence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
