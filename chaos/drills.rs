//! Drills: faults against a real cluster under load, and the check of what was recorded.

pub mod agent_faults;
pub mod foreign;
pub mod kill_agents;
pub mod kill_leader;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quorate_base::{Clock, RequestIds, Rng, TaskGroup};
use quorate_wire::api::{JobSpec, JobStatus};

use crate::api::Api;
use crate::check::tasks::{InstanceFact, TaskFact, same_instances, untouched};
use crate::check::{Violation, writes};
use crate::cluster::Cluster;
use crate::history::History;
use crate::term::Note;
use crate::truth;
use crate::wait::{Look, until};
use crate::workload::NAMESPACE;

/// What the clients of one run share.
#[derive(Clone, Debug)]
pub struct Run {
    /// Everything that was called.
    pub history: Arc<History>,
    /// Where request ids come from.
    pub ids: Arc<RequestIds>,
    /// What the clients run under.
    pub group: TaskGroup,
}

impl Run {
    /// A run that writes its history into the cluster's folder.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn begin(cluster: &Cluster) -> Result<Self> {
        let history = Arc::new(History::create(Some(&cluster.folder().join("history.jsonl")))?);
        // Not from the seed: a request id that an earlier run used would be answered from memory.
        let ids = Arc::new(RequestIds::new(Clock::system(), Rng::from_entropy()));
        Ok(Self { history, ids, group: crate::task_group("chaos") })
    }
}

/// Tasks that must not be touched, and what ran them at the time.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The tasks as the managers tell them.
    pub tasks: Vec<TaskFact>,
    /// What runs them, asked of who runs it.
    pub instances: std::collections::BTreeMap<String, InstanceFact>,
}

impl Standing {
    /// The tasks of `namespace` now.
    ///
    /// # Errors
    /// When the manager or the engine does not answer.
    pub async fn look(api: &Api, namespace: &str) -> Result<Self> {
        let tasks: Vec<TaskFact> = api.tasks(namespace).await?.iter().map(truth::fact).collect();
        let instances = truth::instances(&tasks).await?;
        Ok(Self { tasks, instances })
    }

    /// The same without the tasks of one node.
    #[must_use]
    pub fn without(mut self, node: &str) -> Self {
        self.tasks.retain(|task| task.node != node);
        self.instances.retain(|instance, _| self.tasks.iter().any(|task| task.instance == *instance));
        self
    }

    /// What was touched since.
    ///
    /// # Errors
    /// When the manager or the engine does not answer.
    pub async fn violations(&self, api: &Api, namespace: &str) -> Result<Vec<Violation>> {
        let after: Vec<TaskFact> = api.tasks(namespace).await?.iter().map(truth::fact).collect();
        let mut found = untouched(&self.tasks, &after);
        // Asked for by the instances of before: whether the managers still name them was compared above.
        found.extend(same_instances(&self.instances, &truth::instances(&self.tasks).await?));
        Ok(found)
    }
}

/// Creates a job and waits until all its tasks run.
///
/// # Errors
/// When it is refused, or they do not all run within `limit`.
pub async fn submit_and_settle(
    api: &Api,
    run: &Run,
    spec: JobSpec,
    limit: Duration,
    note: &Note,
) -> Result<()> {
    let (namespace, name) = (spec.namespace.clone(), spec.name.clone());
    api.create(spec, &run.ids.generate(), Duration::from_secs(10))
        .await
        .map_err(|refused| anyhow::anyhow!("{}", refused.error))
        .with_context(|| format!("cannot submit job {name}"))?;
    settled(api, &namespace, &name, limit, note).await
}

/// Waits until all tasks of a job run.
///
/// # Errors
/// When they do not within `limit`, with what holds them up.
pub async fn settled(api: &Api, namespace: &str, name: &str, limit: Duration, note: &Note) -> Result<()> {
    until(&format!("all tasks of {name} to run"), limit, async || {
        let counts = api.job(namespace, name).await?.counts.unwrap_or_default();
        let look = if counts.running >= counts.desired && counts.desired > 0 {
            Look::Done(())
        } else {
            Look::NotYet(format!("{} of {} run", counts.running, counts.desired))
        };
        Ok(look.noted(note))
    })
    .await
}

/// Compares the whole history with the jobs that are there in the end.
///
/// # Errors
/// When the manager does not answer or the history cannot be written.
pub async fn check_history(api: &Api, run: &Run) -> Result<(writes::Tally, Vec<Violation>)> {
    let ending = [JobStatus::Stopped, JobStatus::Purging].map(i32::from);
    let jobs = api.jobs(NAMESPACE).await?;
    let facts: Vec<writes::JobFact> = jobs
        .into_iter()
        .map(|job| writes::JobFact {
            name: job.name,
            version: job.version,
            ending: ending.contains(&job.status),
        })
        .collect();
    let calls = run.history.calls()?;
    Ok((writes::tally(&calls), writes::check(&calls, &facts)))
}

/// Has every job forgotten and waits until no task is left. Best effort: what stays is swept with the cluster's folder.
///
/// # Errors
/// When tasks are left after `limit`.
pub async fn delete_all(api: &Api, ids: &RequestIds, limit: Duration, note: &Note) -> Result<()> {
    for job in api.jobs("").await? {
        if job.counts.is_some_and(|counts| counts.desired > 0) {
            api.delete(&job.namespace, &job.name, &ids.generate(), Duration::from_secs(5))
                .await
                .map_err(|refused| anyhow::anyhow!("{}", refused.error))?;
        }
    }
    until("all tasks to end", limit, async || {
        let left = api.tasks("").await?.len();
        Ok(if left == 0 { Look::Done(()) } else { Look::NotYet(format!("{left} are left")) }.noted(note))
    })
    .await
}

/// Watches standing tasks for longer than a lease under a new leader: a node that is counted as lost by mistake
/// shows only then. Ends early at the first violation.
///
/// # Errors
/// When a process has ended, or the tasks cannot be looked at.
pub async fn watch_over_a_lease(
    cluster: &mut Cluster,
    api: &Api,
    namespace: &str,
    standing: &Standing,
    note: &Note,
) -> Result<Vec<Violation>> {
    let clock = Clock::system();
    let watch = cluster.plan.lease + Duration::from_secs(1);
    let end = clock.monotonic().saturating_add(watch);
    until("the watch to end", watch * 3, async || {
        cluster.must_run()?;
        let violations = standing.violations(api, namespace).await?;
        let left = end.since(clock.monotonic());
        if !violations.is_empty() || left.is_zero() {
            return Ok(Look::Done(violations));
        }
        clock.sleep(Duration::from_millis(200).min(left)).await;
        Ok(Look::NotYet(format!("{} s left", left.as_secs() + 1)).noted(note))
    })
    .await
}
