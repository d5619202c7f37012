//! `ps`, `task`

use std::collections::BTreeSet;

use quorate_wire::api::{GetTaskRequest, ListTasksRequest, ListTasksResponse, Task};

use super::args::{ListArgs, PsArgs};
use super::context::Context;
use super::pages;
use crate::failure::Failure;
use crate::render;
use crate::render::task::Show;

pub(super) async fn list(context: &Context, args: PsArgs) -> Result<(), Failure> {
    if args.list.watch {
        return super::events::tasks(context, args).await;
    }
    let (mut answer, show) = read(context, &args).await?;
    self::show(context, &mut answer, show, &args.list)
}

/// The tasks that the flags ask for, and what of them is shown.
pub(super) async fn read(context: &Context, args: &PsArgs) -> Result<(ListTasksResponse, Show), Failure> {
    let (request, show) = asked(context, args)?;
    let mut answer = pages::tasks(context, request.clone()).await?;
    if show != Show::History && !context.json() && !context.names_only() {
        context.saw(answer.meta.as_ref());
        let request = ListTasksRequest { read: context.read(), ..request };
        answer.tasks = with_history(context, request, answer.tasks, show).await?;
    }
    Ok((answer, show))
}

/// The request that the flags make, and what of the answer is shown.
pub(super) fn asked(context: &Context, args: &PsArgs) -> Result<(ListTasksRequest, Show), Failure> {
    // Who asks for a state may ask for one of the ended.
    let by_state =
        args.list.filters.iter().any(|filter| matches!(filter.key.as_str(), "state" | "status" | "last"));
    let all = args.all || by_state;
    let show = match (&args.job, all) {
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
        node: args.node.clone().unwrap_or_default(),
        include_ended: all,
        selector: args.list.selector.clone().unwrap_or_default(),
        read: context.read(),
        ..ListTasksRequest::default()
    };
    Ok((request, show))
}

/// Prints the tasks of an answer: as a document in the order of the answer unless another one is asked for.
pub(super) fn show(
    context: &Context,
    answer: &mut ListTasksResponse,
    show: Show,
    args: &ListArgs,
) -> Result<(), Failure> {
    let printer = &context.printer;
    let tasks = std::mem::take(&mut answer.tasks);
    let mut rows = if context.json() || context.names_only() {
        render::task::plain_rows(tasks)
    } else {
        render::task::rows(&tasks, show, printer.now())
    };
    printer.choose(render::task::COLUMNS, &mut rows, args)?;
    if context.json() {
        answer.tasks = rows.into_iter().map(|row| row.task).collect();
        return printer.list(answer, &answer.tasks, |task| task.id.clone(), || Ok(String::new()));
    }
    let names: Vec<&str> = rows.iter().map(|row| row.task.id.as_str()).collect();
    let table = || render::task::table(&rows, &printer.layout(args), printer.now());
    printer.list(&(), &names, |name| (*name).to_owned(), table)
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
    let request = GetTaskRequest { id: context.task(task)?, read: context.read() };
    context.printer.object(&context.client.get_task(request).await?, task)
}
