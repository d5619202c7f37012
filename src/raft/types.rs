//! The types with which openraft is instantiated.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_std;
use openraft::type_config::alias::{
    EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};
use quorate_model::Revision;
use quorate_state::{Receipt, Rejection};
use quorate_storage::Image;

use crate::machine::StateMachine;

openraft::declare_raft_types!(
    /// Terms have at most one leader (the standard rule), so that a term alone
    /// is a fence.
    pub(crate) TypeConfig:
        D = Commands,
        R = Replies,
        NodeId = u64,
        Node = Peer,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
);

pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;
pub(crate) type LogId = LogIdOf<TypeConfig>;
pub(crate) type Vote = VoteOf<TypeConfig>;
pub(crate) type Entry = EntryOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Peer>;
pub(crate) type StoredMembership = StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = SnapshotOf<TypeConfig, Image>;

/// What an entry carries: an encoded batch of envelopes, encoded once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Commands(pub(crate) Bytes);

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// One answer per envelope of an entry, with the revision that it speaks of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replies(pub(crate) Vec<(Revision, Result<Receipt, Rejection>)>);

/// How a member of the group is called and reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The manager's configured name.
    pub(crate) name: String,
    /// `host:port` of its Raft listener.
    pub(crate) addr: String,
    /// `host:port` of its API listener.
    pub(crate) api_addr: String,
    /// `host:port` of its agent listener.
    pub(crate) agent_addr: String,
    /// Version of its binary.
    pub(crate) version: String,
}

/// The log id of an entry.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(term.into(), index)
}

/// The term of a log id.
pub(crate) fn term_of(id: &LogId) -> u64 {
    id.committed_leader_id().term
}
