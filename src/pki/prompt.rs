//! Connections whose other side must speak first, and soon.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long a client may take for its first words.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much they are at least: the preface of HTTP/2; no useful request of HTTP/1.1 is shorter. Until then nothing of
/// the protocols watches over the connection.
const FIRST_WORDS: usize = 24;

/// A connection that fails when its client does not begin to speak.
pub(crate) struct Prompt {
    tcp: TcpStream,
    heard: usize,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Prompt {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, heard: 0, silence: Some(Box::pin(tokio::time::sleep(PATIENCE))) }
    }
}

impl AsyncRead for Prompt {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.tcp).poll_read(cx, buf);
        let Some(silence) = this.silence.as_mut() else { return read };
        this.heard += buf.filled().len() - before;
        if this.heard >= FIRST_WORDS {
            this.silence = None;
        } else if read.is_pending() && silence.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Prompt {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

impl Connected for Prompt {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.tcp.connect_info()
    }
}
