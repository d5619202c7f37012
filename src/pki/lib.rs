//! The security seam: how every server listens and every client connects.
//!
//! One [`Security`] per process decides what protects its traffic. Servers come from [`Security::listen`] and
//! [`Security::server`], clients from [`Security::endpoint`], and from nowhere else, so that a change of protection is a
//! change here alone. The [`Profile`] names the trust zone and carries the transport's numbers.

mod connect;
mod listen;
mod profile;
mod prompt;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

pub use connect::EndpointError;
pub use listen::{ListenError, Listener};
pub use profile::Profile;

/// What protects a process's traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// Nothing, so nothing leaves the machine: loopback addresses only.
    #[default]
    PlaintextLoopback,
    /// Nothing, on any address: an explicit choice for networks that are trusted or protected otherwise.
    PlaintextAnywhere,
}

impl Security {
    /// The sentence that a process logs once, at its start, when its traffic is not protected.
    pub const fn warning(&self) -> Option<&'static str> {
        match self {
            Self::PlaintextLoopback => Some(
                "traffic is plain text without authentication: every user of this machine can control the cluster; only \
                 loopback addresses are allowed",
            ),
            Self::PlaintextAnywhere => Some(
                "traffic is plain text without authentication on every address: whoever reaches these ports can read \
                 it and control the cluster",
            ),
        }
    }

    /// Whether traffic with `ip` may go unprotected.
    const fn allows(&self, ip: IpAddr) -> bool {
        match self {
            Self::PlaintextLoopback => ip.is_loopback(),
            Self::PlaintextAnywhere => true,
        }
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PlaintextLoopback => "plaintext-loopback",
            Self::PlaintextAnywhere => "plaintext-anywhere",
        })
    }
}

/// A text that names no [`Security`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("security {text:?} is unknown; use plaintext-loopback or plaintext-anywhere")]
pub struct UnknownSecurity {
    /// As given.
    pub text: String,
}

impl FromStr for Security {
    type Err = UnknownSecurity;

    fn from_str(text: &str) -> Result<Self, UnknownSecurity> {
        [Self::PlaintextLoopback, Self::PlaintextAnywhere]
            .into_iter()
            .find(|security| security.to_string() == text)
            .ok_or_else(|| UnknownSecurity { text: text.to_owned() })
    }
}
