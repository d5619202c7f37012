//! Benchmarks on a real cluster: printed, never asserted.

pub mod fleet;
pub mod placement;
pub mod watches;
pub mod writes;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use quorate_base::Clock;

use crate::cluster::{Cluster, Plan as ClusterPlan};
use crate::drills::Run;
use crate::report::{Spans, millis};
use crate::term::Term;

/// Bound of the start.
const LIMIT: Duration = Duration::from_secs(120);
/// Flushes of the disk probe.
const FLUSHES: usize = 200;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable under test.
    pub quorate: PathBuf,
    /// Rounds of the placement.
    pub rounds: u32,
    /// Replicas of the job that is placed.
    pub replicas: u32,
    /// Agents with nothing but the fake runtime.
    pub agents: u32,
    /// Numbers of clients that write at once.
    pub clients: Vec<usize>,
    /// How long each number of clients writes, and the one that is watched.
    pub span: Duration,
    /// Watchers of one writer.
    pub watchers: usize,
    /// Fake agents of the fleet.
    pub fleet: u32,
    /// Tasks that run on it.
    pub tasks: u32,
    /// How long nothing but heartbeats is watched.
    pub window: Duration,
    /// What to measure.
    pub parts: Vec<Part>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// One job of many replicas.
    Placement,
    /// Durable writes.
    Writes,
    /// Many watchers of one writer.
    Watches,
    /// Thousands of agents: heartbeats, lists, and their way to a new leader.
    Fleet,
}

/// Measures and prints all that was asked for.
///
/// # Errors
/// When a cluster does not do its work within the bounds.
pub async fn print(plan: &Plan, term: &Term) -> Result<()> {
    let asked = |part| plan.parts.contains(&part);
    if asked(Part::Placement) || asked(Part::Writes) || asked(Part::Watches) {
        few_agents(plan, term).await?;
    }
    if asked(Part::Fleet) {
        Box::pin(fleet::print(plan, term)).await?;
    }
    Ok(())
}

/// What is measured on a small cluster.
async fn few_agents(plan: &Plan, term: &Term) -> Result<()> {
    let mut cluster = Cluster::lay_out(ClusterPlan {
        quorate: plan.quorate.clone(),
        managers: 3,
        agents: usize::try_from(plan.agents)?,
        runtimes: vec!["fake"],
        lease: Duration::from_secs(5),
        documented_ports: false,
        wired: false,
    })?;
    let run = Run::begin(&cluster)?;
    let disk = flushes(cluster.folder())?;
    term.say(&format!("This machine: {} cores · 4 KiB write + fdatasync {}", cores(), disk.summary()));
    let title = format!("Starting 3 managers and {} agents with the fake runtime", plan.agents);
    let leader = term
        .step(&title, async |note| {
            cluster.start()?;
            Ok((cluster.ready(LIMIT, &note).await?, String::new()))
        })
        .await?;
    let leader = cluster.apis().into_iter().nth(leader.index).context("the leader is no manager")?;
    if plan.parts.contains(&Part::Placement) {
        placement::print(plan, &leader, &run, term).await?;
    }
    if plan.parts.contains(&Part::Writes) {
        writes::print(plan, &leader, &run, term).await?;
    }
    if plan.parts.contains(&Part::Watches) {
        watches::print(plan, &leader, &run, term).await?;
    }
    cluster.stop().await
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What a durable write costs at the least, where the managers keep their data.
fn flushes(folder: &Path) -> Result<Spans> {
    let clock = Clock::system();
    let path = folder.join("flush-probe");
    let mut file = File::create(&path).context("cannot write the disk probe")?;
    let mut spans = Spans::default();
    for _ in 0..FLUSHES {
        let start = clock.monotonic();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        spans.push(clock.monotonic().since(start));
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(spans)
}

/// Writes per second, in whole ones.
fn rate(count: usize, span: Duration) -> String {
    format!("{:.0}/s", f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / span.as_secs_f64())
}

/// Median and tail in two cells.
fn middle_and_tail(spans: &Spans) -> [String; 2] {
    [millis(spans.percentile(50)), millis(spans.percentile(99))]
}
