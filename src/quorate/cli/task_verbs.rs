//! `task stop`, `task restart`, `task signal`

use clap::Args;
use clap_complete::ArgValueCandidates;
use quorate_wire::api::{RestartTaskRequest, SignalTaskRequest, StopTaskRequest};

use super::complete;
use super::context::Context;
use crate::failure::Failure;

/// `task stop`, `task restart`
#[derive(Debug, Args)]
pub(crate) struct TaskWriteArgs {
    /// Tasks, as ids like t42, or JOB[SLOT]
    #[arg(required = true, value_name = "TASK", add = ArgValueCandidates::new(complete::tasks))]
    pub(crate) tasks: Vec<String>,
    /// Only check: nothing is written
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `task signal`
#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Task, as an id like t42, or JOB[SLOT]
    #[arg(add = ArgValueCandidates::new(complete::tasks))]
    pub(crate) task: String,
    /// Signal, like SIGHUP or HUP
    pub(crate) signal: String,
}

/// Stops tasks; their jobs get others in their places.
pub(super) async fn stop(context: &Context, args: TaskWriteArgs) -> Result<(), Failure> {
    let request_id = context.request_id(args.tasks.len())?;
    for task in &args.tasks {
        let (id, request_id) = (context.task(task)?, request_id.clone());
        let request = StopTaskRequest { id, request_id, validate_only: args.dry_run };
        let answer = context.client.stop_task(request).await?;
        context.saw(answer.meta.as_ref());
        let id = answer.task.as_ref().map_or(task.as_str(), |task| task.id.as_str());
        context.written(&answer, id, || told(id, "stopping", answer.revision))?;
    }
    Ok(())
}

/// Restarts tasks in place.
pub(super) async fn restart(context: &Context, args: TaskWriteArgs) -> Result<(), Failure> {
    let request_id = context.request_id(args.tasks.len())?;
    for task in &args.tasks {
        let (id, request_id) = (context.task(task)?, request_id.clone());
        let request = RestartTaskRequest { id, request_id, validate_only: args.dry_run };
        let answer = context.client.restart_task(request).await?;
        context.saw(answer.meta.as_ref());
        let id = answer.task.as_ref().map_or(task.as_str(), |task| task.id.as_str());
        context.written(&answer, id, || told(id, "restarting in place", answer.revision))?;
    }
    Ok(())
}

/// Sends a task's main process a signal.
pub(super) async fn signal(context: &Context, args: SignalArgs) -> Result<(), Failure> {
    let request = SignalTaskRequest {
        id: context.task(&args.task)?,
        signal: args.signal.clone(),
        request_id: context.request_id(1)?,
    };
    let answer = context.client.signal_task(request).await?;
    context.written(&answer, &args.task, || format!("task {}: {} sent", args.task, args.signal))
}

fn told(id: &str, what: &str, revision: u64) -> String {
    match revision {
        0 => format!("task {id}: {what} would be done"),
        revision => format!("task {id}: {what} (revision {revision})"),
    }
}
