//! Which tasks should exist in which desired state.
//!
//! One pure reconciler per concern: it looks at a snapshot and answers with the
//! commands that bring the state closer to what is wanted. It keeps no memory:
//! restart counts, back-off and the steps of a roll-out are all in the state, so
//! a new leader goes on where the old one was cut off, and a pass over a
//! settled state gives nothing.
//!
//! The manager's driver runs [`registry`] on the leader, in its order, for each
//! newer revision and at every `wake_at`, proposes the commands fenced by its
//! term, and passes again when something was refused.

mod batch;
mod bounds;
mod ended;
mod nodes;
mod placement;
mod reaper;
mod rehearse;
mod restart;
mod rollout;
mod seat;
mod service;
mod victims;

use quorate_base::time::Timestamp;
use quorate_model::NodeId;
use quorate_state::{Command, State};

pub use bounds::{MAX_CREATED, MAX_LISTED, MAX_PASS, MAX_PLACED};
pub use rehearse::{Rehearsal, SlotPlan, rehearse};

/// When and by what knowledge a pass runs.
#[derive(Debug, Clone, Copy)]
pub struct Tick<'a> {
    /// The leader's clock.
    pub now: Timestamp,
    /// Ready nodes whose agent this leader has not heard for a whole lease: its memory, on monotonic time.
    pub overdue: &'a [NodeId],
}

impl Tick<'_> {
    /// The moment of the pass: the leader's clock, or replicated time where that is ahead. A clock
    /// that was set back must not stretch anybody's back-off.
    #[must_use]
    pub fn moment(&self, view: &State) -> Timestamp {
        self.now.max(view.now())
    }
}

/// What a pass asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// To be proposed in this order.
    pub commands: Vec<Command>,
    /// The next moment at which time alone changes the answer.
    pub wake_at: Option<Timestamp>,
}

impl Outcome {
    /// Notes a moment to look again; the earliest counts.
    pub(crate) fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

/// One concern.
pub trait Reconciler: Send + Sync {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// What it asks for, given the state. No memory: `&self`.
    fn reconcile(&self, view: &State, tick: &Tick<'_>) -> Outcome;
}

/// All reconcilers, in the order in which their commands are proposed: what ends tasks comes
/// before what places them.
#[must_use]
pub fn registry() -> Vec<Box<dyn Reconciler>> {
    vec![
        Box::new(nodes::Nodes),
        Box::new(ended::Ended),
        Box::new(service::Service),
        Box::new(batch::Batch),
        Box::new(placement::Placement),
        Box::new(reaper::Reaper),
    ]
}
