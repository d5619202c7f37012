//! The reconcilers, case by case and by properties.

#![cfg(test)]

mod batch;
mod nodes;
mod placement;
mod properties;
mod reaper;
mod rehearsal;
mod restart;
mod rollout;
mod room;
mod scale;
mod stop;
