//! The one place where servers listen.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::prompt::Prompt;
use crate::{Profile, Security};

/// The most bytes of a request's headers.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// How long a connection may be silent before the kernel asks whether anybody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Why a server does not listen.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Unprotected traffic would leave the machine.
    #[error(
        "refusing the {profile} listener on {address}: its traffic would cross the network as plain text without \
         authentication; listen on a loopback address like 127.0.0.1:{}, or, where the network itself is protected, set \
         security to plaintext-anywhere", .address.port()
    )]
    Unprotected {
        /// Which listener.
        profile: Profile,
        /// Where.
        address: SocketAddr,
    },
    /// Somebody else has the port.
    #[error(
        "the {profile} listener cannot have {address}: the port is in use; stop the process that has it \
         (ss -ltnp 'sport = :{}' names it) or choose another port", .address.port()
    )]
    InUse {
        /// Which listener.
        profile: Profile,
        /// Where.
        address: SocketAddr,
    },
    /// No interface has the address.
    #[error(
        "the {profile} listener cannot have {address}: no interface of this machine has {}; choose one that `ip addr` \
         lists", .address.ip()
    )]
    NoSuchAddress {
        /// Which listener.
        profile: Profile,
        /// Where.
        address: SocketAddr,
    },
    /// A privileged port.
    #[error(
        "the {profile} listener cannot have {address}: this user may not listen there; choose a port of 1024 or above, \
         or grant CAP_NET_BIND_SERVICE"
    )]
    Denied {
        /// Which listener.
        profile: Profile,
        /// Where.
        address: SocketAddr,
    },
    /// Anything else that the operating system says.
    #[error("the {profile} listener cannot have {address}: {source}")]
    Io {
        /// Which listener.
        profile: Profile,
        /// Where.
        address: SocketAddr,
        /// The operating system's word.
        source: io::Error,
    },
}

/// An open port. Connections queue from now on, so a client may dial before anybody serves.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Where it listens: the real port if port 0 was asked for.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The connections, for tonic's `serve_with_incoming` and its kin. Small frames go out at once; who does not begin
    /// to speak, or is gone without a word, is hung up on.
    pub fn incoming(
        self,
    ) -> impl Stream<Item = io::Result<impl AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static>> + Send
    {
        // HTTP/1.1 has no pings of its own.
        let incoming = TcpIncoming::from(self.tcp).with_nodelay(Some(true)).with_keepalive(Some(KEEP_ALIVE));
        incoming.map(|accepted| accepted.map(Prompt::new))
    }

    /// The bare socket, for plain HTTP ([`Profile::Admin`]).
    pub fn into_tcp(self) -> TcpListener {
        self.tcp
    }
}

impl Security {
    /// Opens the port `address` for `profile`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ListenError`]: unprotected traffic beyond the machine, or the port cannot be had.
    pub async fn listen(&self, profile: Profile, address: SocketAddr) -> Result<Listener, ListenError> {
        if !self.allows(address.ip()) {
            return Err(ListenError::Unprotected { profile, address });
        }
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { profile, address },
            io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress { profile, address },
            io::ErrorKind::PermissionDenied => ListenError::Denied { profile, address },
            _ => ListenError::Io { profile, address, source },
        };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Listener { tcp, address })
    }

    /// A gRPC server for `profile`: pings silent connections and closes dead ones, bounds calls, headers and buffers.
    /// That of [`Profile::Api`] takes HTTP/1.1 on the same port, for clients that have nothing else.
    pub fn server(&self, profile: Profile) -> Server {
        let tuning = profile.tuning();
        Server::builder()
            .http2_keepalive_interval(Some(tuning.ping_interval))
            .http2_keepalive_timeout(Some(tuning.ping_timeout))
            .max_concurrent_streams(tuning.max_streams)
            .initial_stream_window_size(tuning.stream_window)
            .initial_connection_window_size(tuning.connection_window)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .accept_http1(profile == Profile::Api)
    }
}
