//! Between openraft's types and `quorate.raft.v1`: on disk and to peers.
//!
//! Nothing from a peer is trusted to be well formed: what is missing or
//! contradicts itself is an [`Malformed`] error.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::entry::{EntryPayload, RaftEntry};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use prost::Message;
use quorate_wire::raft as pb;

use crate::types::{
    Commands, Entry, LogId, Membership, Peer, SnapshotMeta, StoredMembership, TypeConfig, Vote, log_id,
    term_of,
};

/// Bytes that are no message of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what}: {why}")]
pub(crate) struct Malformed {
    what: &'static str,
    why: String,
}

fn malformed(what: &'static str, why: impl Into<String>) -> Malformed {
    Malformed { what, why: why.into() }
}

fn required<T>(what: &'static str, part: Option<T>) -> Result<T, Malformed> {
    part.ok_or_else(|| malformed(what, "it is missing"))
}

impl From<Malformed> for std::io::Error {
    fn from(e: Malformed) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, e)
    }
}

pub(crate) fn put_log_id(id: &LogId) -> pb::LogId {
    pb::LogId { term: term_of(id), index: id.index }
}

pub(crate) fn get_log_id(id: pb::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub(crate) fn put_vote(vote: &Vote) -> pb::Vote {
    pb::Vote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn get_vote(vote: Option<pb::Vote>) -> Result<Vote, Malformed> {
    let vote = required("vote", vote)?;
    let make = if vote.committed { Vote::new_committed } else { Vote::new };
    Ok(make(vote.term, vote.node))
}

pub(crate) fn put_member(id: u64, peer: &Peer) -> pb::Member {
    pb::Member {
        id,
        name: peer.name.clone(),
        addr: peer.addr.clone(),
        api_addr: peer.api_addr.clone(),
        agent_addr: peer.agent_addr.clone(),
        version: peer.version.clone(),
    }
}

pub(crate) fn get_member(member: pb::Member) -> (u64, Peer) {
    let pb::Member { id, name, addr, api_addr, agent_addr, version } = member;
    (id, Peer { name, addr, api_addr, agent_addr, version })
}

pub(crate) fn put_membership(membership: &Membership) -> pb::Membership {
    let voters = |ids: &BTreeSet<u64>| pb::Voters { ids: ids.iter().copied().collect() };
    let member = |(id, peer): (&u64, &Peer)| put_member(*id, peer);
    pb::Membership {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        members: membership.nodes().map(member).collect(),
    }
}

pub(crate) fn get_membership(membership: pb::Membership) -> Result<Membership, Malformed> {
    let configs = membership.configs.into_iter().map(|c| c.ids.into_iter().collect()).collect();
    let peers: BTreeMap<u64, Peer> = membership.members.into_iter().map(get_member).collect();
    Membership::new(configs, peers).map_err(|e| malformed("membership", e.to_string()))
}

fn put_stored(stored: &StoredMembership) -> pb::StoredMembership {
    pb::StoredMembership {
        log_id: stored.log_id().as_ref().map(put_log_id),
        membership: Some(put_membership(stored.membership())),
    }
}

fn get_stored(stored: pb::StoredMembership) -> Result<StoredMembership, Malformed> {
    let Some(id) = stored.log_id else { return Ok(StoredMembership::default()) };
    let membership = get_membership(required("membership", stored.membership)?)?;
    Ok(StoredMembership::new(Some(get_log_id(id)), membership))
}

/// The head of an image.
pub(crate) fn put_meta(meta: &SnapshotMeta) -> Bytes {
    let head = pb::ImageHead {
        last: meta.last_log_id.as_ref().map(put_log_id),
        membership: Some(put_stored(&meta.last_membership)),
    };
    head.encode_to_vec().into()
}

pub(crate) fn get_meta(bytes: &[u8]) -> Result<SnapshotMeta, Malformed> {
    let head = pb::ImageHead::decode(bytes).map_err(|e| malformed("image head", e.to_string()))?;
    Ok(SnapshotMeta {
        last_log_id: head.last.map(get_log_id),
        last_membership: get_stored(required("membership", head.membership)?)?,
    })
}

pub(crate) fn put_entry(entry: &Entry) -> pb::LogEntry {
    use pb::log_entry::Payload;
    let payload = match &entry.payload {
        EntryPayload::Blank => None,
        EntryPayload::Normal(Commands(bytes)) => Some(Payload::Commands(bytes.clone())),
        EntryPayload::Membership(m) => Some(Payload::Membership(put_membership(m))),
    };
    let id = entry.log_id();
    pb::LogEntry { term: term_of(&id), index: id.index, payload }
}

pub(crate) fn get_entry(entry: pb::LogEntry) -> Result<Entry, Malformed> {
    use pb::log_entry::Payload;
    let payload = match entry.payload {
        None => EntryPayload::Blank,
        Some(Payload::Commands(bytes)) => EntryPayload::Normal(Commands(bytes)),
        Some(Payload::Membership(m)) => EntryPayload::Membership(get_membership(m)?),
    };
    Ok(Entry { log_id: log_id(entry.term, entry.index), payload })
}

/// An entry as it is stored.
pub(crate) fn encode_entry(entry: &Entry) -> Bytes {
    put_entry(entry).encode_to_vec().into()
}

/// An entry from the store; its commands share the buffer.
pub(crate) fn decode_entry(bytes: Bytes) -> Result<Entry, Malformed> {
    get_entry(pb::LogEntry::decode(bytes).map_err(|e| malformed("log entry", e.to_string()))?)
}

pub(crate) fn put_append(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(put_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(put_log_id),
        entries: request.entries.iter().map(put_entry).collect(),
        commit: request.leader_commit.as_ref().map(put_log_id),
    }
}

/// Checks that the entries follow each other and what precedes them. Commands
/// are copied: a slice would keep the whole message of the peer in memory for
/// as long as one of its entries is cached.
pub(crate) fn get_append(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let vote = get_vote(request.vote)?;
    let previous = request.previous.map(get_log_id);
    let next = previous.as_ref().map_or(Some(0), |id| id.index.checked_add(1));
    let next = next.filter(|next| next.checked_add(request.entries.len() as u64).is_some());
    let next = next.ok_or_else(|| malformed("append request", "its log indexes overflow"))?;
    let mut entries = Vec::with_capacity(request.entries.len());
    for (due, entry) in (next..).zip(request.entries) {
        if entry.index != due {
            return Err(malformed("append request", format!("entry {} where {due} is due", entry.index)));
        }
        let mut entry = get_entry(entry)?;
        if let EntryPayload::Normal(Commands(bytes)) = &mut entry.payload {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        entries.push(entry);
    }
    let leader_commit = request.commit.map(get_log_id);
    Ok(AppendEntriesRequest { vote, prev_log_id: previous, entries, leader_commit })
}

pub(crate) fn put_append_result(result: &StreamAppendResult<TypeConfig>) -> pb::AppendResponse {
    use pb::append_response::{Accepted, Result};
    let result = match result {
        Ok(last) => Result::Accepted(Accepted { last: last.as_ref().map(put_log_id) }),
        Err(StreamAppendError::Conflict(id)) => Result::Conflict(put_log_id(id)),
        Err(StreamAppendError::HigherVote(vote)) => Result::Higher(put_vote(vote)),
    };
    pb::AppendResponse { result: Some(result) }
}

pub(crate) fn get_append_result(
    response: pb::AppendResponse,
) -> Result<StreamAppendResult<TypeConfig>, Malformed> {
    use pb::append_response::Result as R;
    Ok(match required("append response", response.result)? {
        R::Accepted(accepted) => Ok(accepted.last.map(get_log_id)),
        R::Conflict(id) => Err(StreamAppendError::Conflict(get_log_id(id))),
        R::Higher(vote) => Err(StreamAppendError::HigherVote(get_vote(Some(vote))?)),
    })
}

/// The answer to a single request, which went from `previous` to `last`.
pub(crate) fn put_append_response(
    response: AppendEntriesResponse<TypeConfig>,
    previous: Option<LogId>,
    last: Option<LogId>,
) -> pb::AppendResponse {
    let result = match response {
        AppendEntriesResponse::Success => Ok(last),
        AppendEntriesResponse::PartialSuccess(id) => Ok(id),
        // Without a previous entry there is nothing to conflict with.
        AppendEntriesResponse::Conflict => {
            previous.map_or(Ok(None), |id| Err(StreamAppendError::Conflict(id)))
        }
        AppendEntriesResponse::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote)),
    };
    put_append_result(&result)
}

pub(crate) fn put_vote_request(request: &VoteRequest<TypeConfig>) -> pb::VoteRequest {
    pb::VoteRequest {
        vote: Some(put_vote(&request.vote)),
        last: request.last_log_id.as_ref().map(put_log_id),
        transfer: request.leadership_transfer,
    }
}

pub(crate) fn get_vote_request(request: pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Malformed> {
    let mut out = VoteRequest::new(get_vote(request.vote)?, request.last.map(get_log_id));
    out.leadership_transfer = request.transfer;
    Ok(out)
}

pub(crate) fn put_vote_response(response: &VoteResponse<TypeConfig>) -> pb::VoteResponse {
    pb::VoteResponse {
        vote: Some(put_vote(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(put_log_id),
    }
}

pub(crate) fn get_vote_response(response: pb::VoteResponse) -> Result<VoteResponse<TypeConfig>, Malformed> {
    let last = response.last.map(get_log_id);
    Ok(VoteResponse::new(get_vote(response.vote)?, last, response.granted))
}

pub(crate) fn put_transfer(request: &TransferLeaderRequest<TypeConfig>) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        from: Some(put_vote(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(put_log_id),
    }
}

pub(crate) fn get_transfer(
    request: pb::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, Malformed> {
    Ok(TransferLeaderRequest::new(get_vote(request.from)?, request.to, request.last.map(get_log_id)))
}

pub(crate) fn put_transfer_response(
    response: &TransferLeaderResponse<TypeConfig>,
) -> pb::TransferLeaderResponse {
    match response {
        Ok(()) => pb::TransferLeaderResponse::default(),
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            pb::TransferLeaderResponse { changed: Some(put_vote(actual)), ..Default::default() }
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            let last = actual.as_ref().map(put_log_id);
            pb::TransferLeaderResponse { lagging: true, last, changed: None }
        }
    }
}

pub(crate) fn get_transfer_response(
    request: &TransferLeaderRequest<TypeConfig>,
    response: pb::TransferLeaderResponse,
) -> Result<TransferLeaderResponse<TypeConfig>, Malformed> {
    if let Some(vote) = response.changed {
        let (expected, actual) = (*request.from_leader(), get_vote(Some(vote))?);
        return Ok(Err(TransferLeaderError::VoteChanged { expected, actual }));
    }
    if response.lagging {
        let (expected, actual) = (request.last_log_id().copied(), response.last.map(get_log_id));
        return Ok(Err(TransferLeaderError::LogNotFlushed { expected, actual }));
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership() -> Membership {
        let peer = |n: &str| Peer {
            name: n.to_owned(),
            addr: format!("{n}:1"),
            api_addr: format!("{n}:2"),
            agent_addr: format!("{n}:3"),
            version: "1".to_owned(),
        };
        let peers = [(1, peer("a")), (2, peer("b")), (3, peer("c"))];
        Membership::new(vec![[1, 2].into(), [2, 3].into()], BTreeMap::from(peers)).unwrap()
    }

    #[test]
    fn entries_read_back_from_their_stored_form() {
        let commands = Commands(Bytes::from_static(b"abc"));
        for payload in
            [EntryPayload::Blank, EntryPayload::Normal(commands), EntryPayload::Membership(membership())]
        {
            let entry = Entry { log_id: log_id(3, 9), payload };
            assert_eq!(decode_entry(encode_entry(&entry)).unwrap(), entry);
        }
    }

    #[test]
    fn an_image_head_reads_back() {
        let stored = StoredMembership::new(Some(log_id(1, 2)), membership());
        for meta in [
            SnapshotMeta { last_log_id: Some(log_id(3, 9)), last_membership: stored },
            SnapshotMeta::default(),
        ] {
            assert_eq!(get_meta(&put_meta(&meta)).unwrap(), meta);
        }
    }

    #[test]
    fn a_request_with_a_gap_or_without_a_vote_is_malformed() {
        let vote = Some(put_vote(&Vote::new_committed(2, 7)));
        let entry = |index| pb::LogEntry { term: 2, index, payload: None };
        let request = |previous, indexes: &[u64]| pb::AppendRequest {
            vote,
            previous: Some(pb::LogId { term: 1, index: previous }),
            entries: indexes.iter().map(|i| entry(*i)).collect(),
            commit: None,
        };
        assert!(get_append(request(4, &[5, 6])).is_ok());
        for (previous, indexes) in [(4, &[6][..]), (4, &[5, 7]), (4, &[5, 5]), (u64::MAX, &[0])] {
            assert!(get_append(request(previous, indexes)).is_err(), "{previous} {indexes:?}");
        }
        assert!(get_append(pb::AppendRequest { vote: None, ..request(4, &[]) }).is_err());
        assert!(
            get_membership(pb::Membership { configs: vec![pb::Voters { ids: vec![1] }], members: vec![] })
                .is_err()
        );
    }

    #[test]
    fn votes_and_results_read_back() {
        for vote in [Vote::new(1, 2), Vote::new_committed(u64::MAX, u64::MAX)] {
            assert_eq!(get_vote(Some(put_vote(&vote))).unwrap(), vote);
        }
        for result in [
            Ok(None),
            Ok(Some(log_id(1, 2))),
            Err(StreamAppendError::Conflict(log_id(1, 2))),
            Err(StreamAppendError::HigherVote(Vote::new(5, 6))),
        ] {
            assert_eq!(get_append_result(put_append_result(&result)).unwrap(), result);
        }
    }
}
