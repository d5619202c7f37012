//! `run`, `stop`, `scale`, `job`

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_base::Mono;
use quorate_client::ClientError;
use quorate_wire::api::{
    ApplyJobRequest, ApplyJobResponse, DeleteJobRequest, GetJobRequest, Job, ListJobsRequest,
    ListJobsResponse, ListTasksRequest, ScaleJobRequest,
};
use quorate_wire::status::Reason;

use super::args::{ListArgs, RunArgs, ScaleArgs, StopArgs, WaitArgs};
use super::context::{Context, JobKey, print, say};
use super::wait::{Goal, Waiting};
use super::{pages, wait};
use crate::failure::Failure;
use crate::render;
use crate::render::progress::Moment;
use crate::render::style::Tint;
use crate::render::task::Show;
use crate::spec::{self, Loaded};

/// `namespace/name`
pub(super) fn full_name(key: &JobKey) -> String {
    format!("{}/{}", key.namespace, key.name)
}

pub(super) async fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    if args.watch {
        return super::events::jobs(context, args).await;
    }
    let mut answer = pages::jobs(context, every(context, &args)).await?;
    show(context, &mut answer, &args)
}

/// The request for all jobs that the flags allow.
pub(super) fn every(context: &Context, args: &ListArgs) -> ListJobsRequest {
    ListJobsRequest {
        namespace: context.listed_namespace(),
        selector: args.selector.clone().unwrap_or_default(),
        read: context.read(),
        ..ListJobsRequest::default()
    }
}

pub(super) fn show(context: &Context, answer: &mut ListJobsResponse, args: &ListArgs) -> Result<(), Failure> {
    let printer = &context.printer;
    printer.choose(render::job::COLUMNS, &mut answer.jobs, args)?;
    let name = |job: &Job| format!("{}/{}", job.namespace, job.name);
    let table = || render::job::table(&answer.jobs, &printer.layout(args), printer.now());
    printer.list(answer, &answer.jobs, name, table)
}

pub(super) async fn inspect(context: &Context, job: &str) -> Result<(), Failure> {
    let key = context.job(job)?;
    let name = full_name(&key);
    context.printer.object(&context.client.get_job(get(context, key)).await?, &name)
}

fn get(context: &Context, key: JobKey) -> GetJobRequest {
    GetJobRequest { namespace: key.namespace, name: key.name, read: context.read() }
}

pub(super) async fn status(context: &Context, job: &str) -> Result<(), Failure> {
    let key = context.job(job)?;
    let name = full_name(&key);
    let answer = context.client.get_job(get(context, key.clone())).await?;
    if context.json() || context.names_only() {
        return context.printer.object(&answer, &name);
    }
    context.saw(answer.meta.as_ref());
    let request = ListTasksRequest {
        namespace: key.namespace,
        job: key.name,
        read: context.read(),
        ..ListTasksRequest::default()
    };
    let tasks = pages::tasks(context, request.clone()).await?.tasks;
    let tasks = super::task::with_history(context, request, tasks, Show::Slots).await?;
    let job = answer.job.unwrap_or_default();
    let layout = context.printer.layout(&ListArgs::default());
    print(&render::job::details(&job, &tasks, &layout, context.now()).map_err(|why| Failure::new(2, why))?)?;
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
    let etags = if args.plan_first {
        super::plan::agreed(context, &jobs).await?
    } else {
        vec![args.etag.clone().unwrap_or_default(); jobs.len()]
    };
    let mut accepted = Vec::new();
    for (job, etag) in jobs.iter().zip(etags) {
        let request = ApplyJobRequest {
            spec: Some((&job.spec).into()),
            etag,
            request_id: request_id.clone(),
            validate_only: args.dry_run,
            ..ApplyJobRequest::default()
        };
        let answer = context.client.apply_job(request).await.map_err(|error| refused(job, error))?;
        context.saw(answer.meta.as_ref());
        for warning in &answer.warnings {
            warn(context, warning);
        }
        let key = JobKey { namespace: job.spec.namespace.to_string(), name: job.spec.name.to_string() };
        announce(context, &key, &answer, args.dry_run)?;
        accepted.push(Accepted { key, revision: answer.revision, goal: Goal::Settled });
    }
    if args.dry_run || args.detach {
        return Ok(());
    }
    settle(context, accepted, start).await
}

/// Says what should be known although all went well.
pub(super) fn warn(context: &Context, warning: &str) {
    if !context.global.quiet && !context.json() {
        say(&format!("{} {warning}", context.global.style().tint(Tint::Warn, "warning:")));
    }
}

/// A refusal by the managers, at the places of the file.
pub(super) fn refused(job: &Loaded, error: ClientError) -> Failure {
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
    let name = full_name(key);
    context.written(answer, &name, || format!("job {name}{colon} {what}{revision}"))
}

pub(super) async fn stop(context: &Context, args: StopArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let keys = args.jobs.iter().map(|text| context.job(text)).collect::<Result<Vec<_>, _>>()?;
    let request_id = context.request_id(keys.len())?;
    one_etag(args.etag.as_ref(), keys.len())?;
    if args.purge && !args.dry_run {
        let names: Vec<String> = keys.iter().map(full_name).collect();
        let them = if names.len() == 1 { "it" } else { "them" };
        super::print::confirm(
            &context.global,
            &format!("Stop {} and forget everything about {them}?", names.join(", ")),
        )?;
    }
    let mut accepted = Vec::new();
    for key in keys {
        let request = DeleteJobRequest {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            purge: args.purge,
            request_id: request_id.clone(),
            etag: args.etag.clone().unwrap_or_default(),
            validate_only: args.dry_run,
        };
        let answer = context.client.delete_job(request).await?;
        context.saw(answer.meta.as_ref());
        let what = match (args.dry_run, args.purge) {
            (false, true) => "stopping, then forgotten",
            (false, false) => "stopping",
            (true, true) => "stopped, then forgotten",
            (true, false) => "stopped",
        };
        report(context, &key, &answer, what, (!args.dry_run).then_some(answer.revision))?;
        let goal = if args.purge { Goal::Forgotten } else { Goal::Settled };
        accepted.push(Accepted { key, revision: answer.revision, goal });
    }
    if args.detach || args.dry_run { Ok(()) } else { settle(context, accepted, start).await }
}

/// An etag is the state of one job.
fn one_etag(etag: Option<&String>, jobs: usize) -> Result<(), Failure> {
    match etag {
        Some(_) if jobs > 1 => {
            let message =
                format!("--etag is the state of one job, and {jobs} are given: take them one by one");
            Err(Failure::new(2, message))
        }
        _ => Ok(()),
    }
}

/// Waits for what an interrupted command waited for.
pub(super) async fn wait(context: &Context, args: WaitArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let keys = args.jobs.iter().map(|text| context.job(text)).collect::<Result<Vec<_>, _>>()?;
    let (goal, mut accepted) = (if args.gone { Goal::Forgotten } else { Goal::Settled }, Vec::new());
    for key in keys {
        // A quorum says what there is to wait for: nothing older counts.
        let revision = match context.client.get_job(get(context, key.clone())).await {
            Ok(answer) => answer.meta.map_or(0, |meta| meta.applied_revision),
            Err(error) if args.gone && wait::is(&error, Reason::JobNotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        accepted.push(Accepted { key, revision, goal });
    }
    settle(context, accepted, start).await
}

pub(super) async fn scale(context: &Context, args: ScaleArgs) -> Result<(), Failure> {
    let start = context.clock.monotonic();
    let targets = args.targets.iter().map(|text| target(context, text)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    if let Some((twice, _)) = targets.iter().find(|(key, _)| !seen.insert(key)) {
        let message = format!("{}/{} is given twice: name each job once", twice.namespace, twice.name);
        return Err(Failure::new(2, message));
    }
    one_etag(args.etag.as_ref(), targets.len())?;
    let request_id = context.request_id(targets.len())?;
    let mut accepted = Vec::new();
    for (key, replicas) in targets {
        let request = ScaleJobRequest {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            replicas,
            request_id: request_id.clone(),
            etag: args.etag.clone().unwrap_or_default(),
            validate_only: args.dry_run,
        };
        let answer = context.client.scale_job(request).await?;
        context.saw(answer.meta.as_ref());
        let what = format!("scaled to {replicas}");
        report(context, &key, &answer, &what, (!args.dry_run).then_some(answer.revision))?;
        accepted.push(Accepted { key, revision: answer.revision, goal: Goal::Settled });
    }
    if args.detach || args.dry_run { Ok(()) } else { settle(context, accepted, start).await }
}

/// Prints the answer to a write; without a revision it was only checked.
fn report<T: serde::Serialize>(
    context: &Context,
    key: &JobKey,
    answer: &T,
    what: &str,
    revision: Option<u64>,
) -> Result<(), Failure> {
    let name = full_name(key);
    context.written(answer, &name, || match revision {
        Some(revision) => format!("job {name}: {what}   revision {revision}"),
        None => format!("job {name}: would be {what}; nothing was written"),
    })
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
