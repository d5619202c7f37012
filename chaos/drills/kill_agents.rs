//! SIGKILL on agents, and a task that crashes while no manager lives.
//!
//! A task must outlive its agent, the agent must adopt it, and restarts in place must need no manager.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use quorate_wire::api::{JobSpec, Placement};

use crate::api::Api;
use crate::check::Violation;
use crate::check::tasks::same_instances;
use crate::cluster::Cluster;
use crate::drills::{Run, Standing, agent_faults, submit_and_settle};
use crate::report::columns;
use crate::term::{Note, Term};
use crate::truth;
use crate::wait::{Look, until};
use crate::workload::{On, idle_service};

/// Namespace of the tasks that must not be touched.
pub(super) const STANDING: &str = "standing";
/// Namespace of the jobs that show that an agent works.
const PROOF: &str = "proof";
/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(60);

/// How to drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kills, of one agent after the other.
    pub rounds: usize,
    /// What the standing tasks run on.
    pub on: On,
    /// How many there are.
    pub standing: u32,
    /// Rounds of kills, pauses and cuts under load.
    pub faults: usize,
    /// Decides what the load does.
    pub seed: u64,
}

/// Drills a cluster that runs. Returns what was violated.
///
/// # Errors
/// When the cluster does not do its work within the bounds.
pub async fn drill(cluster: &mut Cluster, plan: &Plan, term: &Term) -> Result<Vec<Violation>> {
    let run = Run::begin(cluster)?;
    let (api, standing) = term
        .step(
            &format!("Starting a cluster and {} tasks on {}", plan.standing, plan.on.name()),
            async |note| {
                cluster.start()?;
                let leader = cluster.ready(LIMIT, &note).await?;
                let api = cluster.apis().into_iter().nth(leader.index).context("the leader is no manager")?;
                let spec = idle_service(STANDING, "standing", plan.on, plan.standing);
                let spec = truth::marked(spec, cluster.folder());
                submit_and_settle(&api, &run, spec, LIMIT, &note).await?;
                let standing = Standing::look(&api, STANDING).await?;
                Ok(((api, standing), "all run".to_owned()))
            },
        )
        .await?;
    let mut violations = Vec::new();
    for number in 0..plan.rounds {
        let index = number % cluster.agents.len();
        let name = cluster.agents.get(index).map_or_else(String::new, |agent| agent.files.name.clone());
        let title = format!("Round {} of {}: SIGKILL to agent {name}", number + 1, plan.rounds);
        let found = term
            .step(&title, async |note| {
                let found = round(cluster, &api, &run, &standing, (index, number), &note).await?;
                Ok((found, "its tasks ran on, and it adopted them".to_owned()))
            })
            .await?;
        found.iter().for_each(|violation| term.cross(&violation.to_string()));
        violations.extend(found);
    }
    let starts = cluster.folder().join("starts");
    crash_without_managers(cluster, &api, &run, &starts, term).await?;
    let found = term
        .step("Comparing all tasks with what ran before", async |_| {
            Ok((standing.violations(&api, STANDING).await?, String::new()))
        })
        .await?;
    found.iter().for_each(|violation| term.cross(&violation.to_string()));
    violations.extend(found);
    print(term, &standing);
    let faults = agent_faults::Plan { rounds: plan.faults, on: plan.on, seed: plan.seed };
    violations.extend(agent_faults::drill(cluster, &faults, &api, &run, term).await?);
    Ok(violations)
}

async fn round(
    cluster: &mut Cluster,
    api: &Api,
    run: &Run,
    standing: &Standing,
    (index, number): (usize, usize),
    note: &Note,
) -> Result<Vec<Violation>> {
    let agent = cluster.agents.get_mut(index).context("no such agent")?;
    let name = agent.files.name.clone();
    agent.process.signal(Signal::SIGKILL)?;
    agent.process.ended(LIMIT).await?;
    run.history.fault("kill", &name);
    note.set("looking at its tasks without it");
    let mut found = same_instances(&standing.instances, &truth::instances(&standing.tasks).await?);
    agent.process.start()?;
    run.history.fault("start", &name);
    note.set("waiting for it to take work again");
    let proof = on_node(idle_service(PROOF, &format!("proof-{number}"), On::Process, 1), &name);
    let proof = truth::marked(proof, cluster.folder());
    submit_and_settle(api, run, proof, LIMIT, note).await?;
    found.extend(standing.violations(api, STANDING).await?);
    Ok(found)
}

/// A task that notes each of its starts crashes while all managers are dead: its agent starts it again.
async fn crash_without_managers(
    cluster: &mut Cluster,
    api: &Api,
    run: &Run,
    starts: &Path,
    term: &Term,
) -> Result<()> {
    let title = "A task crashes while all managers are dead";
    term.step(title, async |note| {
        let mut spec = idle_service(PROOF, "crash", On::Process, 1);
        for container in spec.containers.values_mut() {
            let script = format!("echo $$ >> {}; exec sleep 1000000", starts.display());
            container.command = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
        }
        let spec = truth::marked(spec, cluster.folder());
        submit_and_settle(api, run, spec, LIMIT, &note).await?;
        let pid = *pids(starts).first().context("the task did not note its start")?;
        for index in 0..cluster.managers.len() {
            cluster.kill_manager(index).await?;
        }
        run.history.fault("kill", "all managers");
        signal::kill(Pid::from_raw(pid), Signal::SIGKILL).context("cannot kill the task")?;
        note.set("all managers are dead, and so is the task");
        until("the task to be started again", LIMIT, async || {
            let known = pids(starts);
            Ok(if known.len() > 1 { Look::Done(()) } else { Look::NotYet("it was not".to_owned()) })
        })
        .await?;
        note.set("starting the managers again");
        for index in 0..cluster.managers.len() {
            cluster.start_manager(index)?;
        }
        cluster.ready(LIMIT, &note).await?;
        until("the managers to hear of the restart", LIMIT, async || {
            let tasks = api.tasks(PROOF).await?;
            let task = tasks.iter().find(|task| task.job == "crash").context("the task is lost")?;
            Ok(if task.restarts > 0 {
                Look::Done(())
            } else {
                Look::NotYet(format!("it is {}", task.reason))
            }
            .noted(&note))
        })
        .await?;
        let known = pids(starts).len();
        if known != 2 {
            bail!("the task was started {known} times, and crashed once");
        }
        Ok(((), "its agent started it again, and told the managers when they were back".to_owned()))
    })
    .await
}

fn on_node(mut spec: JobSpec, node: &str) -> JobSpec {
    spec.placement =
        Some(Placement { constraints: vec![format!("node.name == {node}")], ..Placement::default() });
    spec
}

fn pids(file: &Path) -> Vec<i32> {
    fs::read_to_string(file).unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn print(term: &Term, standing: &Standing) {
    let mut rows = vec![["TASK", "NODE", "INSTANCE"].map(ToOwned::to_owned).to_vec()];
    rows.extend(
        standing.tasks.iter().map(|task| vec![task.id.clone(), task.node.clone(), task.instance.clone()]),
    );
    columns(&rows).iter().for_each(|line| term.quote(line));
}
