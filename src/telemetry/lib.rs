//! Logging and every metric's name and label.
//!
//! [`logging`] sets up where log lines go and how they look; [`metrics`] is the one file that spells a metric's name;
//! [`recorder`] keeps the numbers and prints them for Prometheus.

pub mod logging;
pub mod metrics;
pub mod recorder;
