//! The trust zones and their transport numbers.

use std::fmt;
use std::time::Duration;

/// A trust zone: who talks to whom. Each has its own listener and its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Users, scripts and the web interface to a manager.
    Api,
    /// Agents to a manager.
    Agent,
    /// Managers to each other.
    Peer,
    /// Metrics and health checks, plain HTTP.
    Admin,
}

/// The numbers of one zone. Pings go out also while nothing is in flight: without them a connection whose packets are
/// eaten stays "open" and every later call hangs on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// The most that opening a connection may take.
    pub(crate) connect_timeout: Duration,
    /// How long a connection may be silent before it is pinged.
    pub(crate) ping_interval: Duration,
    /// How long a ping may go unanswered before the connection is given up.
    pub(crate) ping_timeout: Duration,
    /// Calls at once on one connection.
    pub(crate) max_streams: u32,
    /// Bytes in flight of one call.
    pub(crate) stream_window: u32,
    /// Bytes in flight of one connection.
    pub(crate) connection_window: u32,
}

const KIB: u32 = 1024;

impl Profile {
    /// All zones.
    pub const ALL: [Self; 4] = [Self::Api, Self::Agent, Self::Peer, Self::Admin];

    pub(crate) const fn tuning(self) -> Tuning {
        let lan = Tuning {
            connect_timeout: Duration::from_secs(2),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(5),
            max_streams: 200,
            stream_window: 256 * KIB,
            connection_window: 1024 * KIB,
        };
        match self {
            // Proxies in between count pings: not too often.
            Self::Api | Self::Admin => lan,
            // A frozen manager must be noticed within half of an agent's lease (5 s): an agent that waits longer counts
            // as down with the next leader, and its tasks are replaced though nothing is wrong with them.
            Self::Agent => Tuning {
                ping_interval: Duration::from_secs(1),
                ping_timeout: Duration::from_millis(1_500),
                ..lan
            },
            // A peer behind a healed partition must catch up at once; snapshots must not starve appends.
            Self::Peer => Tuning {
                connect_timeout: Duration::from_secs(1),
                ping_interval: Duration::from_secs(1),
                ping_timeout: Duration::from_secs(2),
                max_streams: 1_024,
                stream_window: 2 * 1024 * KIB,
                connection_window: 16 * 1024 * KIB,
            },
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Api => "API",
            Self::Agent => "agent",
            Self::Peer => "peer",
            Self::Admin => "admin",
        })
    }
}
