//! What other managers may call.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::errors::{Fatal, RaftError};
use quorate_base::ClusterId;
use quorate_storage::{HeaderStore, ImageStore};
use quorate_wire::raft as pb;
use quorate_wire::raft::raft_service_server::RaftService;
use tokio::sync::{Semaphore, mpsc};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::codec::{
    Malformed, get_append, get_meta, get_transfer, get_vote, get_vote_request, put_append_response,
    put_append_result, put_member, put_transfer_response, put_vote, put_vote_response,
};
use crate::core::Core;
use crate::peers::Arrival;
use crate::snapshot;
use crate::types::{Snapshot, TypeConfig};

/// The service of one node.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) core: Arc<Core>,
    pub(crate) header: HeaderStore,
    pub(crate) images: ImageStore,
    pub(crate) stall: Duration,
    /// One image at a time is received.
    pub(crate) receiving: Arc<Semaphore>,
    /// Told the sender of a replication stream that ended.
    pub(crate) broken: mpsc::Sender<u64>,
}

/// Reports the end of a replication stream, however it came.
struct EndOfStream {
    from: u64,
    broken: mpsc::Sender<u64>,
}

impl Drop for EndOfStream {
    fn drop(&mut self) {
        // A full queue means that one is being looked at already.
        let _ = self.broken.try_send(self.from);
    }
}

fn malformed(e: Malformed) -> Status {
    Status::invalid_argument(e.to_string())
}

fn stopped<E: std::fmt::Display>(e: E) -> Status {
    Status::unavailable(format!("this manager is stopping: {e}"))
}

impl Service {
    /// Refuses calls that are for somebody else. A manager that belongs to no
    /// cluster yet joins the one of the first member that calls it by its id.
    async fn admit(&self, metadata: &MetadataMap) -> Result<Arrival, Status> {
        let arrival = Arrival::read(metadata)?;
        let me = self.header.get();
        if arrival.to != me.raft_id {
            return Err(Status::failed_precondition(format!(
                "this is manager {} with Raft id {:016x}, the call is for {:016x}",
                me.node, me.raft_id, arrival.to
            )));
        }
        match me.cluster {
            Some(cluster) if cluster == arrival.cluster => Ok(arrival),
            Some(cluster) => {
                tracing::warn!(from = format!("{:016x}", arrival.from), theirs = %arrival.cluster, ours = %cluster,
                    "a manager of another cluster called");
                Err(Status::failed_precondition(format!(
                    "manager {} belongs to cluster {cluster}, the caller to {}",
                    me.node, arrival.cluster
                )))
            }
            None => {
                let adopted = self.core.adopt(arrival.cluster, 1).await;
                adopted.map(|()| arrival).map_err(|e| Status::unavailable(e.to_string()))
            }
        }
    }
}

type AppendStream = std::pin::Pin<Box<dyn Stream<Item = Result<pb::AppendResponse, Status>> + Send>>;

#[tonic::async_trait]
impl RaftService for Service {
    type StreamAppendStream = AppendStream;

    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        self.admit(request.metadata()).await?;
        let request = get_append(request.into_inner()).map_err(malformed)?;
        let previous = request.prev_log_id;
        let last = request.entries.last().map(RaftEntry::log_id).or(previous);
        let response = self.core.raft.append_entries(request).await.map_err(stopped)?;
        let response = put_append_response(response, previous, last);
        self.core.heard(&response);
        Ok(Response::new(response))
    }

    async fn stream_append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<AppendStream>, Status> {
        let from = self.admit(request.metadata()).await?.from;
        let requests = request.into_inner().map(|request| match request {
            Ok(request) => get_append(request).map_err(malformed),
            Err(status) => Err(status),
        });
        // The stream ends at the first request that can't be read.
        let requests = requests.scan((), |(), request| {
            let request =
                request.inspect_err(|status| tracing::debug!(%status, "replication stream ended")).ok();
            std::future::ready(request)
        });
        let core = self.core.clone();
        let end = EndOfStream { from, broken: self.broken.clone() };
        let responses = self.core.raft.stream_append(requests).map(move |result| {
            let _held = &end;
            let response = put_append_result(&result.map_err(stopped)?);
            core.heard(&response);
            Ok(response)
        });
        Ok(Response::new(Box::pin(responses)))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        self.admit(request.metadata()).await?;
        let request = get_vote_request(request.into_inner()).map_err(malformed)?;
        let response = self.core.raft.vote(request).await.map_err(stopped)?;
        Ok(Response::new(put_vote_response(&response)))
    }

    async fn pre_vote(
        &self,
        request: Request<pb::VoteRequest>,
    ) -> Result<Response<pb::VoteResponse>, Status> {
        self.admit(request.metadata()).await?;
        let request = get_vote_request(request.into_inner()).map_err(malformed)?;
        let response = self.core.raft.pre_vote(request).await.map_err(stopped)?;
        Ok(Response::new(put_vote_response(&response)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotChunk>>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        self.admit(request.metadata()).await?;
        let Ok(_turn) = self.receiving.try_acquire() else {
            return Err(Status::unavailable("another image is being received"));
        };
        let (head, image) = snapshot::receive(self.images.clone(), request.into_inner(), self.stall).await?;
        let vote = get_vote(head.vote).map_err(malformed)?;
        let meta = get_meta(image.meta()).map_err(malformed)?;
        let installed = self.core.raft.install_full_snapshot(vote, Snapshot { meta, snapshot: image }).await;
        let response = installed.map_err(|e: Fatal<TypeConfig>| stopped(e))?;
        Ok(Response::new(pb::SnapshotResponse { vote: Some(put_vote(&response.vote)) }))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        self.admit(request.metadata()).await?;
        let request = get_transfer(request.into_inner()).map_err(malformed)?;
        let response = self.core.raft.handle_transfer_leader(request).await.map_err(stopped)?;
        Ok(Response::new(put_transfer_response(&response)))
    }

    async fn leader_gone(
        &self,
        request: Request<pb::LeaderGoneRequest>,
    ) -> Result<Response<pb::LeaderGoneResponse>, Status> {
        self.admit(request.metadata()).await?;
        let leader = get_vote(request.into_inner().leader).map_err(malformed)?;
        Ok(Response::new(self.core.sees_gone(leader).await))
    }

    async fn read_index(
        &self,
        request: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexResponse>, Status> {
        self.admit(request.metadata()).await?;
        match self.core.confirm_leadership().await {
            Ok(index) => Ok(Response::new(pb::ReadIndexResponse { index })),
            Err(Some(RaftError::Fatal(e))) => Err(stopped(e)),
            Err(e) => {
                let reason = e.map_or_else(|| "no quorum answered in time".to_owned(), |e| e.to_string());
                Err(Status::unavailable(format!("the read cannot be confirmed: {reason}")))
            }
        }
    }

    async fn identify(
        &self,
        _request: Request<pb::IdentifyRequest>,
    ) -> Result<Response<pb::IdentifyResponse>, Status> {
        let me = self.header.get();
        let initialized = self.core.raft.is_initialized().await.map_err(stopped)?;
        Ok(Response::new(pb::IdentifyResponse {
            name: me.node,
            raft_id: me.raft_id,
            cluster: me.cluster.map(put_cluster).unwrap_or_default(),
            initialized,
            member: Some(put_member(me.raft_id, &self.core.peer)),
        }))
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        self.core.join(request.into_inner()).await.map(Response::new)
    }
}

/// A cluster id as messages carry it.
pub(crate) fn put_cluster(cluster: ClusterId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&cluster.as_u128().to_be_bytes())
}

/// A cluster id from a message; empty means none.
pub(crate) fn get_cluster(bytes: &[u8]) -> Result<Option<ClusterId>, Status> {
    match <[u8; 16]>::try_from(bytes) {
        Ok(bytes) => Ok(Some(ClusterId::from_u128(u128::from_be_bytes(bytes)))),
        Err(_) if bytes.is_empty() => Ok(None),
        Err(_) => Err(Status::invalid_argument(format!("a cluster id has 16 bytes, not {}", bytes.len()))),
    }
}
