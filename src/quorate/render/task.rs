//! Tasks: where they run, or why they do not.

use std::collections::BTreeMap;

use quorate_base::Timestamp;
use quorate_wire::api::{Task, TaskState};
use quorate_wire::common::moment;

use super::table::{Side, Table};
use super::words::{age, job_name, or_none, since, word};

/// Which tasks a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Those that are not over; ended ones only tell why the last one failed while its successor waits.
    Live,
    /// Also the last one of a slot that has no live one: why nothing is there.
    Slots,
    /// Also all that ended, below their successors.
    History,
}

/// Whether somebody who looks at these tasks will ask why they do not run, and only ended ones can tell.
pub(crate) fn want_history(tasks: &[Task]) -> bool {
    tasks.iter().any(|task| task.attempt > 0 && task.state() < TaskState::Running)
}

/// The newest task of each slot without a live one, in the order of the slots; not of those that were stopped on
/// request: nobody misses them.
pub(crate) fn last_of_idle_slots(tasks: &[Task]) -> Vec<&Task> {
    let mut last: BTreeMap<_, &Task> = BTreeMap::new();
    for task in tasks {
        let held = last.entry((&task.namespace, &task.job, task.slot)).or_insert(task);
        if (!is_ended(task), number(task)) > (!is_ended(held), number(held)) {
            *held = task;
        }
    }
    last.into_values().filter(|task| is_ended(task) && task.state() != TaskState::Shutdown).collect()
}

/// The tasks, each slot's newest first.
pub(crate) fn table(tasks: &[Task], show: Show, now: Timestamp) -> String {
    let history = show == Show::History;
    let mut sorted: Vec<&Task> = tasks.iter().filter(|task| history || !is_ended(task)).collect();
    if show == Show::Slots {
        sorted.extend(last_of_idle_slots(tasks));
    }
    if sorted.is_empty() {
        return "no tasks".to_owned();
    }
    sorted.sort_by_key(|task| {
        (&task.namespace, &task.job, task.slot, is_ended(task), std::cmp::Reverse(number(task)))
    });
    let mut table = Table::new(&[
        ("ID", Side::Left),
        ("TASK", Side::Left),
        ("NODE", Side::Left),
        ("DESIRED", Side::Left),
        ("STATE", Side::Left),
        ("VER", Side::Right),
        ("RESTARTS", Side::Right),
        ("AGE", Side::Right),
        ("", Side::Left),
    ]);
    let mut above = None;
    for task in sorted {
        let slot = (&task.namespace, &task.job, task.slot);
        let lead = if above == Some(slot) { " └ " } else { "" };
        above = Some(slot);
        table.row([
            task.id.clone(),
            format!("{lead}{}", name(task)),
            or_none(&task.node),
            desired(task).to_owned(),
            state(task),
            task.job_version.to_string(),
            task.restarts.to_string(),
            since(task.create_time.as_ref(), now, moment),
            explain(task, tasks, history, now),
        ]);
    }
    table.to_string()
}

/// `web[3]`
pub(crate) fn name(task: &Task) -> String {
    format!("{}[{}]", job_name(&task.namespace, &task.job), task.slot)
}

/// Whether nothing of it runs any more.
pub(crate) fn is_ended(task: &Task) -> bool {
    task.state() >= TaskState::Complete
}

/// Whether it ended where it is and will be started there again: it counts as running, and nothing of it runs.
pub(crate) fn is_restarting(task: &Task) -> bool {
    task.state() == TaskState::Running && task.running_since.is_none()
}

fn number(task: &Task) -> u64 {
    task.id.trim_start_matches('t').parse().unwrap_or(u64::MAX)
}

fn desired(task: &Task) -> &'static str {
    match task.desired_state() {
        TaskState::Ready => "ready",
        TaskState::Running => "run",
        TaskState::Complete => "complete",
        TaskState::Remove => "remove",
        _ => "stop",
    }
}

fn state_word(task: &Task) -> String {
    if is_restarting(task) { "restarting".to_owned() } else { word(task.state().as_str_name(), "TASK_STATE") }
}

/// The state in words, with the exit code of an end.
pub(crate) fn state(task: &Task) -> String {
    let state = state_word(task);
    match task.exit_code {
        Some(code) if is_ended(task) => format!("{state} (exit {code})"),
        _ => state,
    }
}

/// State and reason as a phrase: `failed: exit 3, restarting in 2s`.
pub(crate) fn told(task: &Task, now: Timestamp) -> String {
    match why(task, now).as_str() {
        "" => state(task),
        why => format!("{}: {why}", state_word(task)),
    }
}

/// Why it is in that state, with the end of the one before it where that is not shown.
fn explain(task: &Task, all: &[Task], history: bool, now: Timestamp) -> String {
    let own = why(task, now);
    if history || task.attempt == 0 || is_ended(task) || task.state() >= TaskState::Running {
        return own;
    }
    let slot = |task: &Task| (task.namespace.clone(), task.job.clone(), task.slot);
    let before = all
        .iter()
        .filter(|other| is_ended(other) && slot(other) == slot(task))
        .max_by_key(|other| number(other));
    match before {
        Some(before) if own.is_empty() => format!("before: {}", told(before, now)),
        Some(before) => format!("{own}; before: {}", told(before, now)),
        None => own,
    }
}

/// Why it is in that state: what keeps it from a node, what it waits for, what went wrong.
pub(crate) fn why(task: &Task, now: Timestamp) -> String {
    if let Some(failure) = &task.placement_failure {
        return failure.summary.clone();
    }
    let waits = task
        .not_before
        .as_ref()
        .map(|until| moment(until).since(now))
        .filter(|left| !left.is_zero() && task.state() < TaskState::Starting);
    match waits {
        // Rounded up: "0s" would read as "now".
        Some(left) => {
            let left = age(left + std::time::Duration::from_millis(999));
            match task.reason.as_str() {
                "" => format!("starts in {left}, after {} failure(s) in a row", task.attempt),
                reason => format!("starts in {left}: {reason}"),
            }
        }
        None => task.reason.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use quorate_wire::api::PlacementFailure;
    use quorate_wire::common::timestamp;

    pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    pub(crate) fn task(id: u64, slot: u32, state: TaskState) -> Task {
        Task {
            id: format!("t{id}"),
            namespace: "default".into(),
            job: "web".into(),
            job_version: 8,
            slot,
            node: "n01".into(),
            desired_state: TaskState::Running.into(),
            state: state.into(),
            running_since: (state == TaskState::Running).then(|| timestamp(NOW)),
            create_time: Some(timestamp(Timestamp::from_millis(NOW.as_millis() - 120_000))),
            ..Task::default()
        }
    }

    #[test]
    fn predecessors_stand_below_the_live_task_of_their_slot() {
        let old = Task {
            desired_state: TaskState::Shutdown.into(),
            exit_code: Some(0),
            job_version: 7,
            ..task(11, 0, TaskState::Complete)
        };
        let waiting = Task {
            node: String::new(),
            placement_failure: Some(PlacementFailure {
                summary: "3 of 9 nodes: need 2GiB, best free 1GiB".into(),
                ..Default::default()
            }),
            ..task(21, 3, TaskState::Pending)
        };
        let tasks = [waiting, old, task(9, 0, TaskState::Failed), task(20, 0, TaskState::Running)];
        assert_eq!(
            table(&tasks, Show::History, NOW),
            "\
ID   TASK       NODE  DESIRED  STATE              VER  RESTARTS  AGE
t20  web[0]     n01   run      running              8         0   2m
t11   └ web[0]  n01   stop     complete (exit 0)    7         0   2m
t9    └ web[0]  n01   run      failed               8         0   2m
t21  web[3]     –     run      pending              8         0   2m  3 of 9 nodes: need 2GiB, best free 1GiB"
        );
        assert_eq!(table(&[], Show::History, NOW), "no tasks");
    }

    #[test]
    fn without_history_a_waiting_task_says_what_became_of_the_one_before() {
        let failed = Task { reason: "cannot start /no/such".into(), ..task(1, 0, TaskState::Rejected) };
        let waiting = Task { attempt: 1, node: String::new(), ..task(2, 0, TaskState::Pending) };
        let tasks = [failed, waiting, task(3, 1, TaskState::Running)];
        assert!(want_history(&tasks));
        assert_eq!(
            table(&tasks, Show::Live, NOW),
            "\
ID  TASK    NODE  DESIRED  STATE    VER  RESTARTS  AGE
t2  web[0]  –     run      pending    8         0   2m  before: rejected: cannot start /no/such
t3  web[1]  n01   run      running    8         0   2m"
        );
        assert!(!want_history(&tasks[2..]));
        assert_eq!(table(&tasks[..1], Show::Live, NOW), "no tasks");
    }

    #[test]
    fn a_slot_that_gave_up_shows_its_last_task() {
        let failed = |id| Task { exit_code: Some(3), ..task(id, 1, TaskState::Failed) };
        let tasks = [task(1, 0, TaskState::Running), failed(2), failed(9), task(3, 2, TaskState::Shutdown)];
        assert_eq!(
            table(&tasks, Show::Slots, NOW),
            "\
ID  TASK    NODE  DESIRED  STATE            VER  RESTARTS  AGE
t1  web[0]  n01   run      running            8         0   2m
t9  web[1]  n01   run      failed (exit 3)    8         0   2m"
        );
        assert_eq!(state(&Task { running_since: None, ..task(1, 0, TaskState::Running) }), "restarting");
    }

    #[test]
    fn the_reason_says_what_a_task_waits_for() {
        let mut task = task(1, 0, TaskState::Pending);
        task.attempt = 2;
        task.not_before = Some(timestamp(Timestamp::from_millis(NOW.as_millis() + 11_500)));
        assert_eq!(why(&task, NOW), "starts in 12s, after 2 failure(s) in a row");
        task.reason = "no such image".into();
        assert_eq!(why(&task, NOW), "starts in 12s: no such image");
        task.state = TaskState::Running.into();
        assert_eq!(why(&task, NOW), "no such image");
        task.namespace = "shop".into();
        assert_eq!(name(&task), "shop/web[0]");
    }
}
