//! `ps`, `task`

use std::collections::BTreeSet;

use quorate_wire::api::{GetTaskRequest, ListTasksRequest, Task};

use super::args::PsArgs;
use super::context::{Context, print, print_json};
use super::pages;
use crate::failure::Failure;
use crate::render;
use crate::render::task::Show;

pub(super) async fn list(context: &Context, args: PsArgs) -> Result<(), Failure> {
    let show = match (&args.job, args.all) {
        (_, true) => Show::History,
        // On one node a slot's last task may well not be there.
        (Some(_), false) if args.node.is_none() => Show::Slots,
        (_, false) => Show::Live,
    };
    let job = args.job.as_deref().map(|text| context.job(text)).transpose()?;
    let (namespace, job) = match job {
        Some(key) => (key.namespace, key.name),
        None => (context.listed_namespace(), String::new()),
    };
    let request = ListTasksRequest {
        namespace,
        job,
        node: args.node.unwrap_or_default(),
        include_ended: args.all,
        read: context.read(),
        ..ListTasksRequest::default()
    };
    let mut answer = pages::tasks(context, request.clone()).await?;
    if context.global.quiet && !context.json() {
        let ids: Vec<&str> = answer.tasks.iter().map(|task| task.id.as_str()).collect();
        return print(&ids.join("\n"));
    }
    if show != Show::History && !context.json() {
        answer.tasks = with_history(context, request, answer.tasks, show).await?;
    }
    context.answer(&answer, || render::task::table(&answer.tasks, show, context.now()))
}

/// The same tasks, with the ended ones where those tell why some do not run or are not there.
pub(super) async fn with_history(
    context: &Context,
    request: ListTasksRequest,
    tasks: Vec<Task>,
    show: Show,
) -> Result<Vec<Task>, Failure> {
    if show != Show::Slots && !render::task::want_history(&tasks) {
        return Ok(tasks);
    }
    // Not only those on one node: the one before may have been elsewhere.
    let request = ListTasksRequest { include_ended: true, node: String::new(), ..request };
    let mut all = pages::tasks(context, request).await?.tasks;
    let wanted: BTreeSet<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    all.retain(|task| render::task::is_ended(task) || wanted.contains(task.id.as_str()));
    Ok(all)
}

pub(super) async fn inspect(context: &Context, task: &str) -> Result<(), Failure> {
    let request = GetTaskRequest { id: task.to_owned(), read: context.read() };
    print_json(&context.client.get_task(request).await?)
}
