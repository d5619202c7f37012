//! Watchers on different managers, over many losses of the leader, while clients write.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_base::{Clock, RequestId, Rng, TaskGroup};
use quorate_client::Options;

use crate::api::Api;
use crate::check::Violation;
use crate::check::watches::{self, Objects, Watched};
use crate::cluster::Cluster;
use crate::drills::{Run, check_history, kill_leader};
use crate::report::{columns, millis};
use crate::term::Term;
use crate::watcher::{Watcher, of_job, of_task};
use crate::workload::{NAMESPACE, On, Plan as WritePlan, Writers, idle_service};

/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Lists that are compared with at most: a task may change between the list and what was seen before it.
const LISTS: usize = 5;

/// How to drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kills of the leader.
    pub rounds: u32,
    /// Watchers from the begin; as many again come on the way.
    pub watchers: usize,
    /// How clients write meanwhile.
    pub writes: WritePlan,
}

/// Drills a cluster that is laid out. Returns what was violated.
///
/// # Errors
/// When the cluster does not come back within the bounds, or a watcher is told what it must not be told.
pub async fn drill(cluster: &mut Cluster, plan: &Plan, term: &Term) -> Result<Vec<Violation>> {
    let run = Run::begin(cluster)?;
    term.step("Starting a cluster", async |note| {
        cluster.start()?;
        cluster.ready(LIMIT, &note).await?;
        Ok(((), String::new()))
    })
    .await?;
    let apis = cluster.apis();
    let watching = run.group.child("watchers");
    let watch = |number: usize| watcher(number, &apis, &watching);
    let mut watchers: Vec<Watcher> = (0..plan.watchers).map(watch).collect::<Result<_>>()?;
    let writers = Writers::start(&plan.writes, &apis, &run.history, &run.ids, &run.group)?;
    for number in 1..=plan.rounds {
        let title = format!("Round {number} of {}", plan.rounds);
        term.step(&title, async |note| {
            let round = kill_leader::round(cluster, &run, number, &note).await?;
            if let Some(failure) = watching.failure() {
                bail!("{failure}");
            }
            let told = format!("{} killed, next write after {}", round.killed, millis(round.recovery));
            Ok(((), told))
        })
        .await?;
        if watchers.len() < 2 * plan.watchers && number * 2 >= plan.rounds {
            watchers.push(watch(watchers.len())?);
        }
    }
    let violations = term
        .step("Comparing what the watchers saw", async |note| {
            note.set("waiting for the calls under way");
            writers.stop().await;
            note.set("waiting for the watchers");
            let api = apis.first().context("the cluster has no manager")?;
            let mut found = compare(api, &run, &mut watchers).await?;
            found.extend(check_history(api, &run).await?.1);
            let events: usize = watchers.iter().map(|watcher| watcher.seen().events.len()).sum();
            Ok((found, format!("{events} changes")))
        })
        .await?;
    violations.iter().for_each(|violation| term.cross(&violation.to_string()));
    if watchers.iter().all(|watcher| watcher.broken() == 0) {
        bail!("no watcher lost its manager: the drill proves nothing");
    }
    print(term, &watchers);
    Ok(violations)
}

/// Every second one by hand; they begin at different managers.
fn watcher(number: usize, apis: &[Api], group: &TaskGroup) -> Result<Watcher> {
    let first = number / 2;
    if number.is_multiple_of(2) {
        return Ok(Watcher::start(&format!("{number} by hand"), apis, first, NAMESPACE, group));
    }
    let mut addresses: Vec<String> = apis.iter().map(|api| api.address.clone()).collect();
    addresses.rotate_left(first % apis.len().max(1));
    let client =
        quorate_client::Client::with(&addresses, Options::default(), Clock::system(), Rng::from_entropy())?;
    Ok(Watcher::through(&client, &format!("{number} by the client crate"), NAMESPACE, group))
}

/// Once every watcher has seen a last write: what each saw, against the others and a list.
async fn compare(api: &Api, run: &Run, watchers: &mut [Watcher]) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for number in 0..LISTS {
        let id: RequestId = run.ids.generate();
        let spec = idle_service("last", &format!("last-{number}"), On::Fake, 0);
        let last = api.create(spec, &id, Duration::from_secs(10)).await;
        let last = last.map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
        for watcher in watchers.iter_mut() {
            watcher.reached(last.revision, LIMIT).await?;
        }
        let seen: Vec<Watched> = watchers.iter().map(Watcher::seen).collect();
        let jobs = api.jobs(NAMESPACE).await?;
        let tasks = api.all_tasks(NAMESPACE).await?;
        let list: Objects = jobs.iter().map(of_job).chain(tasks.iter().map(of_task)).collect();
        // What is wrong for good is wrong in the next comparison too.
        found = watches::check(&seen, &list);
        if found.is_empty() {
            break;
        }
    }
    Ok(found)
}

fn print(term: &Term, watchers: &[Watcher]) {
    let mut rows = vec![["WATCHER", "SNAPSHOT AT", "CHANGES", "RESUMED"].map(ToOwned::to_owned).to_vec()];
    for watcher in watchers {
        let seen = watcher.seen();
        let numbers = [seen.since, seen.events.len() as u64, watcher.broken()].map(|n| n.to_string());
        rows.push([vec![seen.name], numbers.to_vec()].concat());
    }
    columns(&rows).iter().for_each(|line| term.quote(line));
}
