//! `NodeService`.

use std::sync::Arc;

use quorate_model::{Name, Node, NodeId, Selector};
use quorate_state::State;
use quorate_wire::{
    api::{self as pb, Page, node_service_client::NodeServiceClient, node_service_server::NodeService},
    common::duration,
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status};

use crate::{
    api::{MAX_ANSWER, invalid, name, pages::choices},
    core::Core,
    dispatcher::Dispatcher,
    routing::Router,
};

/// Answers for nodes.
#[derive(Clone)]
pub struct NodeApi {
    core: Core,
    router: Router,
    dispatcher: Dispatcher,
}

impl NodeApi {
    /// The service.
    #[must_use]
    pub fn new(core: Core, router: Router, dispatcher: Dispatcher) -> Self {
        Self { core, router, dispatcher }
    }

    /// A node, with what only the leader's memory knows of it.
    fn node(&self, view: &State, node: &Node) -> pb::Node {
        let mut told = pb::node(view, node);
        if let Some(leading) = self.dispatcher.leading() {
            told.last_heard = leading.liveness.quiet(node.id).map(duration);
            told.orphans = u32::try_from(self.dispatcher.memory().orphans(node.id)).unwrap_or(u32::MAX);
        }
        told
    }

    /// What the agents told this manager, which leads.
    fn usage(&self, request: &pb::ListUsageRequest) -> Result<pb::ListUsageResponse, ApiError> {
        let view = self.core.node.view();
        if self.dispatcher.leading().is_none() {
            return Err(self.core.no_leader());
        }
        if !request.node.is_empty() {
            let wanted = name("node", &request.node)?;
            view.node_named(&wanted).ok_or_else(|| not_found(&wanted))?;
        }
        let connected = self.dispatcher.connected().into_iter().filter_map(|id| view.node(id));
        let wanted = connected.filter(|node| request.node.is_empty() || node.name.as_str() == request.node);
        let told = wanted.map(|node| {
            let told = self.dispatcher.memory().of(node.id);
            pb::NamedUsage { node: node.name.to_string(), usage: told.usage, progress: told.progress }
        });
        let mut nodes: Vec<pb::NamedUsage> = told.collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(pb::ListUsageResponse { meta: Some(self.core.meta(&view)), nodes })
    }
}

impl NodeApi {
    async fn list(
        &self,
        request: pb::ListNodesRequest,
        page: &Page,
    ) -> Result<pb::ListNodesResponse, ApiError> {
        let selector = Selector::parse("selector", &request.selector).map_err(invalid)?;
        let statuses = choices("statuses", &request.statuses, pb::NodeStatus::Unspecified)?;
        let after = page.key(|key| key.parse::<u32>().ok())?;
        let first = NodeId(after.map_or(0, |after| after.saturating_add(1)));
        let pages = self.router.pages();
        let view = pages.view(page, request.read.as_ref()).await?;
        let wanted = |node: &&Arc<Node>| {
            (statuses.is_empty() || statuses.contains(&pb::node_status(node.status)))
                && selector.matches(&node.facts.labels)
        };
        let rest = view.nodes_from(first).filter(wanted);
        let (nodes, next_page_token) = pages.cut(&view, rest, page, |n| n.id.0.to_string());
        let nodes = nodes.into_iter().map(|n| self.node(&view, n)).collect();
        Ok(pb::ListNodesResponse { meta: Some(self.core.meta(&view)), nodes, next_page_token })
    }
}

pub(super) fn not_found(node: &Name) -> ApiError {
    ApiError::new(Reason::NodeNotFound, format!("there is no node {node}")).with("node", node.as_str())
}

#[tonic::async_trait]
impl NodeService for NodeApi {
    async fn list_usage(
        &self,
        request: Request<pb::ListUsageRequest>,
    ) -> Result<Response<pb::ListUsageResponse>, Status> {
        let local = |request: pb::ListUsageRequest| async move { self.usage(&request) };
        let forward =
            |channel, request| async move { NodeServiceClient::new(channel).list_usage(request).await };
        self.router.write(request, local, forward).await
    }

    async fn get_node(
        &self,
        request: Request<pb::GetNodeRequest>,
    ) -> Result<Response<pb::GetNodeResponse>, Status> {
        let request = request.into_inner();
        let wanted = name("name", &request.name)?;
        let view = self.core.view(request.read.as_ref()).await?;
        let node = view.node_named(&wanted).ok_or_else(|| not_found(&wanted))?;
        let node = Some(self.node(&view, node));
        Ok(Response::new(pb::GetNodeResponse { meta: Some(self.core.meta(&view)), node }))
    }

    async fn list_nodes(
        &self,
        request: Request<pb::ListNodesRequest>,
    ) -> Result<Response<pb::ListNodesResponse>, Status> {
        let asked = request.get_ref();
        let statuses = format!("{:?}", asked.statuses);
        let page = Page::of(&["nodes", &asked.selector, &statuses], asked.page_size, &asked.page_token)?;
        if let Some(keeper) = self.router.keeper(&request, &page)? {
            let forward = async |channel, request| {
                NodeServiceClient::new(channel)
                    .max_decoding_message_size(MAX_ANSWER)
                    .list_nodes(request)
                    .await
            };
            return self.router.ask(&keeper, request.into_inner(), forward).await;
        }
        Ok(Response::new(self.list(request.into_inner(), &page).await?))
    }
}
