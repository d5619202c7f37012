//! The replicated state machine.
//!
//! Every manager applies the same [`Envelope`]s in the same order and so holds
//! the same [`State`]. Nothing here is async, reads a clock, draws entropy or
//! logs; every table is ordered, so that the same bytes give the same result
//! everywhere.
//!
//! * [`Command`] is what a log entry asks for. Commands carry results (chosen
//!   nodes, slots), never computations, so [`apply()`] stays thin: check the
//!   fence, the request id and the preconditions, write, report [`Event`]s.
//! * A refusal is a [`Rejection`], an answer to the caller. A [`Halt`] means
//!   that this node cannot follow the log and must stop.
//! * [`State`] is a handful of persistent maps: a clone is O(1) and serves as
//!   the snapshot that reconcilers, readers and the image writer use.

pub mod apply;
pub mod command;
pub mod event;
#[cfg(feature = "lab")]
pub mod lab;
pub mod outcome;
pub mod record;
pub mod request;
pub mod sequel;
pub mod tables;

pub use apply::{Applied, apply};
pub use command::{Actor, Command, CommandKind, Envelope, NewTasks, Report, Request};
pub use event::{Change, Event, Object};
pub use outcome::{Halt, Receipt, Rejection};
pub use record::{Builder, Meta, Record};
pub use request::{RequestKey, RequestRecord};
pub use sequel::Sequel;
pub use tables::{Position, State};
