//! Tasks: where they run, or why they do not.

use std::collections::BTreeMap;

use quorate_base::Timestamp;
use quorate_wire::api::{Task, TaskState};
use quorate_wire::common::moment;

use super::style::Tint;
use super::table::{Cell, Column, Keep, Key, Layout, Side, column, draw};
use super::words::{age, ago, job_name, or_none, word};

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

/// A line of a list of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The task.
    pub(crate) task: Task,
    /// Whether its successor stands above it.
    below: bool,
    /// Why it is in its state.
    why: String,
}

/// What a list of tasks shows.
pub(crate) const COLUMNS: &[Column<Row>] = &[
    column("id", "ID", Side::Left, Keep::Always, |row, _| {
        Cell::from(row.task.id.as_str()).by(Key::Number(number(&row.task)))
    }),
    column("namespace", "NAMESPACE", Side::Left, Keep::Wide, |row, _| row.task.namespace.as_str().into()),
    column("job", "JOB", Side::Left, Keep::Wide, |row, _| row.task.job.as_str().into()),
    column("task", "TASK", Side::Left, Keep::Always, |row, _| {
        let lead = if row.below { " └ " } else { "" };
        Cell::from(format!("{lead}{}", name(&row.task))).by(Key::Word(name(&row.task)))
    }),
    column("node", "NODE", Side::Left, Keep::Until(1), |row, _| or_none(&row.task.node).into()),
    column("desired", "DESIRED", Side::Left, Keep::Until(5), |row, _| desired(&row.task).into()),
    column("state", "STATE", Side::Left, Keep::Always, |row, _| {
        Cell::from(state(&row.task)).by(Key::Word(state_word(&row.task))).tint(tint(row))
    }),
    column("last", "LAST STATE", Side::Left, Keep::Wide, |row, _| {
        word(row.task.state().as_str_name(), "TASK_STATE").into()
    }),
    column("exit", "EXIT", Side::Right, Keep::Wide, |row, _| {
        row.task.exit_code.map(|code| code.to_string()).unwrap_or_default().into()
    }),
    column("version", "VER", Side::Right, Keep::Until(4), |row, _| Cell::number(row.task.job_version)),
    column("restarts", "RESTARTS", Side::Right, Keep::Until(3), |row, _| Cell::number(row.task.restarts)),
    column("age", "AGE", Side::Right, Keep::Until(2), |row, now| ago(row.task.create_time.as_ref(), now)),
    column("instance", "INSTANCE", Side::Left, Keep::Wide, |row, _| row.task.instance.as_str().into()),
    column("revision", "REVISION", Side::Right, Keep::Wide, |row, _| Cell::number(row.task.revision)),
    column("reason", "REASON", Side::Left, Keep::Shorten(24), |row, _| row.why.as_str().into()),
];

/// The tasks as lines, each slot's newest first.
pub(crate) fn rows(tasks: &[Task], show: Show, now: Timestamp) -> Vec<Row> {
    let history = show == Show::History;
    let mut sorted: Vec<&Task> = tasks.iter().filter(|task| history || !is_ended(task)).collect();
    if show == Show::Slots {
        sorted.extend(last_of_idle_slots(tasks));
    }
    sorted.sort_by_key(|task| {
        (&task.namespace, &task.job, task.slot, is_ended(task), std::cmp::Reverse(number(task)))
    });
    let before = newest_ended(tasks);
    let mut above = None;
    let mut out = Vec::with_capacity(sorted.len());
    for task in sorted {
        let below = above == Some(slot(task));
        above = Some(slot(task));
        let earlier = if history { None } else { before.get(&slot(task)).copied() };
        out.push(Row { task: task.clone(), below, why: explain(task, earlier, now) });
    }
    out
}

/// The tasks as lines of a document: as they come.
pub(crate) fn plain_rows(tasks: Vec<Task>) -> Vec<Row> {
    tasks.into_iter().map(|task| Row { why: task.reason.clone(), task, below: false }).collect()
}

/// The lines under their headings.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn table(rows: &[Row], layout: &Layout, now: Timestamp) -> Result<String, String> {
    let text = draw(COLUMNS, rows, layout, now)?;
    Ok(if rows.is_empty() { "no tasks".to_owned() } else { text })
}

type Slot<'a> = (&'a str, &'a str, u32);

fn slot(task: &Task) -> Slot<'_> {
    (&task.namespace, &task.job, task.slot)
}

/// The newest task that ended, of each slot.
fn newest_ended(tasks: &[Task]) -> BTreeMap<Slot<'_>, &Task> {
    let mut newest: BTreeMap<Slot<'_>, &Task> = BTreeMap::new();
    for task in tasks.iter().filter(|task| is_ended(task)) {
        let held = newest.entry(slot(task)).or_insert(task);
        if number(task) > number(held) {
            *held = task;
        }
    }
    newest
}

fn tint(row: &Row) -> Tint {
    match row.task.state() {
        _ if is_unknown(&row.task) => Tint::Bad,
        TaskState::Failed | TaskState::Rejected | TaskState::Orphaned if row.below => Tint::Dim,
        TaskState::Failed | TaskState::Rejected | TaskState::Orphaned => Tint::Bad,
        _ if is_ended(&row.task) => Tint::Dim,
        TaskState::Running if !is_restarting(&row.task) => Tint::Good,
        _ => Tint::Warn,
    }
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

/// Whether its node is down, so that nobody knows how it is now.
fn is_unknown(task: &Task) -> bool {
    task.node_down && !is_ended(task)
}

fn state_word(task: &Task) -> String {
    match () {
        () if is_unknown(task) => "unknown".to_owned(),
        () if is_restarting(task) => "restarting".to_owned(),
        () => word(task.state().as_str_name(), "TASK_STATE"),
    }
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
fn explain(task: &Task, before: Option<&Task>, now: Timestamp) -> String {
    let own = match why(task, now) {
        own if is_unknown(task) && own.is_empty() => format!("node {} is down", task.node),
        own if is_unknown(task) => format!("node {} is down; {own}", task.node),
        // The state says it.
        own if task.exit_code.is_some_and(|code| is_ended(task) && own == format!("exit {code}")) => {
            String::new()
        }
        own => own,
    };
    match before {
        _ if task.attempt == 0 || is_ended(task) || task.state() >= TaskState::Running => own,
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

    fn shown(tasks: &[Task], show: Show) -> String {
        table(&rows(tasks, show, NOW), &Layout::plain(), NOW).unwrap()
    }

    #[test]
    fn what_a_node_that_is_down_does_is_unknown() {
        let task = Task { node_down: true, ..task(1, 0, TaskState::Running) };
        let wide = Layout {
            columns: vec!["task".into(), "state".into(), "last".into(), "reason".into()],
            ..Layout::plain()
        };
        assert_eq!(
            table(&rows(&[task], Show::Live, NOW), &wide, NOW).unwrap(),
            "TASK    STATE    LAST STATE  REASON\nweb[0]  unknown  running     node n01 is down"
        );
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
            shown(&tasks, Show::History),
            "\
ID   TASK       NODE  DESIRED  STATE              VER  RESTARTS  AGE  REASON
t20  web[0]     n01   run      running              8         0   2m
t11   └ web[0]  n01   stop     complete (exit 0)    7         0   2m
t9    └ web[0]  n01   run      failed               8         0   2m
t21  web[3]     –     run      pending              8         0   2m  3 of 9 nodes: need 2GiB, best free 1GiB"
        );
        assert_eq!(shown(&[], Show::History), "no tasks");
    }

    #[test]
    fn without_history_a_waiting_task_says_what_became_of_the_one_before() {
        let failed = Task { reason: "cannot start /no/such".into(), ..task(1, 0, TaskState::Rejected) };
        let waiting = Task { attempt: 1, node: String::new(), ..task(2, 0, TaskState::Pending) };
        let tasks = [failed, waiting, task(3, 1, TaskState::Running)];
        assert!(want_history(&tasks));
        assert_eq!(
            shown(&tasks, Show::Live),
            "\
ID  TASK    NODE  DESIRED  STATE    VER  RESTARTS  AGE  REASON
t2  web[0]  –     run      pending    8         0   2m  before: rejected: cannot start /no/such
t3  web[1]  n01   run      running    8         0   2m"
        );
        assert!(!want_history(&tasks[2..]));
        assert_eq!(shown(&tasks[..1], Show::Live), "no tasks");
    }

    #[test]
    fn a_slot_that_gave_up_shows_its_last_task() {
        let failed = |id| Task { exit_code: Some(3), ..task(id, 1, TaskState::Failed) };
        let tasks = [task(1, 0, TaskState::Running), failed(2), failed(9), task(3, 2, TaskState::Shutdown)];
        assert_eq!(
            shown(&tasks, Show::Slots),
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
