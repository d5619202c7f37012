//! `node`

use quorate_wire::api::{GetNodeRequest, ListNodesRequest, ListNodesResponse, Node};

use super::args::ListArgs;
use super::context::Context;
use super::pages;
use crate::failure::Failure;
use crate::render;

pub(super) async fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    if args.watch {
        return super::events::nodes(context, args).await;
    }
    let mut answer = pages::nodes(context, every(context, &args)).await?;
    show(context, &mut answer, &args)
}

/// The request for all nodes that the flags allow.
pub(super) fn every(context: &Context, args: &ListArgs) -> ListNodesRequest {
    let selector = args.selector.clone().unwrap_or_default();
    ListNodesRequest { selector, read: context.read(), ..ListNodesRequest::default() }
}

pub(super) fn show(
    context: &Context,
    answer: &mut ListNodesResponse,
    args: &ListArgs,
) -> Result<(), Failure> {
    let printer = &context.printer;
    render::node::by_name(&mut answer.nodes);
    printer.choose(render::node::COLUMNS, &mut answer.nodes, args)?;
    let table = || render::node::table(&answer.nodes, &printer.layout(args), printer.now());
    printer.list(answer, &answer.nodes, |node: &Node| node.name.clone(), table)
}

pub(super) async fn inspect(context: &Context, node: &str) -> Result<(), Failure> {
    let request = GetNodeRequest { name: node.to_owned(), read: context.read() };
    context.printer.object(&context.client.get_node(request).await?, node)
}
