//! Thousands of fake agents: what their heartbeats cost, how long a list of their tasks takes, and how fast they are back
//! under a new leader.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_base::Clock;

use crate::api::Api;
use crate::bench::{Plan, rate};
use crate::check::tasks::{TaskFact, untouched};
use crate::cluster::process::{Process, Program};
use crate::cluster::usage::Usage;
use crate::cluster::{Cluster, Plan as ClusterPlan};
use crate::drills::Run;
use crate::metrics;
use crate::report::{Spans, columns, millis};
use crate::term::{Note, Term};
use crate::truth;
use crate::wait::{Look, until};
use crate::workload::{On, idle_service};

/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(300);
/// The job's namespace.
const NAMESPACE: &str = "fleet";
/// Five heartbeats per lease: one a second.
const LEASE: Duration = Duration::from_secs(5);
/// Agents with a session on a manager, by its own metrics.
const SESSIONS: &str = "quorate_agent_sessions";
/// How long sessions may settle before what they cost is measured.
const SETTLE: Duration = Duration::from_secs(3);

/// A cluster with nothing but managers, and a process with all the agents.
struct Bench {
    cluster: Cluster,
    leader: usize,
    fleet: Process,
    agents: u32,
    rows: Vec<Vec<String>>,
}

/// Measures and prints.
///
/// # Errors
/// When the cluster does not do its work within the bounds.
pub async fn print(plan: &Plan, term: &Term) -> Result<()> {
    let mut cluster = Cluster::lay_out(ClusterPlan {
        quorate: plan.quorate.clone(),
        managers: 3,
        agents: 0,
        runtimes: Vec::new(),
        lease: LEASE,
        documented_ports: false,
        wired: false,
    })?;
    let run = Run::begin(&cluster)?;
    let leader = term
        .step("Starting 3 managers without agents", async |note| {
            cluster.start()?;
            Ok((cluster.ready(LIMIT, &note).await?, String::new()))
        })
        .await?;
    let fleet = Process::new(program(plan, &cluster));
    let mut bench = Bench { cluster, leader: leader.index, fleet, agents: plan.fleet, rows: Vec::new() };
    let without = bench.heartbeats(plan, "no agents", term).await?;
    bench.connect(term).await?;
    let with = bench.heartbeats(plan, &format!("{} agents", plan.fleet), term).await?;
    let each = with.memory.saturating_sub(without.memory) / u64::from(plan.fleet.max(1));
    bench.row("memory of the leader per connected agent", format!("{:.1} KiB", kib(each)));
    bench.place(plan, &run, term).await?;
    bench.list(plan, term).await?;
    bench.fail_over(term).await?;
    term.heading(&format!(
        "{} fake agents in one process with heartbeats each {}, 3 managers, all on this machine",
        plan.fleet,
        millis(LEASE / 5)
    ));
    columns(&bench.rows).iter().for_each(|line| term.quote(line));
    bench.fleet.stop(LIMIT).await?;
    bench.cluster.stop().await
}

fn program(plan: &Plan, cluster: &Cluster) -> Program {
    let managers: Vec<&str> = cluster.managers.iter().map(|m| m.files.agents.as_str()).collect();
    let words = ["agent", "fleet", "--count", &plan.fleet.to_string(), "--managers", &managers.join(",")]
        .map(std::ffi::OsString::from);
    let (name, log) = ("fleet".to_owned(), cluster.folder().join("fleet.log"));
    Program { name, path: plan.quorate.clone(), args: words.to_vec(), log }
}

impl Bench {
    fn api(&self) -> Result<Api> {
        self.cluster.apis().into_iter().nth(self.leader).context("the leader is no manager")
    }

    fn usage(&self) -> Result<Usage> {
        let leader = self.cluster.managers.get(self.leader).context("the leader is no manager")?;
        Usage::of(leader.process.pid().context("the leader does not run")?)
    }

    fn row(&mut self, what: &str, told: String) {
        self.rows.push(vec![what.to_owned(), told]);
    }

    /// What the leader does while nothing changes. Returns what it holds in the end.
    async fn heartbeats(&mut self, plan: &Plan, with: &str, term: &Term) -> Result<Usage> {
        let (clock, api) = (Clock::system(), self.api()?);
        let title = format!("{with}: nothing but heartbeats for {} s", plan.window.as_secs());
        let (told, last) = term
            .step(&title, async |note| {
                note.set("settling");
                clock.sleep(SETTLE).await;
                let (log, before, start) = (api.status().await?.last_log, self.usage()?, clock.monotonic());
                let fleet = self.fleet.pid().map(Usage::of).transpose()?;
                clock.sleep(plan.window).await;
                let (after, span) = (self.usage()?, clock.monotonic().since(start));
                let entries = api.status().await?.last_log - log;
                let mut told = format!(
                    "leader {:.1} % of a core, {} log entries, {} bytes written to its disk, {:.1} MiB of memory",
                    after.percent_since(&before, span),
                    entries,
                    after.written - before.written,
                    kib(after.memory) / 1_024.0
                );
                if let (Some(before), Some(pid)) = (fleet, self.fleet.pid()) {
                    let share = Usage::of(pid)?.percent_since(&before, span);
                    told += &format!(" (the fleet itself: {share:.1} %)");
                }
                Ok(((told.clone(), after), told))
            })
            .await?;
        self.row(&format!("heartbeats of {with}"), told);
        Ok(last)
    }

    /// Starts the fleet.
    async fn connect(&mut self, term: &Term) -> Result<()> {
        let title = format!("Starting {} fake agents", self.agents);
        let (clock, api) = (Clock::system(), self.api()?);
        let took = term
            .step(&title, async |note| {
                let start = clock.monotonic();
                self.fleet.start()?;
                self.connected(&note).await?;
                until("all nodes to be ready", LIMIT, async || {
                    let ready = api.status().await?.nodes_ready;
                    let all = ready >= self.agents;
                    Ok(if all { Look::Done(()) } else { Look::NotYet(format!("{ready} are ready")) }
                        .noted(&note))
                })
                .await?;
                let took = clock.monotonic().since(start);
                Ok((took, millis(took)))
            })
            .await?;
        self.row("start of the fleet → all have a session", millis(took));
        Ok(())
    }

    /// Waits until all agents have a session on the leader.
    async fn connected(&mut self, note: &Note) -> Result<()> {
        let leader = self.cluster.managers.get(self.leader).context("the leader is no manager")?;
        let admin = leader.files.admin.clone();
        until("a session of each agent", LIMIT, async || {
            self.cluster.must_run()?;
            self.fleet.must_run()?;
            let sessions = metrics::value(&admin, SESSIONS).await?.unwrap_or_default();
            let all = sessions >= f64::from(self.agents);
            let look =
                if all { Look::Done(()) } else { Look::NotYet(format!("{sessions} of {}", self.agents)) };
            Ok(look.noted(note))
        })
        .await
    }

    /// Tasks for the whole fleet.
    async fn place(&mut self, plan: &Plan, run: &Run, term: &Term) -> Result<()> {
        let (clock, api) = (Clock::system(), self.api()?);
        let title = format!("Running {} fake tasks on the fleet", plan.tasks);
        let took = term
            .step(&title, async |note| {
                let start = clock.monotonic();
                let spec = idle_service(NAMESPACE, "fleet", On::Fake, plan.tasks);
                api.create(spec, &run.ids.generate(), Duration::from_secs(30))
                    .await
                    .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
                until("all tasks to run", LIMIT, async || {
                    // A machine without a core to spare may have no quorum for a moment.
                    let job = match api.job(NAMESPACE, "fleet").await {
                        Ok(job) => job,
                        Err(error) => return Ok(Look::NotYet(format!("{error:#}")).noted(&note)),
                    };
                    let counts = job.counts.unwrap_or_default();
                    let look = format!("{} of {} run", counts.running, plan.tasks);
                    Ok(if counts.running >= plan.tasks { Look::Done(()) } else { Look::NotYet(look) }
                        .noted(&note))
                })
                .await?;
                let took = clock.monotonic().since(start);
                Ok((
                    took,
                    format!("{} each with its statuses through the log", rate(plan.tasks as usize, took)),
                ))
            })
            .await?;
        let told = format!("{} ({})", millis(took), rate(plan.tasks as usize, took));
        self.row(&format!("create → {} tasks running", plan.tasks), told);
        Ok(())
    }

    /// All tasks by pages, at the leader and elsewhere.
    async fn list(&mut self, plan: &Plan, term: &Term) -> Result<()> {
        for (index, api) in self.cluster.apis().into_iter().enumerate() {
            let place = if index == self.leader { "the leader" } else { "a follower" };
            let title = format!("Listing {} tasks at {place}", plan.tasks);
            let told = term
                .step(&title, async |_| {
                    let told = list(&api, plan.tasks).await?;
                    Ok((told.clone(), told))
                })
                .await?;
            self.row(&format!("list of {} tasks at {place} ({})", plan.tasks, api.name), told);
        }
        Ok(())
    }

    /// The loss of the leader: all agents are back at the next one, and no task was touched.
    async fn fail_over(&mut self, term: &Term) -> Result<()> {
        let clock = Clock::system();
        let before = facts(&self.api()?).await?;
        let told = term
            .step("Killing the leader", async |note| {
                let at = self.cluster.kill_manager(self.leader).await?;
                let next = until("a leader that the survivors agree on", LIMIT, async || {
                    Ok(self.cluster.agreed_leader().await.map_or_else(Look::NotYet, Look::Done))
                })
                .await?;
                let elected = clock.monotonic().since(at);
                self.leader = next.index;
                self.connected(&note).await?;
                let back = clock.monotonic().since(at);
                note.set("comparing the tasks");
                let touched = untouched(&before, &facts(&self.api()?).await?);
                if let Some(first) = touched.first() {
                    note.set(first.to_string());
                }
                let told = format!(
                    "{} (a new leader known after {}), {} of {} tasks touched",
                    millis(back),
                    millis(elected),
                    touched.len(),
                    before.len()
                );
                Ok((told.clone(), told))
            })
            .await?;
        self.row("SIGKILL of the leader → every agent has a session again", told);
        Ok(())
    }
}

async fn facts(api: &Api) -> Result<Vec<TaskFact>> {
    Ok(api.tasks(NAMESPACE).await?.iter().map(truth::fact).collect())
}

async fn list(api: &Api, tasks: u32) -> Result<String> {
    let clock = Clock::system();
    let (start, mut spans, mut listed) = (clock.monotonic(), Vec::new(), 0);
    let mut token = String::new();
    loop {
        let asked = clock.monotonic();
        let (page, next) = api.page_of_tasks(NAMESPACE, false, token).await?;
        spans.push(clock.monotonic().since(asked));
        listed += page.len();
        token = next;
        if token.is_empty() {
            break;
        }
    }
    let took = clock.monotonic().since(start);
    if listed != tasks as usize {
        bail!("{listed} tasks were listed, and there are {tasks}");
    }
    let pages: Spans = spans.into_iter().collect();
    let [p50, p99] = crate::bench::middle_and_tail(&pages);
    Ok(format!("{} ({}), {} pages: p50 {p50} · p99 {p99}", millis(took), rate(listed, took), pages.len()))
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1_024.0
}
