//! The two halves of a stream.

use std::time::Duration;

use quorate_wire::agent::agent_service_client::AgentServiceClient;
use quorate_wire::agent::{SessionRequest, SessionResponse, session_request, session_response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::End;

/// Messages that may wait for the network; the reporter waits behind it, coalescing.
const QUEUE: usize = 4;

/// An open stream with a manager.
#[derive(Debug)]
pub(super) struct Link {
    outbound: mpsc::Sender<SessionRequest>,
    inbound: Streaming<SessionResponse>,
}

impl Link {
    /// Opens the stream with its first message.
    pub(super) async fn open(
        mut client: AgentServiceClient<Channel>,
        hello: session_request::Body,
    ) -> Result<Self, Status> {
        let (outbound, messages) = mpsc::channel(QUEUE);
        // Cannot fail: the queue is empty and its other end is here.
        let _ = outbound.try_send(SessionRequest { body: Some(hello) });
        let inbound = client.session(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Self { outbound, inbound })
    }

    /// The next message. Safe to cancel. An empty one, of a kind that only newer managers know, is passed over.
    pub(super) async fn next(&mut self) -> Result<session_response::Body, End> {
        loop {
            match self.inbound.message().await {
                Ok(Some(SessionResponse { body: Some(body) })) => return Ok(body),
                Ok(Some(SessionResponse { body: None })) => {}
                Ok(None) => return Err(End::Broken("it ended the session".to_owned())),
                Err(status) => return Err(End::Broken(format!("the session broke: {}", status.message()))),
            }
        }
    }

    /// A place in the queue; so that what is sent is chosen when it can be sent.
    pub(super) fn outbound(&self) -> mpsc::Sender<SessionRequest> {
        self.outbound.clone()
    }
}

/// A span as sent; a negative one is zero.
pub(super) fn span(seconds: i64, nanos: i32) -> Duration {
    Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0).min(999_999_999))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_whatever_is_sent() {
        assert_eq!(span(1, 500_000_000), Duration::from_millis(1_500));
        assert_eq!(span(-1, -5), Duration::ZERO);
        assert_eq!(span(0, i32::MAX), Duration::from_nanos(999_999_999));
    }
}
