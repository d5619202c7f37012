//! What people see, as pure functions from answers to text.

pub(crate) mod change;
pub(crate) mod cluster;
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod task;
pub(crate) mod usage;
pub(crate) mod words;

pub(crate) use style::Style;
