//! `node`

use quorate_wire::api::{GetNodeRequest, ListNodesRequest};

use super::context::{Context, print, print_json};
use super::pages;
use crate::failure::Failure;
use crate::render;

pub(super) async fn list(context: &Context) -> Result<(), Failure> {
    let request = ListNodesRequest { read: context.read(), ..ListNodesRequest::default() };
    let answer = pages::nodes(context, request).await?;
    if context.global.quiet && !context.json() {
        let sorted = render::node::by_name(&answer.nodes);
        let names: Vec<&str> = sorted.iter().map(|node| node.name.as_str()).collect();
        return print(&names.join("\n"));
    }
    context.answer(&answer, || render::node::table(&answer.nodes, context.now()))
}

pub(super) async fn inspect(context: &Context, node: &str) -> Result<(), Failure> {
    let request = GetNodeRequest { name: node.to_owned(), read: context.read() };
    print_json(&context.client.get_node(request).await?)
}
