//! Jobs.

use quorate_base::Timestamp;
use quorate_wire::api::job_spec::Kind;
use quorate_wire::api::{Job, JobStatus, Task, TaskCounts};
use quorate_wire::common::moment;

use super::style::Tint;
use super::table::{Cell, Column, Keep, Key, Layout, Side, column, draw};
use super::words::{NONE, ago, flow, job_name, since, word};

/// What a list of jobs shows.
pub(crate) const COLUMNS: &[Column<Job>] = &[
    column("namespace", "NAMESPACE", Side::Left, Keep::Wide, |job, _| job.namespace.as_str().into()),
    column("name", "JOB", Side::Left, Keep::Always, |job, _| {
        Cell::from(job_name(&job.namespace, &job.name)).by(Key::Word(job.name.clone()))
    }),
    column("type", "TYPE", Side::Left, Keep::Until(3), |job, _| kind(job).into()),
    column("status", "STATUS", Side::Left, Keep::Always, |job, _| Cell::from(status(job)).tint(tint(job))),
    column("tasks", "TASKS", Side::Left, Keep::Shorten(14), |job, _| tasks(job).into()),
    column("version", "VER", Side::Right, Keep::Until(4), |job, _| Cell::number(job.version)),
    column("image", "IMAGE", Side::Left, Keep::Shorten(12), |job, _| image(job).into()),
    column("priority", "PRIORITY", Side::Right, Keep::Wide, |job, _| {
        Cell::number(job.spec.as_ref().map_or(0, |spec| spec.priority))
    }),
    column("etag", "ETAG", Side::Left, Keep::Wide, |job, _| job.etag.as_str().into()),
    column("editor", "EDITOR", Side::Left, Keep::Wide, |job, _| job.edited_by.as_str().into()),
    column("revision", "REVISION", Side::Right, Keep::Wide, |job, _| Cell::number(job.revision)),
    column("changed", "CHANGED", Side::Right, Keep::Wide, |job, now| ago(job.update_time.as_ref(), now)),
    column("age", "AGE", Side::Right, Keep::Until(2), |job, now| ago(job.create_time.as_ref(), now)),
];

/// The jobs, one a line.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn table(jobs: &[Job], layout: &Layout, now: Timestamp) -> Result<String, String> {
    let text = draw(COLUMNS, jobs, layout, now)?;
    Ok(if jobs.is_empty() { "no jobs".to_owned() } else { text })
}

fn tint(job: &Job) -> Tint {
    let counts = job.counts.unwrap_or_default();
    match job.status() {
        JobStatus::Failed => Tint::Bad,
        _ if counts.given_up > 0 => Tint::Bad,
        JobStatus::Active if job.converged || kind(job) == "batch" => Tint::Good,
        JobStatus::Active | JobStatus::Purging => Tint::Warn,
        _ => Tint::None,
    }
}

/// One job and its tasks.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn details(
    job: &Job,
    tasks_of_job: &[Task],
    layout: &Layout,
    now: Timestamp,
) -> Result<String, String> {
    let parts = [
        format!("job {}/{}: {}", job.namespace, job.name, kind(job)),
        layout.style.tint(tint(job), &status(job)),
        format!("version {}", job.version),
        tasks(job),
        format!(
            "created {} ago, changed {} ago",
            since(job.create_time.as_ref(), now, moment),
            since(job.update_time.as_ref(), now, moment)
        ),
    ];
    let mut out = flow(parts.iter().map(String::as_str), " · ", "  ", layout.width);
    out.push_str(&format!("\netag {}", job.etag));
    if !tasks_of_job.is_empty() {
        let rows = super::task::rows(tasks_of_job, super::task::Show::Slots, now);
        out.push_str(&format!("\n\n{}", super::task::table(&rows, layout, now)?));
    }
    Ok(out)
}

/// `service` or `batch`.
pub(crate) fn kind(job: &Job) -> &'static str {
    match job.spec.as_ref().and_then(|spec| spec.kind.as_ref()) {
        Some(Kind::Service(_)) => "service",
        Some(Kind::Batch(_)) => "batch",
        None => NONE,
    }
}

/// The status in words; an active job whose tasks are not as wanted yet converges.
pub(crate) fn status(job: &Job) -> String {
    let status = word(job.status().as_str_name(), "JOB_STATUS");
    match status.as_str() {
        "active" if kind(job) == "service" && !job.converged => "converging".to_owned(),
        _ => status,
    }
}

/// Counts of tasks: `4/6`, of a batch `3/5 done, 2 running`.
pub(crate) fn tasks(job: &Job) -> String {
    let counts = job.counts.unwrap_or_default();
    let up = counts.running + counts.outdated;
    let mut out = match job.spec.as_ref().and_then(|spec| spec.kind.as_ref()) {
        Some(Kind::Batch(batch)) if up > 0 => {
            format!("{}/{} done, {up} running", counts.succeeded, batch.completions)
        }
        Some(Kind::Batch(batch)) => format!("{}/{} done", counts.succeeded, batch.completions),
        _ => format!("{up}/{}", counts.desired),
    };
    for (count, what) in others(&counts) {
        out.push_str(&format!(", {count} {what}"));
    }
    out
}

/// What else there is to say about a job's tasks.
pub(crate) fn others(counts: &TaskCounts) -> impl Iterator<Item = (u32, &'static str)> {
    [
        (counts.pending, "pending"),
        (counts.starting, "starting"),
        (counts.stopping, "stopping"),
        (counts.outdated, "outdated"),
        (counts.given_up, "gave up"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
}

/// The image of the one container, or its program.
fn image(job: &Job) -> String {
    let container = job.spec.as_ref().and_then(|spec| spec.containers.values().next());
    match container {
        Some(container) if !container.image.is_empty() => container.image.clone(),
        Some(container) => container.command.first().cloned().unwrap_or_else(|| NONE.to_owned()),
        None => NONE.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::render::task::tests::{NOW, task};
    use quorate_wire::api::{BatchSpec, JobSpec, ServiceSpec, TaskState};
    use quorate_wire::common::{ContainerSpec, timestamp};

    pub(crate) fn service(name: &str, counts: TaskCounts) -> Job {
        let container = ContainerSpec { image: "nginx:1.27".into(), ..ContainerSpec::default() };
        Job {
            namespace: "default".into(),
            name: name.into(),
            version: 8,
            status: JobStatus::Active.into(),
            spec: Some(JobSpec {
                kind: Some(Kind::Service(ServiceSpec { replicas: counts.desired })),
                containers: [("app".to_owned(), container)].into(),
                ..JobSpec::default()
            }),
            converged: counts.running == counts.desired,
            counts: Some(counts),
            etag: "W/\"42\"".into(),
            create_time: Some(timestamp(Timestamp::from_millis(NOW.as_millis() - 7_200_000))),
            update_time: Some(timestamp(Timestamp::from_millis(NOW.as_millis() - 5_000))),
            ..Job::default()
        }
    }

    pub(crate) fn batch() -> Job {
        let counts = TaskCounts { desired: 2, running: 2, succeeded: 3, ..TaskCounts::default() };
        let mut job = service("thumbs", counts);
        job.namespace = "shop".into();
        job.converged = false;
        if let Some(spec) = &mut job.spec {
            spec.kind = Some(Kind::Batch(BatchSpec { completions: 5, parallelism: 2 }));
        }
        job
    }

    #[test]
    fn jobs_show_what_runs_of_what_is_wanted() {
        let counts = TaskCounts { desired: 6, running: 4, pending: 1, starting: 1, ..TaskCounts::default() };
        let done = TaskCounts { desired: 3, running: 3, ..TaskCounts::default() };
        assert_eq!(
            table(&[service("web", counts), service("api", done), batch()], &Layout::plain(), NOW).unwrap(),
            "\
JOB          TYPE     STATUS      TASKS                       VER  IMAGE         AGE
web          service  converging  4/6, 1 pending, 1 starting    8  nginx:1.27  2h00m
api          service  active      3/3                           8  nginx:1.27  2h00m
shop/thumbs  batch    active      3/5 done, 2 running           8  nginx:1.27  2h00m"
        );
        assert_eq!(table(&[], &Layout::plain(), NOW).unwrap(), "no jobs");
    }

    #[test]
    fn a_job_is_shown_with_its_tasks() {
        let counts = TaskCounts { desired: 1, running: 1, ..TaskCounts::default() };
        assert_eq!(
            details(&service("web", counts), &[task(1, 0, TaskState::Running)], &Layout::plain(), NOW)
                .unwrap(),
            "\
job default/web: service · active · version 8 · 1/1 · created 2h00m ago, changed 5s ago
etag W/\"42\"

ID  TASK    NODE  DESIRED  STATE    VER  RESTARTS  AGE
t1  web[0]  n01   run      running    8         0   2m"
        );
    }
}
