//! `run`, `stop`, `scale`, `job`

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_base::Mono;
use quorate_client::ClientError;
use quorate_wire::api::{
    ApplyJobRequest, ApplyJobResponse, DeleteJobRequest, GetJobRequest, Job, ListJobsRequest,
    ListTasksRequest, ScaleJobRequest,
};

use super::args::{RunArgs, ScaleArgs, StopArgs};
use super::context::{Context, JobKey, print, print_json, say};
use super::wait::{Goal, Waiting};
use super::{pages, wait};
use crate::failure::Failure;
use crate::render;
use crate::render::progress::Moment;
use crate::render::task::Show;
use crate::spec::{self, Loaded};

pub(super) async fn list(context: &Context) -> Result<(), Failure> {
    let request = ListJobsRequest {
        namespace: context.listed_namespace(),
        read: context.read(),
        ..ListJobsRequest::default()
    };
    let answer = pages::jobs(context, request).await?;
    if context.global.quiet && !context.json() {
        let names: Vec<String> =
            answer.jobs.iter().map(|job| format!("{}/{}", job.namespace, job.name)).collect();
        return print(&names.join("\n"));
    }
    context.answer(&answer, || render::job::table(&answer.jobs, context.now()))
}

pub(super) async fn inspect(context: &Context, job: &str) -> Result<(), Failure> {
    print_json(&context.client.get_job(get(context, context.job(job)?)).await?)
}

fn get(context: &Context, key: JobKey) -> GetJobRequest {
    GetJobRequest { namespace: key.namespace, name: key.name, read: context.read() }
}

pub(super) async fn status(context: &Context, job: &str) -> Result<(), Failure> {
    let key = context.job(job)?;
    let answer = context.client.get_job(get(context, key.clone())).await?;
    if context.json() {
        return print_json(&answer);
    }
    let request = ListTasksRequest {
        namespace: key.namespace,
        job: key.name,
        read: context.read(),
        ..ListTasksRequest::default()
    };
    let tasks = pages::tasks(context, request.clone()).await?.tasks;
    let tasks = super::task::with_history(context, request, tasks, Show::Slots).await?;
    let job = answer.job.unwrap_or_default();
    print(&render::job::details(&job, &tasks, context.now()))?;
    let name = format!("{}/{}", job.namespace, job.name);
    let moment = Moment { job, tasks };
    if moment.gave_up() { Err(wait::given_up(&name, &moment, context.now())) } else { Ok(()) }
}

/// A write that was accepted and may be waited for.
struct Accepted {
    key: JobKey,
    revision: u64,
    goal: Goal,
}

pub(super) async fn run(context: &Context, args: RunArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let files: Vec<String> = args.files.into_iter().chain(args.more).collect();
    let jobs = spec::load(&files, args.format, context.namespace.as_ref())?;
    let request_id = context.request_id(jobs.len())?;
    if args.etag.is_some() && jobs.len() > 1 {
        let message =
            format!("--etag is the state of one job, and the files hold {}: run them one by one", jobs.len());
        return Err(Failure::new(2, message));
    }
    let mut accepted = Vec::new();
    for job in &jobs {
        let request = ApplyJobRequest {
            spec: Some((&job.spec).into()),
            etag: args.etag.clone().unwrap_or_default(),
            request_id: request_id.clone(),
            validate_only: args.dry_run,
            ..ApplyJobRequest::default()
        };
        let answer = context.client.apply_job(request).await.map_err(|error| refused(job, error))?;
        let key = JobKey { namespace: job.spec.namespace.to_string(), name: job.spec.name.to_string() };
        announce(context, &key, &answer, args.dry_run)?;
        accepted.push(Accepted { key, revision: answer.revision, goal: Goal::Settled });
    }
    if args.dry_run || args.detach {
        return Ok(());
    }
    settle(context, accepted, start).await
}

/// A refusal by the managers, at the places of the file.
fn refused(job: &Loaded, error: ClientError) -> Failure {
    let mut violations = error.api().map(|api| api.violations.0.clone()).unwrap_or_default();
    // Not of the file: it has no place there.
    if let Some(at) = violations.iter().position(|one| one.path == "etag") {
        let message = format!("--etag: {}", violations.swap_remove(at).reason);
        if violations.is_empty() {
            return Failure::new(5, message).hint("quorate status JOB    shows the etag of a job");
        }
    }
    let problems = violations.iter().map(|one| job.problem(&one.path, &one.reason)).collect();
    Failure::from(error).with_problems(problems)
}

fn announce(
    context: &Context,
    key: &JobKey,
    answer: &ApplyJobResponse,
    dry_run: bool,
) -> Result<(), Failure> {
    if context.json() {
        return print_json(answer);
    }
    let JobKey { namespace, name } = key;
    if context.global.quiet {
        return print(&format!("{namespace}/{name}"));
    }
    let version = answer.job.as_ref().map_or(0, |job| job.version);
    let what = match (answer.created, answer.unchanged) {
        _ if dry_run => "is valid; nothing was written".to_owned(),
        (_, true) => format!("unchanged (version {version})"),
        (true, _) => format!("created (version {version})"),
        (false, false) => format!("updated to version {version}"),
    };
    let revision = if dry_run { String::new() } else { format!("   revision {}", answer.revision) };
    // A sentence reads on; a finding stands behind a colon.
    let colon = if dry_run { "" } else { ":" };
    print(&format!("job {namespace}/{name}{colon} {what}{revision}"))
}

pub(super) async fn stop(context: &Context, args: StopArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let keys = args.jobs.iter().map(|text| context.job(text)).collect::<Result<Vec<_>, _>>()?;
    let request_id = context.request_id(keys.len())?;
    if args.purge && !args.yes {
        let names: Vec<String> = keys.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect();
        let them = if names.len() == 1 { "it" } else { "them" };
        let question = format!("Stop {} and forget everything about {them}?", names.join(", "));
        if !context.confirm(&question)? {
            return Err(Failure::new(1, "nothing was changed"));
        }
    }
    let mut accepted = Vec::new();
    for key in keys {
        let request = DeleteJobRequest {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            purge: args.purge,
            request_id: request_id.clone(),
            ..DeleteJobRequest::default()
        };
        let answer = context.client.delete_job(request).await?;
        let what = if args.purge { "stopping, then forgotten" } else { "stopping" };
        report(context, &key, &answer, what, answer.revision)?;
        let goal = if args.purge { Goal::Forgotten } else { Goal::Settled };
        accepted.push(Accepted { key, revision: answer.revision, goal });
    }
    if args.detach { Ok(()) } else { settle(context, accepted, start).await }
}

pub(super) async fn scale(context: &Context, args: ScaleArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let targets = args.targets.iter().map(|text| target(context, text)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    if let Some((twice, _)) = targets.iter().find(|(key, _)| !seen.insert(key)) {
        let message = format!("{}/{} is given twice: name each job once", twice.namespace, twice.name);
        return Err(Failure::new(2, message));
    }
    let request_id = context.request_id(targets.len())?;
    let mut accepted = Vec::new();
    for (key, replicas) in targets {
        let request = ScaleJobRequest {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            replicas,
            request_id: request_id.clone(),
            ..ScaleJobRequest::default()
        };
        let answer = context.client.scale_job(request).await?;
        report(context, &key, &answer, &format!("scaled to {replicas}"), answer.revision)?;
        accepted.push(Accepted { key, revision: answer.revision, goal: Goal::Settled });
    }
    if args.detach { Ok(()) } else { settle(context, accepted, start).await }
}

fn report<T: serde::Serialize>(
    context: &Context,
    key: &JobKey,
    answer: &T,
    what: &str,
    revision: u64,
) -> Result<(), Failure> {
    let JobKey { namespace, name } = key;
    if context.json() {
        print_json(answer)
    } else if context.global.quiet {
        print(&format!("{namespace}/{name}"))
    } else {
        print(&format!("job {namespace}/{name}: {what}   revision {revision}"))
    }
}

/// `JOB=N`
fn target(context: &Context, text: &str) -> Result<(JobKey, u32), Failure> {
    let bad = || Failure::new(2, format!("{text:?} is not JOB=REPLICAS: write it like web=5"));
    let (job, replicas) = text.split_once('=').ok_or_else(bad)?;
    Ok((context.job(job)?, replicas.parse().map_err(|_| bad())?))
}

/// Waits for all of them, one after the other, within one time.
async fn settle(context: &Context, accepted: Vec<Accepted>, start: Mono) -> Result<(), Failure> {
    let deadline = start.saturating_add(context.patience());
    let mut failures = Vec::new();
    for one in accepted {
        let waiting = Waiting { key: &one.key, revision: one.revision, goal: one.goal, start, deadline };
        match wait::wait(context, &waiting).await {
            Ok(job) => done(context, &one.key, job.as_ref(), context.clock.monotonic().since(start)),
            // Who interrupts wants to be back at the prompt.
            Err(failure) if failure.exit == wait::INTERRUPTED => return Err(failure),
            Err(failure) => failures.push(failure),
        }
    }
    Failure::of_all(failures).map_or(Ok(()), Err)
}

fn done(context: &Context, key: &JobKey, job: Option<&Job>, took: Duration) {
    if context.global.quiet {
        return;
    }
    let what = job.map_or_else(
        || "is gone".to_owned(),
        |job| format!("{}, {}", render::job::status(job), render::job::tasks(job)),
    );
    let tick = context.global.style().good("✔");
    say(&format!("{tick} job {}/{}: {what} after {:.1}s", key.namespace, key.name, took.as_secs_f64()));
}
