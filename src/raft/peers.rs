//! Connections to the other managers: three per peer, so that neither appends
//! nor images ever delay a heartbeat.

use std::collections::BTreeMap;
use std::sync::Mutex;

use quorate_base::ClusterId;
use quorate_base::sync::lock;
use quorate_pki::{EndpointError, Profile, Security};
use quorate_storage::HeaderStore;
use quorate_wire::raft::raft_service_client::RaftServiceClient;
use tonic::codegen::InterceptedService;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Metadata of every call but Identify and Join.
const CLUSTER: &str = "quorate-cluster";
const FROM: &str = "quorate-from";
const TO: &str = "quorate-to";

/// Above any message: an append is limited to about a mebibyte unless a single
/// entry is larger.
pub(crate) const MESSAGE_BYTES: usize = 64 << 20;

/// Old addresses of members are forgotten beyond so many.
const POOLED: usize = 64;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Replication.
    Append,
    /// Heartbeats, votes, read index, identification.
    Control,
    /// Images.
    Bulk,
}

#[derive(Debug, Clone)]
struct Channels {
    append: Channel,
    control: Channel,
    bulk: Channel,
}

pub(crate) type Client = RaftServiceClient<InterceptedService<Channel, Route>>;

/// The pool of connections. They open on first use and again after a failure.
#[derive(Debug)]
pub(crate) struct Peers {
    security: Security,
    header: HeaderStore,
    me: u64,
    pool: Mutex<BTreeMap<String, Channels>>,
}

impl Peers {
    pub(crate) fn new(security: Security, header: HeaderStore) -> Peers {
        let me = header.get().raft_id;
        Peers { security, header, me, pool: Mutex::default() }
    }

    /// A client for calls to member `to` at `addr`.
    pub(crate) fn client(&self, to: u64, addr: &str, lane: Lane) -> Result<Client, EndpointError> {
        let route = Route::new(self.header.cluster(), self.me, to);
        let client = RaftServiceClient::with_interceptor(self.channel(addr, lane)?, route);
        Ok(client.max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES))
    }

    /// A client for Identify and Join, before the peer's Raft id is known.
    pub(crate) fn stranger(&self, addr: &str) -> Result<RaftServiceClient<Channel>, EndpointError> {
        Ok(RaftServiceClient::new(self.channel(addr, Lane::Control)?))
    }

    fn channel(&self, addr: &str, lane: Lane) -> Result<Channel, EndpointError> {
        let mut pool = lock(&self.pool);
        let channels = match pool.get(addr) {
            Some(channels) => channels.clone(),
            None => {
                let endpoint = self.security.endpoint(Profile::Peer, addr)?;
                let open = || endpoint.connect_lazy();
                let channels = Channels { append: open(), control: open(), bulk: open() };
                if pool.len() >= POOLED {
                    pool.clear();
                }
                pool.insert(addr.to_owned(), channels.clone());
                channels
            }
        };
        Ok(match lane {
            Lane::Append => channels.append,
            Lane::Control => channels.control,
            Lane::Bulk => channels.bulk,
        })
    }
}

/// Says on each call which cluster and member it is from and for.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    cluster: Option<MetadataValue<Ascii>>,
    from: Option<MetadataValue<Ascii>>,
    to: Option<MetadataValue<Ascii>>,
}

impl Route {
    fn new(cluster: Option<ClusterId>, from: u64, to: u64) -> Route {
        // Hexadecimal digits and ULIDs are always valid metadata.
        let id = |id: u64| format!("{id:016x}").parse().ok();
        Route { cluster: cluster.and_then(|c| c.to_string().parse().ok()), from: id(from), to: id(to) }
    }
}

impl Interceptor for Route {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        for (name, value) in [(CLUSTER, &self.cluster), (FROM, &self.from), (TO, &self.to)] {
            if let Some(value) = value {
                metadata.insert(name, value.clone());
            }
        }
        Ok(request)
    }
}

/// Where a received call is from and for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) cluster: ClusterId,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Arrival {
    pub(crate) fn read(metadata: &MetadataMap) -> Result<Arrival, Status> {
        let text = |name: &'static str| {
            let value = metadata.get(name).and_then(|v| v.to_str().ok());
            value.ok_or_else(|| {
                Status::invalid_argument(format!("metadata {name} is missing: this is the port of managers"))
            })
        };
        let id = |name: &'static str| {
            let text = text(name)?;
            u64::from_str_radix(text, 16)
                .map_err(|_| Status::invalid_argument(format!("metadata {name} {text:?} is no Raft id")))
        };
        let cluster = text(CLUSTER)?
            .parse()
            .map_err(|e| Status::invalid_argument(format!("metadata {CLUSTER}: {e}")))?;
        Ok(Arrival { cluster, from: id(FROM)?, to: id(TO)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_arrives_as_it_was_sent() {
        let cluster = ClusterId::from_u128(77);
        let request = Route::new(Some(cluster), 1, u64::MAX).call(Request::new(())).unwrap();
        let arrival = Arrival::read(request.metadata()).unwrap();
        assert_eq!(arrival, Arrival { cluster, from: 1, to: u64::MAX });
    }

    #[test]
    fn a_call_without_a_route_is_refused() {
        let refused = Arrival::read(&MetadataMap::new()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        let mut metadata = MetadataMap::new();
        metadata.insert(CLUSTER, "no".parse().unwrap());
        assert!(Arrival::read(&metadata).unwrap_err().message().contains("not a ULID"));
    }
}
