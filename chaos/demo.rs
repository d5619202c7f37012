//! The demo: a job on three managers and three agents outlives the leader, shown step by step.
//!
//! Every claim that it prints was measured in this very run; one that does not hold ends it with an error.

pub mod cli;
pub mod runtime;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_base::Clock;

use crate::api::Api;
use crate::cluster::{Cluster, Leader};
use crate::demo::runtime::Chosen;
use crate::drills::{Run, Standing, check_history, settled, watch_over_a_lease};
use crate::probe::Prober;
use crate::report::{columns, millis};
use crate::term::{Note, Term};
use crate::wait::{Look, until};
use crate::workload::{NAMESPACE, On, Plan as WritePlan, Writers};

/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(60);
/// How long writers write before the kill, and after the next acknowledged write.
const CALM: Duration = Duration::from_secs(1);
/// The job's namespace and name.
const JOB: (&str, &str) = ("default", "web");

/// What to show.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Folder of the sources: the job files are there.
    pub root: PathBuf,
    /// What the job runs on.
    pub chosen: Chosen,
    /// How clients write while the leader is killed.
    pub writes: WritePlan,
}

/// Shows the story up to the point where the cluster is whole again.
///
/// # Errors
/// When anything that it claims does not hold.
pub async fn show(cluster: &mut Cluster, plan: &Plan, term: &Term) -> Result<Run> {
    let run = Run::begin(cluster)?;
    term.say(&format!("Runtime: {} ({})", plan.chosen.on.name(), plan.chosen.why));
    term.say(&format!("Logs, configuration and data: {}", cluster.folder().display()));

    term.heading("Three managers and three agents");
    let leader = start(cluster, term).await?;

    term.heading("A job");
    let api = api_of(cluster, &leader)?;
    let file = job_file(plan.chosen.on);
    cli::quorate(cluster, &plan.root, &["run", file], term).await?;
    let standing = term
        .step("All replicas run", async |note| {
            settled(&api, JOB.0, JOB.1, LIMIT, &note).await?;
            let standing = Standing::look(&api, JOB.0).await?;
            let told = format!("{} tasks, each known to {}", standing.tasks.len(), teller(plan.chosen.on));
            Ok((standing, told))
        })
        .await?;
    cli::quorate(cluster, &plan.root, &["ps", JOB.1], term).await?;
    cli::quorate(cluster, &plan.root, &["cluster", "status"], term).await?;

    term.heading("The leader dies");
    let fallen = lose_the_leader(cluster, plan, &run, term).await?;
    clear_away(cluster, &run, term).await?;

    term.heading("The tasks");
    let new_leader = agreed(cluster).await?;
    let api = api_of(cluster, &new_leader)?;
    prove_untouched(cluster, &api, &standing, term).await?;

    term.heading("The dead manager returns");
    bring_back(cluster, &fallen, term).await?;
    cli::quorate(cluster, &plan.root, &["cluster", "status"], term).await?;
    Ok(run)
}

/// What to try next, on the cluster that is left running.
pub fn suggest(cluster: &Cluster, plan: &Plan, term: &Term) {
    let quorate = cluster.plan.quorate.display();
    let second = cluster.managers.get(1).and_then(|manager| manager.process.pid()).unwrap_or_default();
    let admin = cluster.managers.first().map_or("", |manager| manager.files.admin.as_str());
    term.heading("The cluster stays up. Try, in another terminal:");
    let lines = [
        format!("export QUORATE_MANAGERS={}", cluster.addresses()),
        format!("alias quorate={quorate}"),
        format!("quorate ps {}", JOB.1),
        format!("quorate scale {}=9", JOB.1),
        "quorate node ls".to_owned(),
        format!("quorate run {}/config/jobs/batch.yaml", plan.root.display()),
        format!("kill -9 {second}                  # another manager; then: quorate cluster status"),
        format!("curl {admin}/metrics"),
        format!("quorate stop {}", JOB.1),
    ];
    lines.iter().for_each(|line| term.command(line));
    term.say("\nCtrl-C stops everything that was started.");
}

async fn start(cluster: &mut Cluster, term: &Term) -> Result<Leader> {
    let leader = term
        .step("Starting six processes", async |note| {
            cluster.start()?;
            let leader = cluster.ready(LIMIT, &note).await?;
            let told = format!("{} leads in term {}", name_of(cluster, &leader), leader.seen.term);
            Ok((leader, told))
        })
        .await?;
    let mut rows = Vec::new();
    for manager in &cluster.managers {
        let pid = manager.process.pid().unwrap_or_default();
        rows.push(vec![
            format!("manager {}", manager.files.name),
            format!("pid {pid}"),
            format!("api {}", manager.files.api),
            format!("agents {}", manager.files.agents),
            format!("raft {}", manager.files.raft),
            format!("admin {}", manager.files.admin),
        ]);
    }
    for agent in &cluster.agents {
        let pid = agent.process.pid().unwrap_or_default();
        rows.push(vec![format!("agent {}", agent.files.name), format!("pid {pid}")]);
    }
    columns(&rows).iter().for_each(|line| term.detail(line));
    Ok(leader)
}

/// Kills the leader under load. Returns it as it was.
async fn lose_the_leader(cluster: &mut Cluster, plan: &Plan, run: &Run, term: &Term) -> Result<Leader> {
    let clock = Clock::system();
    let leader = agreed(cluster).await?;
    let name = name_of(cluster, &leader);
    let pid =
        cluster.managers.get(leader.index).and_then(|manager| manager.process.pid()).unwrap_or_default();
    let writers = Writers::start(&plan.writes, &cluster.apis(), &run.history, &run.ids, &run.group)?;
    let title = format!("{} clients submit jobs, each with a name of its own", plan.writes.writers);
    term.step(&title, async |_| {
        clock.sleep(CALM).await;
        Ok(((), format!("{} calls so far", run.history.calls()?.len())))
    })
    .await?;

    let recovery = term
        .step(&format!("SIGKILL to {name} (pid {pid}) while they write"), async |note| {
            let at = cluster.kill_manager(leader.index).await?;
            run.history.fault("kill", &name);
            note.set("waiting for the next acknowledged write");
            let survivors: Vec<Api> = cluster.apis().into_iter().filter(|api| api.name != name).collect();
            let prober =
                Prober { survivors: &survivors, history: &run.history, ids: &run.ids, group: &run.group };
            let recovery = prober.next_acknowledged("demo", at, LIMIT).await?;
            let told = format!(
                "the next write was acknowledged {} after the kill, by {}",
                millis(recovery.after),
                recovery.ack.manager
            );
            Ok((recovery, told))
        })
        .await?;

    let (tally, violations) = term
        .step("Checking every call against the jobs that are there", async |note| {
            clock.sleep(CALM).await;
            note.set("waiting for the calls under way");
            writers.stop().await;
            let next = agreed(cluster).await?;
            if next.seen.term <= leader.seen.term {
                bail!("term {} follows term {}: the leader was not lost", next.seen.term, leader.seen.term);
            }
            let (tally, violations) = check_history(&api_of(cluster, &next)?, run).await?;
            let told = format!(
                "{} acknowledged, none lost, none doubled; {} refused, {} unknown",
                tally.acknowledged, tally.refused, tally.unknown
            );
            if violations.is_empty() {
                Ok(((tally, violations), told))
            } else {
                violations.iter().for_each(|violation| term.cross(&violation.to_string()));
                bail!("{} promises were broken", violations.len())
            }
        })
        .await?;
    if tally.acknowledged == 0 || !violations.is_empty() || recovery.ack.revision <= leader.seen.applied {
        bail!(
            "the next acknowledged write is at revision {}, and the dead leader had {}",
            recovery.ack.revision,
            leader.seen.applied
        );
    }
    Ok(leader)
}

/// Has the jobs of the clients forgotten: who tries the cluster afterwards should not trip over them.
async fn clear_away(cluster: &mut Cluster, run: &Run, term: &Term) -> Result<()> {
    let leader = agreed(cluster).await?;
    let api = api_of(cluster, &leader)?;
    term.step("Deleting the clients' jobs again", async |note| {
        let jobs = api.jobs(NAMESPACE).await?;
        for (number, job) in jobs.iter().enumerate() {
            note.set(format!("{number} of {}", jobs.len()));
            api.delete(NAMESPACE, &job.name, &run.ids.generate(), LIMIT)
                .await
                .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
        }
        until("all to be forgotten", LIMIT, async || {
            let left = api.jobs(NAMESPACE).await?.len();
            Ok(if left == 0 { Look::Done(()) } else { Look::NotYet(format!("{left} are left")) }.noted(&note))
        })
        .await?;
        Ok(((), format!("all {} are forgotten", jobs.len())))
    })
    .await
}

/// Watches the tasks for longer than a lease under the new leader: a node counted as lost by mistake would show.
async fn prove_untouched(cluster: &mut Cluster, api: &Api, standing: &Standing, term: &Term) -> Result<()> {
    let title = format!("Watching {} tasks for longer than a lease", standing.tasks.len());
    term.step(&title, async |note| {
        let violations = watch_over_a_lease(cluster, api, JOB.0, standing, &note).await?;
        if !violations.is_empty() {
            violations.iter().for_each(|violation| term.cross(&violation.to_string()));
            bail!("{} tasks were touched", violations.len());
        }
        Ok(((), "none was restarted, moved or lost; the same instances run".to_owned()))
    })
    .await?;
    let mut rows = vec![["TASK", "JOB", "NODE", "INSTANCE", "RESTARTS", ""].map(ToOwned::to_owned).to_vec()];
    for task in &standing.tasks {
        rows.push(vec![
            task.id.clone(),
            task.label.clone(),
            task.node.clone(),
            task.instance.chars().take(16).collect(),
            task.restarts.to_string(),
            "same as before".to_owned(),
        ]);
    }
    columns(&rows).iter().for_each(|line| term.quote(line));
    Ok(())
}

async fn bring_back(cluster: &mut Cluster, fallen: &Leader, term: &Term) -> Result<()> {
    let name = name_of(cluster, fallen);
    let target = agreed(cluster).await?.seen.applied;
    let title =
        format!("Starting {name} again, {} revisions behind", target.saturating_sub(fallen.seen.applied));
    term.step(&title, async |note: Note| {
        let pid = cluster.start_manager(fallen.index)?;
        let seen = cluster.caught_up(fallen.index, target, LIMIT, &note).await?;
        let leader = cluster.ready(LIMIT, &note).await?;
        let told = format!(
            "pid {pid} is at revision {} and follows {} in term {}",
            seen.applied,
            name_of(cluster, &leader),
            seen.term
        );
        Ok(((), told))
    })
    .await
}

async fn agreed(cluster: &mut Cluster) -> Result<Leader> {
    until("a leader that all agree on", LIMIT, async || {
        cluster.must_run()?;
        Ok(match cluster.agreed_leader().await {
            Ok(leader) => Look::Done(leader),
            Err(missing) => Look::NotYet(missing),
        })
    })
    .await
}

fn api_of(cluster: &Cluster, leader: &Leader) -> Result<Api> {
    cluster.apis().into_iter().nth(leader.index).context("the leader is none of the managers")
}

fn name_of(cluster: &Cluster, leader: &Leader) -> String {
    cluster.managers.get(leader.index).map_or_else(String::new, |manager| manager.files.name.clone())
}

const fn job_file(on: On) -> &'static str {
    match on {
        On::Docker => "config/jobs/web.yaml",
        On::Process | On::Fake => "config/jobs/web-process.yaml",
    }
}

const fn teller(on: On) -> &'static str {
    match on {
        On::Docker => "the Docker engine by its container id",
        On::Process | On::Fake => "the kernel by its pid and start time",
    }
}
