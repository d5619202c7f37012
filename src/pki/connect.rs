//! The one place where clients connect.

use std::net::IpAddr;

use thiserror::Error;
use tonic::transport::Endpoint;

use crate::{Profile, Security};

/// Why an address cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// Not a host and a port.
    #[error(
        "the {profile} address {address:?} is invalid: {reason}; write HOST:PORT or http://HOST:PORT, like 127.0.0.1:7420"
    )]
    Invalid {
        /// Which zone.
        profile: Profile,
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS asked for by a process that has none.
    #[error(
        "the {profile} address {address:?} asks for TLS, but security is {security}; write http://HOST:PORT"
    )]
    TlsUnavailable {
        /// Which zone.
        profile: Profile,
        /// As given.
        address: String,
        /// The process's setting.
        security: Security,
    },
    /// Unprotected traffic would leave the machine.
    #[error(
        "refusing to connect to the {profile} address {address:?}: the traffic would cross the network as plain text \
         without authentication; use a loopback address like 127.0.0.1, or, where the network itself is protected, set \
         security to plaintext-anywhere"
    )]
    Unprotected {
        /// Which zone.
        profile: Profile,
        /// As given.
        address: String,
    },
}

impl Security {
    /// How to dial `address`, `HOST:PORT` or `http://HOST:PORT`, of a `profile` server. Dials nothing yet: the caller
    /// connects, lazily or at once, and gives each call a deadline of its own.
    ///
    /// # Errors
    /// [`EndpointError`]: not such an address, or unprotected traffic beyond the machine.
    pub fn endpoint(&self, profile: Profile, address: &str) -> Result<Endpoint, EndpointError> {
        let invalid =
            |reason: String| EndpointError::Invalid { profile, address: address.to_owned(), reason };
        let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(uri).map_err(|_| invalid("it is no URL".to_owned()))?;
        let uri = endpoint.uri();
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let security = self.clone();
                return Err(EndpointError::TlsUnavailable { profile, address: address.to_owned(), security });
            }
            other => return Err(invalid(format!("the scheme {:?} is unknown", other.unwrap_or_default()))),
        }
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it has no host".to_owned()))?;
        if uri.port_u16().is_none_or(|port| port == 0) {
            return Err(invalid("it has no port".to_owned()));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(invalid("it has a path".to_owned()));
        }
        if !self.allows_host(host) {
            return Err(EndpointError::Unprotected { profile, address: address.to_owned() });
        }
        Ok(tune(endpoint, profile))
    }

    /// Whether traffic with `host` may go unprotected. A name other than `localhost` may resolve to anywhere.
    fn allows_host(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) => self.allows(ip),
            Err(_) => *self == Self::PlaintextAnywhere || host.eq_ignore_ascii_case("localhost"),
        }
    }
}

fn tune(endpoint: Endpoint, profile: Profile) -> Endpoint {
    let tuning = profile.tuning();
    endpoint
        .connect_timeout(tuning.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(tuning.ping_interval)
        .keep_alive_timeout(tuning.ping_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(tuning.stream_window)
        .initial_connection_window_size(tuning.connection_window)
}
