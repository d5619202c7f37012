//! Runs sets of seeds.

use crate::{
    counters::Counters,
    world::{self, Failure},
};

/// What a set of seeds gave.
#[derive(Debug, Default)]
pub struct Batch {
    /// How many ran.
    pub seeds: u64,
    /// Log entries over all.
    pub entries: u64,
    /// Events over all.
    pub events: u64,
    /// What they have seen.
    pub counters: Counters,
}

/// Runs `count` seeds from `first` on.
///
/// # Errors
/// The first failing seed, with the command that repeats it.
pub fn run(first: u64, count: u64) -> Result<Batch, Failure> {
    let mut batch = Batch::default();
    for seed in first..first + count {
        let summary = world::run(seed)?;
        batch.seeds += 1;
        batch.entries += summary.entries;
        batch.events += summary.events;
        batch.counters.merge(&summary.counters);
    }
    Ok(batch)
}
