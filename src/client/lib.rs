//! Leader-aware channel set, retries with one request id.
//!
//! A [`Client`] knows several managers and turns their failures into a short wait: a call goes to the leader (writes) or
//! to the nearest manager (reads), moves on when that one is dead, frozen or without a leader, and stays inside one
//! deadline. A write draws one request id and keeps it over all tries, so that it happens at most once however often it
//! was sent.

mod answer;
mod attempt;
mod calls;
mod client;
mod error;
mod exec;
mod logs;
mod set;
mod status;
#[cfg(test)]
mod test;
mod watch;

pub use client::{Client, Options};
pub use error::{ClientError, Try};
pub use exec::{Exec, Input};
pub use logs::{LogEvent, Logs};
pub use status::ManagerAnswer;
pub use watch::{Watch, WatchEvent};
