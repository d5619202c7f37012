//! One writer and many watchers of what it writes, with one that does not read and without.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_base::sync::lock;
use quorate_base::time::Mono;
use quorate_base::{Clock, TaskGroup, TaskKind};
use quorate_wire::api::{ObjectKind, WatchRequest, WatchResponse, change::Object};
use tokio::sync::watch;
use tonic::{Status, Streaming};

use crate::api::Api;
use crate::bench::{Plan, middle_and_tail, rate};
use crate::drills::Run;
use crate::report::{Spans, columns};
use crate::term::{Note, Term};
use crate::workload::{On, idle_service};

/// Watchers that share one connection: a server takes at most 200 calls at once on each.
const PER_CONNECTION: usize = 100;
/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(120);
/// Deadline of one write.
const TRY: Duration = Duration::from_secs(10);

/// What one round gave.
struct Round {
    writes: usize,
    spans: Spans,
    took: Duration,
}

/// Measures and prints.
///
/// # Errors
/// When a write or a watch is refused, or a watcher misses a change.
pub async fn print(plan: &Plan, leader: &Api, run: &Run, term: &Term) -> Result<()> {
    let head = ["WATCHERS", "WRITES", "CHANGES DELIVERED", "P50", "P99"].map(ToOwned::to_owned);
    let mut rows = vec![head.to_vec()];
    for (number, stalled) in [false, true, false].into_iter().enumerate() {
        let beside = if stalled { " and one that does not read" } else { "" };
        let who = format!("{}{beside}", plan.watchers);
        let round = term
            .step(&format!("{who} watch one writer for {} s", plan.span.as_secs()), async |note| {
                let namespace = format!("watched-{number}");
                // Never polled: it takes in what the connection's windows hold, and no more.
                let idle = if stalled { Some(Box::pin(open(leader, &namespace)).await?) } else { None };
                let round = Box::pin(measure(plan, leader, &namespace, run, &note)).await?;
                drop(idle);
                let told = rate(round.spans.len(), round.took);
                Ok((round, told))
            })
            .await?;
        let [p50, p99] = middle_and_tail(&round.spans);
        let delivered = rate(round.spans.len(), round.took);
        rows.push(vec![who, rate(round.writes, round.took), delivered, p50, p99]);
    }
    term.heading(
        "One writer and its watchers, from the begin of a write to its delivery, all on this machine",
    );
    columns(&rows).iter().for_each(|line| term.quote(line));
    Ok(())
}

/// A watch of the jobs of a namespace that is empty: changes follow its first bookmark.
async fn open(leader: &Api, namespace: &str) -> Result<Streaming<WatchResponse>> {
    let own = Api::new(&leader.name, &leader.address)?;
    own.watch(request(namespace)).await.context("a watch was refused")
}

fn request(namespace: &str) -> WatchRequest {
    let kinds = vec![ObjectKind::Job.into()];
    WatchRequest { kinds, namespace: namespace.to_owned(), ..WatchRequest::default() }
}

/// When each job was about to be written, and how many watchers are where.
#[derive(Default)]
struct Book {
    begun: Mutex<BTreeMap<String, Mono>>,
    spans: Mutex<Vec<Duration>>,
    ready: watch::Sender<usize>,
    delivered: watch::Sender<usize>,
}

async fn measure(plan: &Plan, leader: &Api, namespace: &str, run: &Run, note: &Note) -> Result<Round> {
    let (clock, group) = (Clock::system(), run.group.child("watches"));
    let book = Arc::new(Book::default());
    let connections: Vec<Api> = (0..plan.watchers.div_ceil(PER_CONNECTION))
        .map(|_| Api::new(&leader.name, &leader.address))
        .collect::<Result<_>>()?;
    for (_, api) in (0..plan.watchers).zip(connections.iter().cycle()) {
        let work = follow(api.clone(), namespace.to_owned(), Arc::clone(&book));
        group.spawn(TaskKind::critical("watcher"), work);
    }
    note.set("waiting for the watchers");
    all(&book.ready, plan.watchers, &group).await?;
    note.set("writing");
    let start = clock.monotonic();
    let end = start.saturating_add(plan.span);
    let mut writes = 0;
    while clock.monotonic() < end {
        let name = format!("w-{writes}");
        lock(&book.begun).insert(name.clone(), clock.monotonic());
        leader
            .create(idle_service(namespace, &name, On::Fake, 0), &run.ids.generate(), TRY)
            .await
            .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
        writes += 1;
    }
    note.set("waiting for the last changes");
    all(&book.delivered, writes * plan.watchers, &group).await?;
    let took = clock.monotonic().since(start);
    group.shutdown(LIMIT).await;
    let spans = lock(&book.spans).drain(..).collect();
    Ok(Round { writes, spans, took })
}

/// Waits until a count is reached.
async fn all(count: &watch::Sender<usize>, target: usize, group: &TaskGroup) -> Result<()> {
    let mut counted = count.subscribe();
    let reached = tokio::time::timeout(LIMIT, counted.wait_for(|count| *count >= target));
    tokio::select! {
        reached = reached => match reached {
            Ok(_) => Ok(()),
            Err(_) => bail!("{} of {target} within {} s", *count.borrow(), LIMIT.as_secs()),
        },
        failure = group.failed() => bail!("a watcher broke off: {failure}"),
    }
}

async fn follow(api: Api, namespace: String, book: Arc<Book>) -> Result<(), Status> {
    let clock = Clock::system();
    let mut stream = Box::pin(api.watch(request(&namespace))).await?;
    let mut whole = false;
    while let Some(message) = stream.message().await? {
        if message.bookmark && !whole {
            whole = true;
            book.ready.send_modify(|ready| *ready += 1);
        }
        let now = clock.monotonic();
        let jobs = message.changes.iter().filter_map(|change| match &change.object {
            Some(Object::Job(job)) if !message.snapshot => Some(&job.name),
            _ => None,
        });
        let begun = lock(&book.begun);
        let spans: Vec<Duration> = jobs.filter_map(|name| Some(now.since(*begun.get(name)?))).collect();
        drop(begun);
        let count = spans.len();
        lock(&book.spans).extend(spans);
        book.delivered.send_modify(|delivered| *delivered += count);
    }
    Err(Status::unavailable("the stream ended"))
}
