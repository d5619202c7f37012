//! Waiting for a job to become what was asked for, and showing how it goes.

use std::time::Duration;

use quorate_base::{Mono, Timestamp};
use quorate_client::ClientError;
use quorate_wire::api::{GetJobRequest, Job, ListTasksRequest, ObjectKind, WatchRequest};
use quorate_wire::common;
use quorate_wire::status::Reason;

use super::context::{Context, JobKey, stale};
use super::display::Display;
use super::feed::{Feed, Heard};
use super::verdict::{Judge, STABLE, Verdict};
use crate::failure::Failure;
use crate::render::progress::Moment;
use crate::render::task::{name, told};

/// Exit code of a command that was interrupted while it waited.
pub(super) const INTERRUPTED: u8 = 130;
/// Exit code: accepted, but not all tasks can be placed.
const UNPLACED: u8 = 3;
/// Exit code: the job failed.
const FAILED: u8 = 4;
/// Exit code: out of time.
const OUT_OF_TIME: u8 = 9;

/// Shortest and longest pause between two looks.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The longest pause while a watch tells of changes.
const SURE: Duration = Duration::from_secs(10);
/// What was seen is judged anew at least this often: some verdicts are a matter of time.
const THOUGHTS: Duration = Duration::from_millis(500);
/// Tasks that are looked at, at most: a display cannot show more, and the counts are of all.
const LOOKED_AT: u32 = 1000;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The job is as its newest version wants it.
    Settled,
    /// There is no such job any more.
    Forgotten,
}

/// One wait.
pub(super) struct Waiting<'a> {
    /// Which job.
    pub(super) key: &'a JobKey,
    /// Revision of the write: older views do not count.
    pub(super) revision: u64,
    /// What for.
    pub(super) goal: Goal,
    /// Since when.
    pub(super) start: Mono,
    /// Until when at most.
    pub(super) deadline: Mono,
}

/// What a look found.
enum Seen {
    /// A manager that has not applied the write yet, or none that answers.
    Nothing,
    Gone,
    Moment(Box<Moment>),
}

/// Waits. The job as it is in the end, `None` when it is forgotten.
///
/// # Errors
/// Not all tasks can be placed, the job failed, the time is over, or Ctrl-C: in each case the work goes on.
pub(super) async fn wait(context: &Context, waiting: &Waiting<'_>) -> Result<Option<Job>, Failure> {
    let mut display = Display::new(context);
    let end = tokio::select! {
        end = watch(context, waiting, &mut display) => end,
        // Without a signal handler the default one still ends the process.
        Ok(()) = tokio::signal::ctrl_c() => Err(interrupted(waiting)),
    };
    display.close();
    end
}

/// Looks whenever something changed until the goal is met.
///
/// Changes are told by a watch, which goes on at another manager when one is lost. Where the managers refuse to be
/// watched, looks are made from time to time: cheap stale reads, rarer while nothing changes.
async fn watch(
    context: &Context,
    waiting: &Waiting<'_>,
    display: &mut Display,
) -> Result<Option<Job>, Failure> {
    let mut feed = Feed::new(&context.client, of(waiting));
    let (mut pause, mut last, mut judge) = (LOOKS.0, None, Judge::new(waiting.goal));
    loop {
        // Before something is heard, a look may show what was there already.
        let seen = look(context, waiting, &mut feed, display).await?;
        let looked = context.clock.monotonic();
        let complete = !matches!(seen, Seen::Nothing);
        match seen {
            Seen::Gone if waiting.goal == Goal::Forgotten => return Ok(None),
            Seen::Gone => return Err(Failure::new(1, format!("job {} was removed meanwhile", key(waiting)))),
            Seen::Nothing => {}
            Seen::Moment(moment) => {
                pause = if last.as_ref() == Some(&moment) { (pause * 3 / 2).min(LOOKS.1) } else { LOOKS.0 };
                last = Some(moment);
            }
        }
        let mut again = false;
        while !again {
            let now = context.clock.monotonic();
            let mut rest = waiting.deadline.since(now);
            if let Some(moment) = &last {
                match show(context, waiting, display, &mut judge, moment)? {
                    // The last word is not that of a while ago.
                    Step::Done if now.since(looked) >= LOOKS.0 => break,
                    Step::Done => return Ok(last.map(|moment| moment.job)),
                    Step::After(wish) => rest = rest.min(wish),
                }
            }
            if now >= waiting.deadline {
                return Err(too_late(context, waiting, last.as_deref()));
            }
            let next = looked.saturating_add(if feed.lives() && complete { SURE } else { pause });
            again = now >= next;
            rest = rest.min(next.since(now)).max(Duration::from_millis(1));
            tokio::select! {
                heard = feed.next(), if !again => match heard {
                    // Many changes at once are looked at once.
                    Heard::Change => {
                        context.clock.sleep_until(looked.saturating_add(LOOKS.0).min(waiting.deadline)).await;
                        again = true;
                    }
                    Heard::Leader(words) => display.note(context, &words),
                    Heard::Lost => {}
                },
                () = context.clock.sleep(rest), if !again => {}
                else => {}
            }
        }
    }
}

/// What follows from a moment.
enum Step {
    Done,
    /// It is worth another thought after this time.
    After(Duration),
}

/// Shows and judges a moment.
fn show(
    context: &Context,
    waiting: &Waiting<'_>,
    display: &mut Display,
    judge: &mut Judge,
    moment: &Moment,
) -> Result<Step, Failure> {
    let now = context.clock.monotonic();
    let verdict = judge.judge(moment, now);
    let verifying = matches!(verdict, Verdict::Verifying(_));
    let wish = display.show(context, moment, verifying, now.since(waiting.start)).min(THOUGHTS);
    match verdict {
        Verdict::Pending => Ok(Step::After(wish)),
        Verdict::Verifying(left) => Ok(Step::After(wish.min(left))),
        Verdict::Done => Ok(Step::Done),
        Verdict::Failed => Err(failed(waiting)),
        Verdict::GivenUp => Err(given_up(&key(waiting), moment, context.now())),
        Verdict::Unplaced => Err(too_late(context, waiting, Some(moment))),
    }
}

/// The job and its tasks.
fn of(waiting: &Waiting<'_>) -> WatchRequest {
    WatchRequest {
        kinds: vec![ObjectKind::Job.into(), ObjectKind::Task.into()],
        namespace: waiting.key.namespace.clone(),
        job: waiting.key.name.clone(),
        ..WatchRequest::default()
    }
}

async fn look(
    context: &Context,
    waiting: &Waiting<'_>,
    feed: &mut Feed,
    display: &mut Display,
) -> Result<Seen, Failure> {
    let JobKey { namespace, name } = waiting.key;
    // A stale read is enough and works through a change of the leader: its revision says what it includes.
    let least = waiting.revision.max(feed.revision());
    let read = stale().map(|read| common::ReadOptions { min_revision: feed.revision(), ..read });
    let request = GetJobRequest { namespace: namespace.clone(), name: name.clone(), read: read.clone() };
    let job = match context.client.get_job(request).await {
        Ok(answer) => answer,
        // A manager that has not seen the write yet says so, too; only the leader's word is final.
        Err(error) if is(&error, Reason::JobNotFound) => return gone(context, waiting).await,
        Err(ClientError::Deadline { .. } | ClientError::Unreachable { .. }) => return Ok(Seen::Nothing),
        Err(error) => return Err(error.into()),
    };
    let meta = job.meta.unwrap_or_default();
    if let Some(words) = feed.leads(&meta.leader) {
        display.note(context, &words);
    }
    if meta.applied_revision < least {
        return Ok(Seen::Nothing);
    }
    let request = ListTasksRequest {
        namespace: namespace.clone(),
        job: name.clone(),
        include_ended: true,
        page_size: LOOKED_AT,
        read,
        ..ListTasksRequest::default()
    };
    let tasks = match context.client.list_tasks(request).await {
        Ok(answer) => answer.tasks,
        Err(_) => return Ok(Seen::Nothing),
    };
    Ok(Seen::Moment(Box::new(Moment { job: job.job.unwrap_or_default(), tasks })))
}

/// Asks again whether the job is gone, this time of a quorum.
async fn gone(context: &Context, waiting: &Waiting<'_>) -> Result<Seen, Failure> {
    let JobKey { namespace, name } = waiting.key;
    let request = GetJobRequest { namespace: namespace.clone(), name: name.clone(), read: None };
    match context.client.get_job(request).await {
        Err(error) if is(&error, Reason::JobNotFound) => Ok(Seen::Gone),
        _ => Ok(Seen::Nothing),
    }
}

pub(super) fn is(error: &ClientError, reason: Reason) -> bool {
    matches!(error, ClientError::Api { error, .. } if error.reason == reason)
}

fn failed(waiting: &Waiting<'_>) -> Failure {
    let key = key(waiting);
    Failure::new(FAILED, format!("job {key} failed"))
        .hint(format!("quorate ps {key} -a    see what each task ended with"))
}

/// Replicas are missing that will not be tried again: which, why, and what helps.
pub(super) fn given_up(key: &str, moment: &Moment, now: Timestamp) -> Failure {
    let count = moment.job.counts.map_or(0, |counts| counts.given_up);
    let (replicas, them) =
        if count == 1 { ("1 replica", "it") } else { (&*format!("{count} replicas"), "them") };
    let message = format!("job {key}: {replicas} failed too often and will not be tried again");
    let mut failure = Failure::new(FAILED, message);
    let missing = moment.missing();
    for task in missing.iter().take(3) {
        failure = failure.detail(format!("{} gave up: {}", name(task), told(task, now)));
    }
    if missing.len() > 3 {
        failure = failure.detail(format!("and {} more", missing.len() - 3));
    }
    failure
        .hint(format!("repair the job file and run it again: a changed specification tries {them} again"))
        .hint(format!("quorate stop {key}, then quorate run FILE    try {them} again unchanged"))
}

fn key(waiting: &Waiting<'_>) -> String {
    format!("{}/{}", waiting.key.namespace, waiting.key.name)
}

fn too_late(context: &Context, waiting: &Waiting<'_>, last: Option<&Moment>) -> Failure {
    let (key, now) = (key(waiting), context.now());
    let Some(moment) = last else {
        return Failure::new(OUT_OF_TIME, format!("job {key}: accepted, but no manager told how it goes"))
            .hint("quorate cluster status    see who can be reached");
    };
    let unplaced = moment.unplaced();
    let mut failure = if moment.job.converged && unplaced.is_empty() {
        let window = STABLE.as_secs();
        let message =
            format!("job {key} runs, but its tasks have not stayed up for {window}s yet; the work goes on");
        Failure::new(OUT_OF_TIME, message)
    } else if unplaced.is_empty() {
        Failure::new(OUT_OF_TIME, format!("job {key} is not there yet; the work goes on"))
    } else {
        let more = moment.job.counts.map_or(0, |counts| counts.pending);
        Failure::new(UNPLACED, format!("job {key}: accepted, but {more} of its tasks cannot be placed"))
    };
    for task in moment.unsettled().into_iter().take(3) {
        failure = failure.detail(format!("{} {}", name(task), told(task, now)));
    }
    if let Some(failed) = moment.last_failure() {
        failure = failure.detail(format!("last failure: {} {}", name(failed), told(failed, now)));
    }
    failure
        .hint(format!("quorate ps {key} -a    see every task"))
        .hint("quorate node ls    see what room there is")
}

fn interrupted(waiting: &Waiting<'_>) -> Failure {
    let key = key(waiting);
    let gone = if waiting.goal == Goal::Forgotten { " --gone" } else { "" };
    Failure::new(INTERRUPTED, format!("stopped waiting; the work on job {key} goes on"))
        .hint(format!("quorate job wait {key}{gone}    wait on"))
        .hint(format!("quorate ps {key}    see how far it is"))
}
