//! One job of many replicas on agents whose containers are fake: create → all assigned.

use std::time::Duration;

use anyhow::Result;
use quorate_base::Clock;

use crate::api::Api;
use crate::bench::Plan;
use crate::drills::Run;
use crate::report::{Spans, columns, millis};
use crate::term::Term;
use crate::wait::{Look, until};
use crate::workload::{On, idle_service};

/// Bound of each wait.
const LIMIT: Duration = Duration::from_secs(120);
/// The job's namespace.
const NAMESPACE: &str = "bench";

/// How long one job took, from its submission on.
struct Round {
    acknowledged: Duration,
    assigned: Duration,
    running: Duration,
}

/// Measures and prints.
///
/// # Errors
/// When the cluster does not do its work within the bounds.
pub async fn print(plan: &Plan, api: &Api, run: &Run, term: &Term) -> Result<()> {
    let mut rounds = Vec::new();
    for number in 0..=plan.rounds {
        let title =
            if number == 0 { "Warming up".to_owned() } else { format!("Round {number} of {}", plan.rounds) };
        let round = term
            .step(&title, async |_| {
                let round = place(api, run, plan.replicas, number).await?;
                let told = format!("all assigned after {}", millis(round.assigned));
                Ok((round, told))
            })
            .await?;
        if number > 0 {
            rounds.push(round);
        }
    }
    term.heading(&format!(
        "{} replicas of one job on {} fake agents, 3 managers, all on this machine",
        plan.replicas, plan.agents
    ));
    let row = |what: &str, pick: fn(&Round) -> Duration| {
        let spans: Spans = rounds.iter().map(pick).collect();
        vec![what.to_owned(), spans.summary()]
    };
    let rows = [
        row("create → acknowledged", |round| round.acknowledged),
        row("create → all assigned", |round| round.assigned),
        row("create → all running (fake)", |round| round.running),
    ];
    columns(&rows).iter().for_each(|line| term.quote(line));
    Ok(())
}

/// Submits one job, waits for its tasks, and has it forgotten again.
async fn place(api: &Api, run: &Run, replicas: u32, number: u32) -> Result<Round> {
    let clock = Clock::system();
    let name = format!("round-{number}");
    let spec = idle_service(NAMESPACE, &name, On::Fake, replicas);
    let start = clock.monotonic();
    api.create(spec, &run.ids.generate(), Duration::from_secs(10))
        .await
        .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
    let acknowledged = clock.monotonic().since(start);
    let counts = async || Ok::<_, anyhow::Error>(api.job(NAMESPACE, &name).await?.counts.unwrap_or_default());
    // Asked for again at once: the answer is a handful of bytes, and a rest would be measured too.
    let assigned = loop {
        let counts = counts().await?;
        if counts.running + counts.starting >= replicas {
            break clock.monotonic().since(start);
        }
        if clock.monotonic().since(start) > LIMIT {
            anyhow::bail!(
                "{} of {replicas} tasks wait for a node after {} s",
                counts.pending,
                LIMIT.as_secs()
            );
        }
    };
    until("all tasks to run", LIMIT, async || {
        let counts = counts().await?;
        Ok(if counts.running >= replicas { Look::Done(()) } else { Look::NotYet(format!("{counts:?}")) })
    })
    .await?;
    let running = clock.monotonic().since(start);
    api.delete(NAMESPACE, &name, &run.ids.generate(), Duration::from_secs(10))
        .await
        .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
    until("all tasks to be gone", LIMIT, async || {
        let left = api.tasks(NAMESPACE).await?.len();
        Ok(if left == 0 { Look::Done(()) } else { Look::NotYet(format!("{left} are left")) })
    })
    .await?;
    Ok(Round { acknowledged, assigned, running })
}
