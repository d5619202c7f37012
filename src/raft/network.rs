//! openraft's network over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::base::{BoxFuture, BoxStream};
use openraft::entry::RaftEntry;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use quorate_storage::Image;
use quorate_wire::raft as pb;
use tonic::{Code, Request, Status};

use crate::codec::{
    Malformed, get_append_result, get_transfer_response, get_vote, get_vote_response, put_append,
    put_transfer, put_vote, put_vote_request,
};
use crate::peers::{Client, Lane, Peers};
use crate::snapshot;
use crate::types::{Peer, Snapshot, TypeConfig, Vote};

type RpcError = RPCError<TypeConfig>;

/// Makes the links to members.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) peers: Arc<Peers>,
    pub(crate) me: u64,
    /// A stream without progress for so long is given up.
    pub(crate) stall: Duration,
}

impl Network {
    fn link(&self, target: u64, peer: &Peer, lane: Lane) -> Link {
        Link { network: self.clone(), target, addr: peer.addr.clone(), lane }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, peer: &Peer) -> Link {
        self.link(target, peer, Lane::Append)
    }

    async fn new_heartbeat_client(&mut self, target: u64, peer: &Peer) -> Link {
        self.link(target, peer, Lane::Control)
    }

    async fn new_snapshot_client(&mut self, target: u64, peer: &Peer) -> Link {
        self.link(target, peer, Lane::Bulk)
    }
}

/// The way to one member for one purpose.
#[derive(Debug)]
pub(crate) struct Link {
    network: Network,
    target: u64,
    addr: String,
    lane: Lane,
}

impl Link {
    fn client(&self, lane: Lane) -> Result<Client, Unreachable<TypeConfig>> {
        self.network.peers.client(self.target, &self.addr, lane).map_err(|e| Unreachable::new(&e))
    }

    fn timeout(&self, action: RPCTypes, timeout: Duration) -> Timeout<TypeConfig> {
        Timeout { action, id: self.network.me, target: self.target, timeout }
    }

    /// A call with a deadline of its own, on the connection for control.
    async fn call<T>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RpcError> {
        match tokio::time::timeout(option.hard_ttl(), call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(rpc_error(&status)),
            Err(_) => Err(RPCError::Timeout(self.timeout(action, option.hard_ttl()))),
        }
    }
}

/// What a failed call means for openraft: everything waits a moment before the
/// next try, but a cancelled call or one that ran out of time.
fn rpc_error(status: &Status) -> RpcError {
    match status.code() {
        Code::Cancelled | Code::DeadlineExceeded => RPCError::Network(NetworkError::new(status)),
        _ => RPCError::Unreachable(Unreachable::new(status)),
    }
}

fn bad_answer(e: Malformed) -> RpcError {
    RPCError::Unreachable(Unreachable::new(&e))
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = Image;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let last = request.entries.last().map(RaftEntry::log_id).or(request.prev_log_id);
        let mut client = self.client(self.lane)?;
        let call = client.append(put_append(request));
        let response = self.call(RPCTypes::AppendEntries, &option, call).await?;
        Ok(match get_append_result(response).map_err(bad_answer)? {
            Ok(accepted) if accepted == last => AppendEntriesResponse::Success,
            Ok(accepted) => AppendEntriesResponse::PartialSuccess(accepted),
            Err(StreamAppendError::Conflict(_)) => AppendEntriesResponse::Conflict,
            Err(StreamAppendError::HigherVote(vote)) => AppendEntriesResponse::HigherVote(vote),
        })
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        if self.lane == Lane::Control {
            return stream_append_sequential(self, input, option);
        }
        Box::pin(self.pipeline(input))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let mut client = self.client(Lane::Control)?;
        let call = client.vote(put_vote_request(&request));
        get_vote_response(self.call(RPCTypes::Vote, &option, call).await?).map_err(bad_answer)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let mut client = self.client(Lane::Control)?;
        let call = client.pre_vote(put_vote_request(&request));
        get_vote_response(self.call(RPCTypes::Vote, &option, call).await?).map_err(bad_answer)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        image: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let mut client = self.client(Lane::Bulk)?;
        let head = pb::snapshot_chunk::Head { vote: Some(put_vote(&vote)), bytes: image.snapshot.file_len() };
        let (chunks, stalled) = snapshot::send(head, image.snapshot, self.network.stall);
        let call = client.install_snapshot(Request::new(chunks));
        let response = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            () = stalled => {
                let timeout = self.timeout(RPCTypes::InstallSnapshot, self.network.stall);
                return Err(StreamingError::Timeout(timeout));
            }
            response = call => response,
        };
        let response = response.map_err(|status| StreamingError::from(rpc_error(&status)))?;
        let vote = get_vote(response.into_inner().vote).map_err(|e| StreamingError::from(bad_answer(e)))?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let mut client = self.client(Lane::Control)?;
        let call = client.transfer_leader(put_transfer(&request));
        let response = self.call(RPCTypes::TransferLeader, &option, call).await?;
        get_transfer_response(&request, response).map_err(bad_answer)
    }
}

type Pipelined<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>;

impl Link {
    /// Replication as a stream each way: requests do not wait for responses. It
    /// ends with an error if a request stays unanswered for too long.
    async fn pipeline<'s, S>(&'s mut self, mut input: S) -> Result<Pipelined<'s>, RpcError>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        // openraft waits out its back-off in front of the first request: a stream that was opened
        // before would fail at once, again and again, while the peer is down.
        let Some(first) = input.next().await else { return Ok(Box::pin(stream::empty())) };
        let input = stream::iter([first]).chain(input);
        let mut client = self.client(Lane::Append)?;
        let open = Arc::new(AtomicUsize::new(0));
        let sent = open.clone();
        let requests = input.map(move |request| {
            sent.fetch_add(1, Ordering::Relaxed);
            put_append(request)
        });
        let stall = self.network.stall;
        let timeout = move |link: &Link| RPCError::Timeout(link.timeout(RPCTypes::AppendEntries, stall));
        let responses = match tokio::time::timeout(stall, client.stream_append(requests)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(rpc_error(&status)),
            Err(_) => return Err(timeout(self)),
        };
        let link: &Link = self;
        let results = stream::unfold(Some(responses), move |responses| {
            let open = open.clone();
            async move {
                let mut responses = responses?;
                loop {
                    let waiting = open.load(Ordering::Relaxed) > 0;
                    let Ok(message) = tokio::time::timeout(stall, responses.message()).await else {
                        if waiting {
                            return Some((Err(timeout(link)), None));
                        }
                        continue;
                    };
                    open.fetch_sub(1, Ordering::Relaxed);
                    return match message {
                        Ok(None) => None,
                        Ok(Some(response)) => match get_append_result(response) {
                            Ok(result) => Some((Ok(result), Some(responses))),
                            Err(e) => Some((Err(bad_answer(e)), None)),
                        },
                        Err(status) => Some((Err(rpc_error(&status)), None)),
                    };
                }
            }
        });
        Ok(Box::pin(results))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use openraft::network::RaftNetworkFactory as _;
    use quorate_base::Rng;
    use quorate_pki::Security;
    use quorate_storage::{LogOptions, MemoryDisk, Storage};

    use super::*;

    #[tokio::test]
    async fn a_stream_to_a_dead_peer_waits_out_the_back_off_before_it_fails() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let opened =
            Storage::open_memory(&MemoryDisk::new(), "m1", LogOptions::default(), &mut Rng::seeded(1))
                .unwrap();
        let peers = Arc::new(Peers::new(Security::PlaintextLoopback, opened.storage.header.clone()));
        let mut network = Network { peers, me: 1, stall: Duration::from_secs(5) };
        let peer = Peer { name: "m2".to_owned(), addr: closed.to_string(), ..Peer::default() };
        let mut link = network.new_client(2, &peer).await;
        let asked = Arc::new(AtomicBool::new(false));
        let seen = asked.clone();
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let input = stream::iter([request]).inspect(move |_| seen.store(true, Ordering::Relaxed));
        let failed = link.pipeline(input).await.err();
        assert!(matches!(failed, Some(RPCError::Unreachable(_))), "{failed:?}");
        assert!(asked.load(Ordering::Relaxed), "the first request, behind the back-off, was never asked for");
    }
}
