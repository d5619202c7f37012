//! SIGKILL on the leader, again and again, while clients submit jobs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_base::Clock;

use crate::check::Violation;
use crate::cluster::{Cluster, Leader};
use crate::drills::{Run, Standing, check_history, submit_and_settle, watch_over_a_lease};
use crate::probe::{Prober, Recovery};
use crate::report::{Spans, columns, millis};
use crate::term::{Note, Term};
use crate::workload::{On, Plan as WritePlan, Writers, idle_service};

/// Namespace of the tasks that must not be touched.
const STANDING: &str = "standing";
/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(60);

/// How to drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kills.
    pub rounds: u32,
    /// How clients write meanwhile.
    pub writes: WritePlan,
    /// What the standing tasks run on.
    pub on: On,
    /// How many there are.
    pub standing: u32,
}

/// One round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) killed: String,
    leader: String,
    term: u64,
    pub(super) recovery: Duration,
    catch_up: Duration,
    behind: u64,
}

/// Drills a cluster that runs. Returns what was violated.
///
/// # Errors
/// When the cluster does not come back within the bounds.
pub async fn drill(cluster: &mut Cluster, plan: &Plan, term: &Term) -> Result<Vec<Violation>> {
    let run = Run::begin(cluster)?;
    let title = format!("Starting {} managers and {} agents", cluster.managers.len(), cluster.agents.len());
    let leader = term
        .step(&title, async |note| {
            cluster.start()?;
            let leader = cluster.ready(LIMIT, &note).await?;
            let told = format!("{} leads in term {}", leader_name(cluster, &leader), leader.seen.term);
            Ok((leader, told))
        })
        .await?;
    let api = cluster.apis().get(leader.index).cloned().context("the leader is no manager")?;
    let (count, runtime) = (plan.standing, plan.on.name());
    let title = format!("Starting {count} tasks on the {runtime} runtime that must not be touched");
    let standing = term
        .step(&title, async |note| {
            let spec = idle_service(STANDING, "standing", plan.on, plan.standing);
            submit_and_settle(&api, &run, spec, LIMIT, &note).await?;
            Ok((Standing::look(&api, STANDING).await?, "all run".to_owned()))
        })
        .await?;

    let writers = Writers::start(&plan.writes, &cluster.apis(), &run.history, &run.ids, &run.group)?;
    let mut rounds = Vec::new();
    let mut violations = Vec::new();
    for number in 1..=plan.rounds {
        let title = format!("Round {number} of {}", plan.rounds);
        let (round, touched) = term
            .step(&title, async |note| {
                let round = round(cluster, &run, number, &note).await?;
                let touched = standing.violations(&any_api(cluster)?, STANDING).await?;
                let told = format!(
                    "{} killed, next acknowledged write after {} ({} leads in term {})",
                    round.killed,
                    millis(round.recovery),
                    round.leader,
                    round.term
                );
                Ok(((round, touched), told))
            })
            .await?;
        touched.iter().for_each(|violation| term.cross(&violation.to_string()));
        rounds.push(round);
        violations.extend(touched);
    }

    let touched = watch(cluster, &standing, term).await?;
    touched.iter().for_each(|violation| term.cross(&violation.to_string()));
    violations.extend(touched);

    let (tally, found) = term
        .step("Checking the history", async |note| {
            note.set("waiting for the calls under way");
            writers.stop().await;
            note.set("comparing with the jobs that are there");
            let (tally, found) = check_history(&any_api(cluster)?, &run).await?;
            let told = format!(
                "{} acknowledged, {} refused, {} unknown, {} of them sent again elsewhere, by {} clients",
                tally.acknowledged, tally.refused, tally.unknown, tally.repeated, tally.clients
            );
            Ok(((tally, found), told))
        })
        .await?;
    found.iter().for_each(|violation| term.cross(&violation.to_string()));
    violations.extend(found);
    if tally.acknowledged == 0 {
        bail!("no write was acknowledged: the drill proves nothing");
    }
    print(term, &rounds);
    Ok(violations)
}

/// After the last kill: the standing tasks for longer than a lease.
async fn watch(cluster: &mut Cluster, standing: &Standing, term: &Term) -> Result<Vec<Violation>> {
    term.step("Watching the standing tasks for longer than a lease", async |note| {
        let api = any_api(cluster)?;
        let touched = watch_over_a_lease(cluster, &api, STANDING, standing, &note).await?;
        let told = if touched.is_empty() { "none was restarted, moved or lost" } else { "some were touched" };
        Ok((touched, told.to_owned()))
    })
    .await
}

/// SIGKILL on the leader, until all is well again.
pub(super) async fn round(cluster: &mut Cluster, run: &Run, number: u32, note: &Note) -> Result<Round> {
    let clock = Clock::system();
    note.set("waiting for a whole cluster");
    let leader = cluster.ready(LIMIT, note).await?;
    let killed = leader_name(cluster, &leader);
    // Some writes under this leader first: a kill of an idle one proves little.
    let target = leader.seen.applied + 50;
    cluster.caught_up(leader.index, target, LIMIT, note).await?;

    note.set(format!("killing {killed}"));
    let at = cluster.kill_manager(leader.index).await?;
    run.history.fault("kill", &killed);
    note.set(format!("{killed} is dead; waiting for an acknowledged write"));
    let survivors: Vec<_> = cluster.apis().into_iter().filter(|api| api.name != killed).collect();
    let prober = Prober { survivors: &survivors, history: &run.history, ids: &run.ids, group: &run.group };
    let Recovery { after, .. } = prober.next_acknowledged(&number.to_string(), at, LIMIT).await?;

    note.set("waiting for the new leader to settle");
    let next = crate::wait::until("a leader that the survivors agree on", LIMIT, async || {
        cluster.must_run()?;
        Ok(match cluster.agreed_leader().await {
            Ok(leader) => crate::wait::Look::Done(leader),
            Err(missing) => crate::wait::Look::NotYet(missing),
        })
    })
    .await?;
    if next.seen.term <= leader.seen.term {
        bail!(
            "{killed} was killed as leader of term {} and term {} has none newer",
            leader.seen.term,
            next.seen.term
        );
    }

    let started = clock.monotonic();
    cluster.start_manager(leader.index)?;
    run.history.fault("start", &killed);
    let goal = next.seen.applied;
    let seen = cluster.caught_up(leader.index, goal, LIMIT, note).await?;
    Ok(Round {
        leader: leader_name(cluster, &next),
        term: next.seen.term,
        killed,
        recovery: after,
        catch_up: clock.monotonic().since(started),
        behind: seen.applied.saturating_sub(leader.seen.applied),
    })
}

fn leader_name(cluster: &Cluster, leader: &Leader) -> String {
    cluster.managers.get(leader.index).map_or_else(String::new, |manager| manager.api.name.clone())
}

fn any_api(cluster: &Cluster) -> Result<crate::api::Api> {
    cluster.apis().into_iter().next().context("the cluster has no manager")
}

fn print(term: &Term, rounds: &[Round]) {
    let mut rows = vec![
        ["ROUND", "KILLED", "NEW LEADER", "TERM", "KILL → WRITE", "RESTART → CAUGHT UP", "REVISIONS MISSED"]
            .map(ToOwned::to_owned)
            .to_vec(),
    ];
    for (number, round) in rounds.iter().enumerate() {
        rows.push(vec![
            (number + 1).to_string(),
            round.killed.clone(),
            round.leader.clone(),
            round.term.to_string(),
            millis(round.recovery),
            millis(round.catch_up),
            round.behind.to_string(),
        ]);
    }
    term.heading("Rounds");
    columns(&rows).iter().for_each(|line| term.quote(line));
    let recovery: Spans = rounds.iter().map(|round| round.recovery).collect();
    let catch_up: Spans = rounds.iter().map(|round| round.catch_up).collect();
    term.heading("Summary");
    term.quote(&format!("kill → next acknowledged write  {}", recovery.summary()));
    term.quote(&format!("restart → caught up             {}", catch_up.summary()));
}
