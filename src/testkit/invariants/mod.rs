//! What must hold in every history: one file each, with its source and a bad case that trips it.

mod acknowledged_jobs;
mod back_off;
mod batch_ends;
mod capacity;
mod converged;
mod exact_once;
mod fenced_plans;
mod indexes;
mod just_down;
mod known_nodes;
mod leadership;
mod lost_nodes;
mod monotone_states;
mod no_orphans;
mod obedience;
mod one_node_per_task;
mod orphans;
mod purged_jobs;
mod quiet;
mod slots;
mod stated_reasons;
mod time;
mod untouched;

#[cfg(test)]
mod bad;

use quorate_model::Term;
use quorate_state::{Applied, Envelope, Position, State};

use crate::world::{Agent, Journal};

/// `Err` says what was seen.
pub type Verdict = Result<(), String>;

/// One applied entry.
pub struct Step<'a> {
    /// The state before it.
    pub before: &'a State,
    /// The state after it.
    pub after: &'a State,
    /// Its place in the log.
    pub at: Position,
    /// What was applied.
    pub envelope: &'a Envelope,
    /// What it gave.
    pub applied: &'a Applied,
    /// The world's records, with this entry.
    pub journal: &'a Journal,
    /// The machines.
    pub agents: &'a [Agent],
    /// Simulated milliseconds.
    pub now_ms: u64,
}

/// The cluster at one moment.
pub struct Scene<'a> {
    /// The state.
    pub state: &'a State,
    /// The machines.
    pub agents: &'a [Agent],
    /// The world's records.
    pub journal: &'a Journal,
    /// Term of the elected leader.
    pub leader: Option<Term>,
    /// Simulated milliseconds.
    pub now_ms: u64,
}

/// Something that must hold.
pub struct Invariant {
    /// Its name.
    pub name: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Checked after every entry.
    pub step: Option<fn(&Step<'_>) -> Verdict>,
    /// Checked whenever a container starts.
    pub always: Option<fn(&Scene<'_>) -> Verdict>,
    /// Checked when the cluster was whole for long enough.
    pub at_rest: Option<fn(&Scene<'_>) -> Verdict>,
}

impl Invariant {
    const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, step: None, always: None, at_rest: None }
    }
}

/// All of them.
pub const ALL: [Invariant; 23] = [
    acknowledged_jobs::INVARIANT,
    back_off::INVARIANT,
    batch_ends::INVARIANT,
    capacity::INVARIANT,
    converged::INVARIANT,
    exact_once::INVARIANT,
    fenced_plans::INVARIANT,
    indexes::INVARIANT,
    just_down::INVARIANT,
    known_nodes::INVARIANT,
    leadership::INVARIANT,
    lost_nodes::INVARIANT,
    monotone_states::INVARIANT,
    no_orphans::INVARIANT,
    obedience::INVARIANT,
    one_node_per_task::INVARIANT,
    orphans::INVARIANT,
    purged_jobs::INVARIANT,
    quiet::INVARIANT,
    slots::INVARIANT,
    stated_reasons::INVARIANT,
    time::INVARIANT,
    untouched::INVARIANT,
];

/// Name of a broken invariant and what was seen.
pub type Broken = Option<(&'static str, String)>;

/// The first that an entry breaks.
pub fn after_step(step: &Step<'_>) -> Broken {
    ALL.iter().find_map(|one| Some((one.name, one.step?(step).err()?)))
}

/// The first that the machines break.
pub fn always(scene: &Scene<'_>) -> Broken {
    ALL.iter().find_map(|one| Some((one.name, one.always?(scene).err()?)))
}

/// The first that the cluster breaks at rest.
pub fn at_rest(scene: &Scene<'_>) -> Broken {
    ALL.iter().find_map(|one| Some((one.name, one.at_rest?(scene).err()?)))
}

/// `Err` with the text unless `holds`.
fn ensure(holds: bool, text: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(text()) }
}
