//! Agents killed, paused and cut off while jobs come and go; after each fault what runs is compared with what is wanted.
//!
//! A fault within a lease touches no task. One that outlasts it costs the tasks of that node, and of no other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use quorate_base::sync::lock;
use quorate_base::{Clock, Rng, TaskGroup, TaskKind};
use quorate_wire::api::{BatchSpec, Job, JobSpec, ServiceSpec, job_spec::Kind};
use quorate_wire::common::{RestartCondition, RestartPolicy};

use crate::api::Api;
use crate::check::ghosts::{self, BatchFact};
use crate::check::{Rule, Violation};
use crate::cluster::Cluster;
use crate::cluster::wires::Cut;
use crate::drills::kill_agents::STANDING;
use crate::drills::{Run, Standing, check_history};
use crate::history::Outcome;
use crate::report::{Spans, columns, millis};
use crate::term::{Note, Term};
use crate::truth;
use crate::wait::{Look, until};
use crate::workload::{Again, Client, NAMESPACE, On, Write, idle_service};

/// Bound of each wait; what is still wrong then is a violation.
const LIMIT: Duration = Duration::from_secs(60);
/// Clients of the load.
const CLIENTS: u64 = 2;
/// Rest of a client between two jobs.
const REST: Duration = Duration::from_millis(200);
/// Services that one client keeps at most.
const KEPT: usize = 3;
/// Successful runs of each batch, of which at most half run at once.
const COMPLETIONS: u32 = 4;

/// How to drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Faults, of one agent after the other.
    pub rounds: usize,
    /// What the load's services run on.
    pub on: On,
    /// Decides what the load does.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Kill,
    Pause,
    Cut(Cut),
}

/// What happens to an agent, and whether it outlasts its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    what: What,
    outlasts: bool,
}

const FAULTS: [Fault; 7] = [
    Fault { what: What::Cut(Cut::Silent), outlasts: false },
    Fault { what: What::Pause, outlasts: true },
    Fault { what: What::Kill, outlasts: false },
    Fault { what: What::Cut(Cut::Silent), outlasts: true },
    Fault { what: What::Pause, outlasts: false },
    Fault { what: What::Cut(Cut::Broken), outlasts: false },
    Fault { what: What::Kill, outlasts: true },
];

impl Fault {
    fn told(self) -> String {
        let what = match self.what {
            What::Kill => "killed",
            What::Pause => "paused",
            What::Cut(Cut::Silent) => "cut off",
            What::Cut(Cut::Broken) => "cut off, connections broken",
        };
        format!("{what} {} the lease", if self.outlasts { "past" } else { "within" })
    }

    fn span(self, lease: Duration) -> Duration {
        match (self.outlasts, self.what) {
            (true, _) => lease + Duration::from_secs(2),
            (false, What::Kill) => Duration::ZERO,
            (false, What::Pause | What::Cut(_)) => lease * 2 / 5,
        }
    }
}

/// A round, for the report.
struct Round {
    fault: Fault,
    agent: String,
    mended: Duration,
    ran: usize,
}

/// Drills a cluster that runs, with its standing tasks. Returns what was violated.
///
/// # Errors
/// When the cluster does not do its work within the bounds.
pub async fn drill(
    cluster: &mut Cluster,
    plan: &Plan,
    api: &Api,
    run: &Run,
    term: &Term,
) -> Result<Vec<Violation>> {
    let (mut rounds, mut violations) = (Vec::new(), Vec::new());
    let batches = Arc::default();
    for (number, fault) in FAULTS.into_iter().cycle().take(plan.rounds).enumerate() {
        let load = Load { seed: plan.seed, number, on: plan.on, batches: Arc::clone(&batches) };
        let agent = number % cluster.agents.len();
        let title = format!("Fault {} of {}: an agent {}", number + 1, plan.rounds, fault.told());
        let found = term
            .step(&title, async |note| {
                let (round, found) = round(cluster, &load, (api, run), (fault, agent), &note).await?;
                let told = format!(
                    "{}; {} instances run as wanted {} after its end",
                    round.agent,
                    round.ran,
                    millis(round.mended)
                );
                rounds.push(round);
                Ok((found, told))
            })
            .await?;
        found.iter().for_each(|violation| term.cross(&violation.to_string()));
        violations.extend(found);
        if !violations.is_empty() {
            // What is wrong now would be found again in every round.
            return Ok(violations);
        }
    }
    let (tally, found) = check_history(api, run).await?;
    found.iter().for_each(|violation| term.cross(&violation.to_string()));
    violations.extend(found);
    print(term, &rounds, lock(&batches).len(), tally.acknowledged);
    Ok(violations)
}

async fn round(
    cluster: &mut Cluster,
    load: &Load,
    (api, run): (&Api, &Run),
    (fault, index): (Fault, usize),
    note: &Note,
) -> Result<(Round, Vec<Violation>)> {
    let clock = Clock::system();
    let agent = cluster.agents.get(index).context("no such agent")?.files.name.clone();
    let standing = Standing::look(api, STANDING).await?;
    let standing = if fault.outlasts { standing.without(&agent) } else { standing };
    let clients = load.start(cluster, run)?;
    // Some of the load first: tasks that begin and end while the fault lasts are what it is about.
    clock.sleep(REST * 3).await;
    note.set(format!("{agent} is {}", fault.told()));
    suffer(cluster, index, fault, run).await?;
    let mended = clock.monotonic();
    note.set(format!("{agent} is well again; the load comes to its end"));
    clients.shutdown(LIMIT).await;
    if let Some(failure) = clients.failure() {
        anyhow::bail!("the load broke off: {failure}");
    }
    let leader = cluster.ready(LIMIT, note).await?;
    let engine = (load.on == On::Docker).then_some(leader.seen.cluster_id.as_str());
    let (mut found, ran) = settle(cluster, load, api, engine, note).await?;
    found.extend(standing.violations(api, STANDING).await?);
    Ok((Round { fault, agent, mended: clock.monotonic().since(mended), ran }, found))
}

/// The fault, from its begin to its end.
async fn suffer(cluster: &mut Cluster, index: usize, fault: Fault, run: &Run) -> Result<()> {
    let (clock, span) = (Clock::system(), fault.span(cluster.plan.lease));
    let agent = cluster.agents.get_mut(index).context("no such agent")?;
    let (name, told) = (agent.files.name.clone(), fault.told());
    run.history.fault(&told, &name);
    match fault.what {
        What::Kill => {
            agent.process.signal(Signal::SIGKILL)?;
            agent.process.ended(LIMIT).await?;
            clock.sleep(span).await;
            agent.process.start()?;
        }
        What::Pause => {
            agent.process.signal(Signal::SIGSTOP)?;
            clock.sleep(span).await;
            agent.process.signal(Signal::SIGCONT)?;
        }
        What::Cut(cut) => {
            let wires = cluster.wires.as_ref().context("the cluster has no wires to cut")?;
            wires.cut(&name, cut);
            clock.sleep(span).await;
            wires.mend(&name);
        }
    }
    run.history.fault("well", &name);
    Ok(())
}

/// Waits until what runs is what is wanted; what is wrong at the end of the bound is returned.
async fn settle(
    cluster: &mut Cluster,
    load: &Load,
    api: &Api,
    engine: Option<&str>,
    note: &Note,
) -> Result<(Vec<Violation>, usize)> {
    let clock = Clock::system();
    let deadline = clock.monotonic().saturating_add(LIMIT);
    until("what runs to be what is wanted", LIMIT * 2, async || {
        cluster.must_run()?;
        let jobs = api.jobs("").await?;
        let tasks: Vec<_> = api.tasks("").await?.iter().map(truth::fact).collect();
        let running = truth::running(cluster.folder(), engine).await?;
        let mut found: Vec<Violation> = jobs.iter().filter_map(short).collect();
        found.extend(ghosts::check(&tasks, &running));
        found.extend(ghosts::check_batches(&load.batches(&jobs, cluster)));
        if found.is_empty() || clock.monotonic() >= deadline {
            return Ok(Look::Done((found, running.len())));
        }
        let first = found.first().map_or_else(String::new, |violation| violation.detail.clone());
        clock.sleep(REST).await;
        Ok(Look::NotYet(first).noted(note))
    })
    .await
}

/// A service with fewer tasks than it asks for.
fn short(job: &Job) -> Option<Violation> {
    let counts = job.counts.unwrap_or_default();
    let service = matches!(job.spec.as_ref()?.kind, Some(Kind::Service(ServiceSpec { .. })));
    (service && counts.running != counts.desired).then(|| {
        let detail = format!("{} of {} tasks of job {} run", counts.running, counts.desired, job.name);
        Violation { rule: Rule::NoStatusLost, detail }
    })
}

/// Jobs that come and go.
#[derive(Clone)]
struct Load {
    seed: u64,
    number: usize,
    on: On,
    /// The batches of all rounds so far.
    batches: Arc<Mutex<BTreeSet<String>>>,
}

impl Load {
    fn start(&self, cluster: &Cluster, run: &Run) -> Result<TaskGroup> {
        let group = run.group.child("load");
        let mut rng = Rng::seeded(self.seed.wrapping_add(u64::try_from(self.number)?));
        for number in 0..CLIENTS {
            let name = format!("l{}-{number}", self.number);
            let client = Client::new(&name, &cluster.apis(), rng.fork("client"), &run.history, &run.ids)?;
            let (load, folder, rng) = (self.clone(), cluster.folder().to_owned(), rng.fork("load"));
            let (stop, work) = (group.clone(), Churn { load, name, client, folder, rng });
            group.spawn(TaskKind::critical("client").drains(), work.run(stop));
        }
        Ok(group)
    }

    /// What the managers and the runs themselves tell of the batches.
    fn batches(&self, jobs: &[Job], cluster: &Cluster) -> Vec<BatchFact> {
        let named = |name: &String| {
            let job = jobs.iter().find(|job| job.namespace == NAMESPACE && job.name == *name);
            let told = job.and_then(|job| job.counts).unwrap_or_default().succeeded;
            let marks = std::fs::read_to_string(marks(cluster.folder(), name)).unwrap_or_default();
            BatchFact {
                name: name.clone(),
                completions: COMPLETIONS as usize,
                told: told as usize,
                real: marks.lines().count(),
            }
        };
        lock(&self.batches).iter().map(named).collect()
    }
}

/// Where each successful run of a batch leaves a line.
fn marks(folder: &Path, batch: &str) -> PathBuf {
    folder.join(format!("ends-{batch}"))
}

/// One client of the load.
struct Churn {
    load: Load,
    name: String,
    client: Client,
    folder: PathBuf,
    rng: Rng,
}

impl Churn {
    async fn run(mut self, group: TaskGroup) -> Result<(), String> {
        let (clock, mut kept) = (Clock::system(), Vec::new());
        for number in 0_u64.. {
            let name = format!("{}-{number}", self.name);
            if number % 3 == 0 {
                let spec = self.batch(&name);
                self.write(Write::Create(Box::new(spec))).await?;
                lock(&self.load.batches).insert(name);
            } else {
                let replicas = 1 + u32::from(self.rng.chance(0.5));
                let spec = idle_service(NAMESPACE, &name, self.load.on, replicas);
                self.write(Write::Create(Box::new(truth::marked(spec, &self.folder)))).await?;
                kept.push(name);
            }
            if kept.len() > KEPT {
                let name = kept.remove(0);
                self.write(Write::Delete { namespace: NAMESPACE.to_owned(), name }).await?;
            }
            if group.is_cancelled() {
                break;
            }
            clock.sleep(self.rng.jitter(REST, 0.5)).await;
        }
        // One of them stays: the next faults find more than the standing tasks.
        for name in kept.into_iter().skip(1) {
            self.write(Write::Delete { namespace: NAMESPACE.to_owned(), name }).await?;
        }
        Ok(())
    }

    /// No manager fails here: every write is acknowledged.
    async fn write(&mut self, write: Write) -> Result<(), String> {
        match Box::pin(self.client.write(&write, Again::Never, &mut self.rng)).await {
            Outcome::Ok => Ok(()),
            other => Err(format!("{write:?} ended as {other:?}")),
        }
    }

    /// Runs of up to a second, each of which leaves a line at its end.
    fn batch(&mut self, name: &str) -> JobSpec {
        let mut spec = idle_service(NAMESPACE, name, On::Process, 0);
        let (length, end) = (self.rng.below(10), marks(&self.folder, name));
        for container in spec.containers.values_mut() {
            let script = format!("sleep 0.{length}; echo end >> {}", end.display());
            container.command = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        }
        // A successful run is the end of its task.
        let condition = RestartCondition::OnFailure.into();
        spec.restart = Some(RestartPolicy { condition, ..RestartPolicy::default() });
        spec.kind = Some(Kind::Batch(BatchSpec { completions: COMPLETIONS, parallelism: COMPLETIONS / 2 }));
        spec
    }
}

fn print(term: &Term, rounds: &[Round], batches: usize, acknowledged: usize) {
    let head = ["AGENT", "WAS", "INSTANCES", "END OF FAULT → ALL AS WANTED"].map(ToOwned::to_owned).to_vec();
    let row = |r: &Round| vec![r.agent.clone(), r.fault.told(), r.ran.to_string(), millis(r.mended)];
    let rows: Vec<_> = std::iter::once(head).chain(rounds.iter().map(row)).collect();
    columns(&rows).iter().for_each(|line| term.quote(line));
    let mended: Spans = rounds.iter().map(|round| round.mended).collect();
    term.quote(&format!("end of fault → all as wanted  {}", mended.summary()));
    term.quote(&format!(
        "the load: {acknowledged} acknowledged writes, {batches} batches, each with all its runs"
    ));
}
