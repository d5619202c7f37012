//! `events`, and lists that go on: `ps -w`, `job ls -w`, `node ls -w`

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use quorate_base::Timestamp;
use quorate_client::WatchEvent;
use quorate_wire::api::change::Object;
use quorate_wire::api::{Change, ListTasksRequest, ObjectKind, WatchRequest};

use super::args::{EventsArgs, Kind, ListArgs, PsArgs};
use super::context::{Context, print, say};
use super::feed::{Feed, Heard};
use super::{job, node, pages, task};
use crate::failure::Failure;
use crate::render::style::dumb;
use crate::render::{self, change};

/// A terminal is redrawn at most this often.
const REDRAWS: Duration = Duration::from_millis(200);
/// Its ages move on at least this often.
const TICK: Duration = Duration::from_secs(5);

/// Prints changes.
pub(super) async fn run(context: &Context, args: EventsArgs) -> Result<(), Failure> {
    let kinds = args.kinds.iter().map(|kind| match kind {
        Kind::Job => ObjectKind::Job.into(),
        Kind::Task => ObjectKind::Task.into(),
        Kind::Node => ObjectKind::Node.into(),
        Kind::Manager => ObjectKind::Manager.into(),
    });
    let job = args.job.as_deref().map(|text| context.job(text)).transpose()?;
    let (namespace, job) = match job {
        Some(key) => (key.namespace, key.name),
        None => (context.listed_namespace(), String::new()),
    };
    let request = WatchRequest {
        kinds: kinds.collect(),
        namespace,
        job,
        node: args.node.unwrap_or_default(),
        selector: args.selector.unwrap_or_default(),
        start_revision: args.since.unwrap_or(0),
        ..WatchRequest::default()
    };
    follow(context, request, args.follow, |_| Ok(true)).await
}

/// Prints the changes that `wanted` keeps, one a line, until the present is reached, or for ever.
async fn follow(
    context: &Context,
    request: WatchRequest,
    on: bool,
    wanted: impl Fn(&Change) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let resumed = request.start_revision > 0;
    let mut watch = context.client.watch(request);
    let mut began = false;
    loop {
        let event = tokio::select! {
            event = watch.next() => event?,
            Ok(()) = tokio::signal::ctrl_c() => return Err(Failure::silent(super::wait::INTERRUPTED)),
        };
        let (revision, time, changes) = match event {
            WatchEvent::Snapshot { revision, changes } => (revision, None, changes),
            WatchEvent::Changes { revision, time, changes } => (revision, time, changes),
            WatchEvent::Bookmark { .. } if !on => return Ok(()),
            WatchEvent::Bookmark { .. } => continue,
            WatchEvent::Moved { from, to, .. } => {
                note(context, &format!("{from} is lost, {to} goes on"));
                continue;
            }
            // Who asked for changes since then shall not take a snapshot for them.
            WatchEvent::Restarted { reason } if resumed && !began => return Err(Failure::new(5, reason)),
            WatchEvent::Restarted { reason } => {
                note(context, &format!("{reason}; everything there is follows"));
                continue;
            }
        };
        began = true;
        for change in &changes {
            if wanted(change)? {
                show(context, change, revision, time)?;
            }
        }
    }
}

fn show(context: &Context, one: &Change, revision: u64, time: Option<Timestamp>) -> Result<(), Failure> {
    if context.json() {
        return context.printer.document(&change::document(one, revision, time));
    }
    if context.names_only() {
        return print(&match &one.object {
            Some(Object::Job(job)) => format!("{}/{}", job.namespace, job.name),
            Some(Object::Task(task)) => task.id.clone(),
            Some(Object::Node(node)) => node.name.clone(),
            Some(Object::Manager(manager)) => manager.name.clone(),
            None => String::new(),
        });
    }
    print(&change::line(one, revision, time, context.now()))
}

fn note(context: &Context, text: &str) {
    if !context.global.quiet {
        say(&context.global.style().dim(text));
    }
}

/// `job ls -w`
pub(super) async fn jobs(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let request = WatchRequest { namespace: context.listed_namespace(), ..of(ObjectKind::Job, &args) };
    if !redraws(context) {
        return follow(context, request, true, |change| match &change.object {
            Some(Object::Job(job)) => kept(context, render::job::COLUMNS, job.clone(), &args),
            _ => Ok(false),
        })
        .await;
    }
    redraw(context, request, async || {
        let mut answer = pages::jobs(context, job::every(context, &args)).await?;
        clear()?;
        job::show(context, &mut answer, &args)
    })
    .await
}

/// `node ls -w`
pub(super) async fn nodes(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let request = of(ObjectKind::Node, &args);
    if !redraws(context) {
        return follow(context, request, true, |change| match &change.object {
            Some(Object::Node(node)) => kept(context, render::node::COLUMNS, node.clone(), &args),
            _ => Ok(false),
        })
        .await;
    }
    redraw(context, request, async || {
        let mut answer = pages::nodes(context, node::every(context, &args)).await?;
        clear()?;
        node::show(context, &mut answer, &args)
    })
    .await
}

/// `ps -w`
pub(super) async fn tasks(context: &Context, args: PsArgs) -> Result<(), Failure> {
    let ListTasksRequest { namespace, job, node, .. } = task::asked(context, &args)?.0;
    let request = WatchRequest { namespace, job, node, ..of(ObjectKind::Task, &args.list) };
    if !redraws(context) {
        return follow(context, request, true, |change| match &change.object {
            Some(Object::Task(task)) => {
                let row = render::task::plain_rows(vec![task.clone()]).swap_remove(0);
                kept(context, render::task::COLUMNS, row, &args.list)
            }
            _ => Ok(false),
        })
        .await;
    }
    redraw(context, request, async || {
        let (mut answer, show) = task::read(context, &args).await?;
        clear()?;
        task::show(context, &mut answer, show, &args.list)
    })
    .await
}

fn of(kind: ObjectKind, args: &ListArgs) -> WatchRequest {
    let selector = args.selector.clone().unwrap_or_default();
    WatchRequest { kinds: vec![kind.into()], selector, ..WatchRequest::default() }
}

/// Whether the filters of a list keep an object.
fn kept<T>(
    context: &Context,
    columns: &[render::table::Column<T>],
    row: T,
    args: &ListArgs,
) -> Result<bool, Failure> {
    let mut rows = vec![row];
    context.printer.choose(columns, &mut rows, args)?;
    Ok(!rows.is_empty())
}

/// Whether results go to somebody who looks at a table.
fn redraws(context: &Context) -> bool {
    !context.json() && !context.names_only() && io::stdout().is_terminal() && !dumb()
}

/// Begins a new picture.
fn clear() -> Result<(), Failure> {
    print("\x1b[H\x1b[2J\x1b[1A")
}

/// Draws anew whenever something changes, and now and then for the ages, until Ctrl-C.
async fn redraw(
    context: &Context,
    request: WatchRequest,
    mut draw: impl AsyncFnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut feed = Feed::new(&context.client, request);
    loop {
        draw().await?;
        let drawn = context.clock.monotonic();
        let mut until = drawn.saturating_add(TICK);
        while context.clock.monotonic() < until {
            let left = until.since(context.clock.monotonic());
            tokio::select! {
                heard = feed.next() => match heard {
                    Heard::Change => until = until.min(drawn.saturating_add(REDRAWS)),
                    Heard::Leader(_) => {}
                    Heard::Lost => return Err(Failure::new(9, "the managers refuse to be watched")
                        .hint("quorate cluster status    see how they are")),
                },
                () = context.clock.sleep(left) => {}
                Ok(()) = tokio::signal::ctrl_c() => return Err(Failure::silent(super::wait::INTERRUPTED)),
            }
        }
    }
}
