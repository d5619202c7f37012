//! What is shown while a command waits.

use std::time::Duration;

use quorate_base::Timestamp;
use quorate_wire::api::{Job, Task, TaskState};
use serde_json::{Value, json};

use super::job::{kind, others, tasks};
use super::task::{is_restarting, last_of_idle_slots, name, state, told};
use super::words::or_none;

/// Cells of the bar.
const BAR: u32 = 20;
/// Most tasks that are shown by themselves.
const SHOWN: usize = 6;

/// A moment of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    /// The job.
    pub(crate) job: Job,
    /// Its tasks, also ended ones; of a large job only the first.
    pub(crate) tasks: Vec<Task>,
}

impl Moment {
    /// Tasks that are not where they should be, the least far first.
    pub(crate) fn unsettled(&self) -> Vec<&Task> {
        let mut out: Vec<&Task> = self
            .tasks
            .iter()
            .filter(|task| task.state() < TaskState::Running || is_restarting(task))
            .collect();
        out.sort_by_key(|task| (task.state, task.slot));
        out
    }

    /// Tasks that no node takes.
    pub(crate) fn unplaced(&self) -> Vec<&Task> {
        self.unsettled().into_iter().filter(|task| task.placement_failure.is_some()).collect()
    }

    /// Whether replicas are missing that will not be tried again.
    pub(crate) fn gave_up(&self) -> bool {
        self.job.counts.is_some_and(|counts| counts.given_up > 0)
    }

    /// Whether the job wants tasks now.
    pub(crate) fn wants_tasks(&self) -> bool {
        self.job.counts.is_some_and(|counts| counts.desired > 0)
    }

    /// The last task of each slot that has none now and ended badly.
    pub(crate) fn missing(&self) -> Vec<&Task> {
        last_of_idle_slots(&self.tasks).into_iter().filter(|task| ended_badly(task)).collect()
    }

    /// The newest task that ended badly.
    pub(crate) fn last_failure(&self) -> Option<&Task> {
        self.tasks.iter().filter(|task| ended_badly(task)).max_by_key(|task| task.revision)
    }
}

fn ended_badly(task: &Task) -> bool {
    matches!(task.state(), TaskState::Failed | TaskState::Rejected | TaskState::Orphaned)
}

/// The display of a terminal, a line each; `verifying` that what runs stays up.
pub(crate) fn frame(moment: &Moment, verifying: bool, elapsed: Duration, now: Timestamp) -> Vec<String> {
    let job = &moment.job;
    let counts = job.counts.unwrap_or_default();
    let (done, wanted) = progress(job);
    let filled = (done.min(wanted) * BAR).checked_div(wanted).unwrap_or(BAR);
    let bar: String = (0..BAR).map(|cell| if cell < filled { '▰' } else { '▱' }).collect();
    let seconds = elapsed.as_secs();
    let clock = format!("{:02}:{:02}", seconds / 60, seconds % 60);
    let mut text = format!("  {}  {bar}  {}", job.name, tasks(job));
    if counts.failed > 0 {
        text.push_str(&format!(", {} failed so far", counts.failed));
    }
    let mut lines = vec![format!("{text}   {clock}")];
    let unsettled = moment.unsettled();
    for task in unsettled.iter().take(SHOWN) {
        lines.push(format!("    {}  {}  {}", name(task), or_none(&task.node), told(task, now)));
    }
    if unsettled.len() > SHOWN {
        lines.push(format!("    and {} more", unsettled.len() - SHOWN));
    }
    if let Some(failed) = moment.last_failure() {
        let (name, node) = (name(failed), or_none(&failed.node));
        lines.push(format!("    last failure: {name} on {node} {}", told(failed, now)));
    }
    if verifying {
        lines.push("    verifying that the tasks stay up".to_owned());
    }
    lines
}

/// One line for a log: printed when it differs from the one before.
pub(crate) fn line(moment: &Moment) -> String {
    let job = &moment.job;
    let (done, wanted) = progress(job);
    let what = if kind(job) == "batch" { "succeeded" } else { "running" };
    let mut out =
        format!("job={}/{} version={} {what}={done} desired={wanted}", job.namespace, job.name, job.version);
    let counts = job.counts.unwrap_or_default();
    for (count, what) in others(&counts) {
        // A key of the log has no blanks.
        out.push_str(&format!(" {}={count}", what.replace(' ', "_")));
    }
    out.push_str(&format!(" failed={}", counts.failed));
    if let Some(unplaced) = moment.unplaced().first() {
        let why = unplaced.placement_failure.as_ref().map_or("", |failure| failure.summary.as_str());
        out.push_str(&format!(" unplaced={:?}", format!("{}: {why}", name(unplaced))));
    }
    out
}

/// The same for programs.
pub(crate) fn document(moment: &Moment, verifying: bool) -> Value {
    let job = &moment.job;
    let (done, wanted) = progress(job);
    let task = |task: &Task| {
        json!({
            "id": task.id,
            "task": name(task),
            "node": task.node,
            "state": state(task),
            "reason": task.placement_failure.as_ref().map_or(&task.reason, |failure| &failure.summary),
        })
    };
    let unsettled: Vec<Value> = moment.unsettled().into_iter().take(SHOWN).map(task).collect();
    json!({
        "job": format!("{}/{}", job.namespace, job.name),
        "version": job.version,
        "done": done,
        "desired": wanted,
        "counts": job.counts,
        "converged": job.converged,
        "verifying": verifying,
        "unsettled": unsettled,
    })
}

/// How much of the job is there, and how much should be.
fn progress(job: &Job) -> (u32, u32) {
    let counts = job.counts.unwrap_or_default();
    match job.spec.as_ref().and_then(|spec| spec.kind.as_ref()) {
        Some(quorate_wire::api::job_spec::Kind::Batch(batch)) => (counts.succeeded, batch.completions),
        _ => (counts.running, counts.desired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::job::tests::{batch, service};
    use crate::render::task::tests::{NOW, task};
    use quorate_wire::api::{PlacementFailure, TaskCounts};

    fn moment() -> Moment {
        let counts = TaskCounts {
            desired: 6,
            running: 4,
            starting: 1,
            pending: 1,
            failed: 2,
            ..TaskCounts::default()
        };
        let starting = Task { reason: "pulling nginx:1.27".into(), ..task(5, 4, TaskState::Preparing) };
        let summary = "3 of 3 nodes: need 64GiB, best free 3GiB".to_owned();
        let pending = Task {
            node: String::new(),
            placement_failure: Some(PlacementFailure { summary, ..Default::default() }),
            ..task(6, 5, TaskState::Pending)
        };
        let failed =
            Task { exit_code: Some(1), reason: "port 80 is taken".into(), ..task(3, 5, TaskState::Failed) };
        let running = task(1, 0, TaskState::Running);
        Moment { job: service("web", counts), tasks: vec![pending, starting, running, failed] }
    }

    #[test]
    fn a_terminal_shows_the_bar_and_what_is_not_settled() {
        assert_eq!(
            frame(&moment(), false, Duration::from_secs(101), NOW),
            [
                "  web  ▰▰▰▰▰▰▰▰▰▰▰▰▰▱▱▱▱▱▱▱  4/6, 1 pending, 1 starting, 2 failed so far   01:41",
                "    web[5]  –  pending: 3 of 3 nodes: need 64GiB, best free 3GiB",
                "    web[4]  n01  preparing: pulling nginx:1.27",
                "    last failure: web[5] on n01 failed: port 80 is taken",
            ]
        );
    }

    #[test]
    fn what_restarts_is_not_settled_and_what_runs_is_verified() {
        let mut moment = moment();
        moment.tasks = vec![
            Task { running_since: None, reason: "exit 1".into(), ..task(1, 0, TaskState::Running) },
            task(2, 1, TaskState::Running),
        ];
        let lines = frame(&moment, true, Duration::ZERO, NOW);
        assert_eq!(
            lines[1..],
            ["    web[0]  n01  restarting: exit 1", "    verifying that the tasks stay up"]
        );
    }

    #[test]
    fn missing_are_slots_without_a_live_task_whose_last_one_ended_badly() {
        let moment = Moment {
            tasks: vec![
                task(1, 0, TaskState::Failed),
                task(2, 0, TaskState::Rejected),
                task(3, 1, TaskState::Failed),
                task(4, 1, TaskState::Running),
                task(5, 2, TaskState::Shutdown),
            ],
            ..Moment::default()
        };
        let ids: Vec<&str> = moment.missing().iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["t2"]);
    }

    #[test]
    fn many_tasks_are_counted_instead_of_shown() {
        let mut moment = moment();
        moment.tasks = (0..50).map(|n| task(n, n as u32, TaskState::Starting)).collect();
        let lines = frame(&moment, false, Duration::ZERO, NOW);
        assert_eq!((lines.len(), lines[7].as_str()), (8, "    and 44 more"));
    }

    #[test]
    fn a_log_gets_one_line() {
        assert_eq!(
            line(&moment()),
            "job=default/web version=8 running=4 desired=6 pending=1 starting=1 failed=2 \
             unplaced=\"web[5]: 3 of 3 nodes: need 64GiB, best free 3GiB\""
        );
        let value = document(&moment(), true);
        assert_eq!(
            (&value["done"], &value["desired"], &value["verifying"]),
            (&json!(4), &json!(6), &json!(true))
        );
        assert_eq!(value["unsettled"][0]["reason"], "3 of 3 nodes: need 64GiB, best free 3GiB");
        let batch = Moment { job: batch(), tasks: Vec::new() };
        assert_eq!(line(&batch), "job=shop/thumbs version=8 succeeded=3 desired=5 failed=0");
    }
}
