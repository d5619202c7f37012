//! Free ports on loopback.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result};
use quorate_base::Rng;

/// Below the range from which the system takes the source ports of outgoing connections: a port of a dead manager must
/// still be free when it starts again.
const RANGE: (u64, u64) = (20_000, 32_000);

/// Hands out ports that nobody listens on, none twice.
#[derive(Debug)]
pub struct Ports {
    rng: Rng,
    given: BTreeSet<u16>,
}

impl Ports {
    /// Ports in an order drawn from `rng`, so that runs side by side rarely meet.
    pub const fn new(rng: Rng) -> Self {
        Self { rng, given: BTreeSet::new() }
    }

    /// Any free port.
    ///
    /// # Errors
    /// When a thousand tries find none.
    pub fn any(&mut self) -> Result<u16> {
        (0..1_000)
            .map(|_| u16::try_from(self.rng.between(RANGE.0, RANGE.1)).unwrap_or(u16::MAX))
            .find(|&port| !self.given.contains(&port) && is_free(port))
            .inspect(|&port| {
                self.given.insert(port);
            })
            .context("no free port on 127.0.0.1 between 20000 and 32000")
    }

    /// `wanted` when it is free, else any.
    ///
    /// # Errors
    /// As [`Ports::any`].
    pub fn prefer(&mut self, wanted: u16) -> Result<u16> {
        if is_free(wanted) && self.given.insert(wanted) { Ok(wanted) } else { self.any() }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_handed_out() {
        let mut ports = Ports::new(Rng::seeded(1));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = listener.local_addr().unwrap().port();
        assert_ne!(ports.prefer(taken).unwrap(), taken);
    }

    #[test]
    fn no_port_is_handed_out_twice() {
        let mut ports = Ports::new(Rng::from_entropy());
        let first = ports.any().unwrap();
        assert_ne!(ports.prefer(first).unwrap(), first);
        let all: BTreeSet<u16> = (0..100).map(|_| ports.any().unwrap()).collect();
        assert_eq!(all.len(), 100);
    }
}
