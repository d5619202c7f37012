//! Real clusters of real processes: the demo, fault drills, history checkers and benchmarks.
//!
//! Everything here sees the product from outside: its executable, its API, its signals, and what the operating system
//! and the Docker engine say about the containers. Checkers are pure functions on what was recorded, so that each has
//! tests on histories that are wrong on purpose.

pub mod api;
pub mod bench;
pub mod check;
pub mod cluster;
pub mod demo;
pub mod drills;
pub mod history;
pub mod metrics;
pub mod probe;
pub mod report;
pub mod term;
pub mod truth;
pub mod wait;
pub mod watcher;
pub mod workload;

use quorate_base::TaskGroup;

/// The root of everything that a command of the harness spawns. Failures go to standard error.
pub fn task_group(name: &str) -> TaskGroup {
    TaskGroup::new(name, |failure| eprintln!("{failure}"))
}
