//! World simulator, generators and oracles (a dev-dependency, never shipped).
//!
//! [`world`] runs a whole cluster in one event queue, without threads, sockets or a clock: the
//! real state machine, the real reconcilers and the real scheduler; a log that is a list; leaders
//! that crash, are cut off and come back without memory; agents with sessions, assignment sets and
//! containers that fail. One seed gives one history, to the last event.
//!
//! [`invariants`] are what must hold in every such history, one per file, each with its source and
//! a hand-made bad case that trips it.

pub mod counters;
pub mod generate;
pub mod invariants;
pub mod seeds;
pub mod trace;
pub mod world;
