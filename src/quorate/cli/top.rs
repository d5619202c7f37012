//! `top`

use clap::{Args, ValueEnum};
use quorate_wire::api::{ListNodesRequest, ListTasksRequest, ListUsageRequest};

use super::context::{Context, stale};
use super::pages;
use super::verbs::ListArgs;
use crate::failure::Failure;
use crate::render::usage;

/// `top`
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Of what
    #[arg(value_enum, default_value_t = Of::Nodes)]
    pub(crate) of: Of,
    /// Only of this node
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// What to show of them.
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Of {
    /// What each node uses
    Nodes,
    /// What each task uses, the busiest first, and how far starts are
    Tasks,
}

/// Shows what is used at the moment, as the leader knows it.
pub(super) async fn run(context: &Context, args: TopArgs) -> Result<(), Failure> {
    let request = ListUsageRequest { node: args.node.clone().unwrap_or_default() };
    let answer = context.client.list_usage(request).await?;
    let printer = &context.printer;
    let (layout, now) = (printer.layout(&args.list), printer.now());
    match args.of {
        Of::Nodes => {
            let nodes =
                pages::nodes(context, ListNodesRequest { read: stale(), ..Default::default() }).await?;
            let mut rows = usage::node_rows(answer.nodes.clone(), &nodes.nodes);
            printer.choose(usage::NODES, &mut rows, &args.list)?;
            let name = |row: &usage::NodeRow| row.usage.node.clone();
            printer.list(&answer, &rows, name, || usage::nodes(&rows, &layout, now))
        }
        Of::Tasks => {
            let tasks =
                pages::tasks(context, ListTasksRequest { read: stale(), ..Default::default() }).await?;
            let mut rows = usage::task_rows(&answer.nodes, &tasks.tasks);
            printer.choose(usage::TASKS, &mut rows, &args.list)?;
            printer.list(&answer, &rows, |row| row.id.clone(), || usage::tasks(&rows, &layout, now))
        }
    }
}
