//! `NodeService`.

use quorate_model::Name;
use quorate_wire::{
    api::{self as pb, Page, node_service_server::NodeService},
    status::{ApiError, Reason},
};
use tonic::{Request, Response, Status};

use crate::{
    api::{cut, name},
    core::Core,
};

/// Answers for nodes.
#[derive(Clone)]
pub struct NodeApi {
    core: Core,
}

impl NodeApi {
    /// The service.
    #[must_use]
    pub fn new(core: Core) -> Self {
        Self { core }
    }
}

pub(super) fn not_found(node: &Name) -> ApiError {
    ApiError::new(Reason::NodeNotFound, format!("there is no node {node}")).with("node", node.as_str())
}

#[tonic::async_trait]
impl NodeService for NodeApi {
    async fn list_usage(
        &self,
        _request: Request<pb::ListUsageRequest>,
    ) -> Result<Response<pb::ListUsageResponse>, Status> {
        Err(super::unsupported("ListUsage"))
    }

    async fn get_node(
        &self,
        request: Request<pb::GetNodeRequest>,
    ) -> Result<Response<pb::GetNodeResponse>, Status> {
        let request = request.into_inner();
        let wanted = name("name", &request.name)?;
        let view = self.core.view(request.read.as_ref()).await?;
        let node = view.node_named(&wanted).ok_or_else(|| not_found(&wanted))?;
        let node = Some(pb::node(&view, node));
        Ok(Response::new(pb::GetNodeResponse { meta: Some(self.core.meta(&view)), node }))
    }

    async fn list_nodes(
        &self,
        request: Request<pb::ListNodesRequest>,
    ) -> Result<Response<pb::ListNodesResponse>, Status> {
        let request = request.into_inner();
        let page = Page::of(&["nodes"], request.page_size, &request.page_token)?;
        let after: Option<u32> = page.after.as_ref().and_then(|key| key.parse().ok());
        let view = self.core.view(request.read.as_ref()).await?;
        let rest = view.nodes().filter(|n| after.is_none_or(|a| n.id.0 > a));
        let (nodes, next_page_token) = cut(rest, &page, |n| n.id.to_string());
        let nodes = nodes.into_iter().map(|n| pb::node(&view, n)).collect();
        Ok(Response::new(pb::ListNodesResponse { meta: Some(self.core.meta(&view)), nodes, next_page_token }))
    }
}
