//! `ps`, `task`

use quorate_wire::api::{GetTaskRequest, ListTasksRequest};

use super::args::PsArgs;
use super::context::{Context, print, print_json};
use super::pages;
use crate::failure::Failure;
use crate::render;

pub(super) async fn list(context: &Context, args: PsArgs) -> Result<(), Failure> {
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
    let answer = pages::tasks(context, request).await?;
    if context.global.quiet && !context.json() {
        let ids: Vec<&str> = answer.tasks.iter().map(|task| task.id.as_str()).collect();
        return print(&ids.join("\n"));
    }
    context.answer(&answer, || render::task::table(&answer.tasks, context.now()))
}

pub(super) async fn inspect(context: &Context, task: &str) -> Result<(), Failure> {
    let request = GetTaskRequest { id: task.to_owned(), read: context.read() };
    print_json(&context.client.get_task(request).await?)
}
