//! What nodes and tasks use at the moment.

use quorate_base::Timestamp;
use quorate_model::quantity;
use quorate_wire::api::{NamedUsage, Node, Task};
use quorate_wire::common::{Resources, TaskProgress, TaskUsage};
use serde::Serialize;

use super::style::Tint;
use super::table::{Cell, Column, Keep, Key, Layout, Side, column, draw};
use super::words::{NONE, percent};

/// From here on a node is nearly full.
const NEARLY: u64 = 90;

/// A node with what it has and what it uses.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeRow {
    /// Its usage.
    pub(crate) usage: NamedUsage,
    /// What it has.
    pub(crate) capacity: Resources,
    /// Living tasks on it.
    pub(crate) tasks: u32,
}

/// A task with what it uses.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskRow {
    /// Its id.
    pub(crate) id: String,
    /// `job[slot]`; empty when the task is not known any more.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: String,
    /// Its usage; none while it starts.
    pub(crate) usage: Option<TaskUsage>,
    /// How far its start is.
    pub(crate) progress: Option<TaskProgress>,
}

/// What a list of nodes shows.
pub(crate) const NODES: &[Column<NodeRow>] = &[
    column("name", "NODE", Side::Left, Keep::Always, |row, _| row.usage.node.as_str().into()),
    column("cpu", "CPU (use/cap)", Side::Left, Keep::Always, |row, _| {
        part(used(row).map(|(cpu, _)| cpu), row.capacity.cpu_millis, quantity::cpu)
    }),
    column("memory", "MEM (use/cap)", Side::Left, Keep::Always, |row, _| {
        part(used(row).map(|(_, memory)| memory), row.capacity.memory_bytes, quantity::memory)
    }),
    column("disk", "DISK (use/cap)", Side::Left, Keep::Until(1), |row, _| {
        let usage = row.usage.usage.as_ref();
        let room = usage.map_or(0, |usage| usage.disk_capacity_bytes);
        part(usage.map(|usage| usage.disk_bytes), room, quantity::memory)
    }),
    column("tasks", "TASKS", Side::Right, Keep::Always, |row, _| Cell::number(row.tasks)),
    column("starting", "STARTING", Side::Right, Keep::Until(2), |row, _| {
        Cell::number(row.usage.progress.len() as u64)
    }),
];

/// What a list of tasks shows.
pub(crate) const TASKS: &[Column<TaskRow>] = &[
    column("id", "ID", Side::Left, Keep::Always, |row, _| row.id.as_str().into()),
    column("name", "TASK", Side::Left, Keep::Shorten(16), |row, _| {
        if row.name.is_empty() { NONE.into() } else { row.name.as_str().into() }
    }),
    column("node", "NODE", Side::Left, Keep::Always, |row, _| row.node.as_str().into()),
    column("cpu", "CPU", Side::Right, Keep::Always, |row, _| {
        amount(row, |usage| usage.cpu_millis, quantity::cpu)
    }),
    column("memory", "MEM", Side::Right, Keep::Always, |row, _| {
        amount(row, |usage| usage.memory_bytes, quantity::memory)
    }),
    column("pids", "PIDS", Side::Right, Keep::Until(1), |row, _| {
        amount(row, |usage| usage.pids, |pids| pids.to_string())
    }),
    column("activity", "ACTIVITY", Side::Left, Keep::Shorten(20), |row, _| activity(row).into()),
];

fn used(row: &NodeRow) -> Option<(u64, u64)> {
    row.usage.usage.as_ref().map(|usage| (usage.cpu_millis, usage.memory_bytes))
}

/// A share of what there is; nothing while it was not measured.
fn part(used: Option<u64>, room: u64, print: fn(u64) -> String) -> Cell {
    let (Some(used), 1..) = (used, room) else { return Cell::from(NONE).by(Key::Number(0)) };
    let full = percent(used, room);
    let tint = if full >= NEARLY { Tint::Warn } else { Tint::None };
    Cell::from(format!("{}/{}  {full}%", print(used), print(room))).by(Key::Number(full)).tint(tint)
}

fn amount(row: &TaskRow, part: fn(&TaskUsage) -> u64, print: fn(u64) -> String) -> Cell {
    match &row.usage {
        Some(usage) => Cell::from(print(part(usage))).by(Key::Number(part(usage))),
        None => Cell::from(NONE).by(Key::Number(0)),
    }
}

/// What is being done for it, with how far that is.
fn activity(row: &TaskRow) -> String {
    let Some(progress) = &row.progress else { return String::new() };
    let (done, all) = (quantity::memory(progress.done_bytes), quantity::memory(progress.total_bytes));
    match (progress.done_bytes, progress.total_bytes) {
        (0, 0) => progress.activity.clone(),
        (_, 0) => format!("{}  {done}", progress.activity),
        _ => format!("{}  {done}/{all}", progress.activity),
    }
}

/// The nodes of an answer, with what they have.
pub(crate) fn node_rows(nodes: Vec<NamedUsage>, known: &[Node]) -> Vec<NodeRow> {
    let row = |usage: NamedUsage| {
        let node = known.iter().find(|node| node.name == usage.node);
        let capacity = node.and_then(|node| node.capacity).unwrap_or_default();
        NodeRow { capacity, tasks: node.map_or(0, |node| node.tasks), usage }
    };
    nodes.into_iter().map(row).collect()
}

/// The tasks of an answer, the busiest first.
pub(crate) fn task_rows(nodes: &[NamedUsage], known: &[Task]) -> Vec<TaskRow> {
    let mut rows = Vec::new();
    for node in nodes {
        let used = node.usage.iter().flat_map(|usage| &usage.tasks);
        let row = |id: u64| {
            let id = format!("t{id}");
            let task = known.iter().find(|task| task.id == id);
            let name = task.map(|task| format!("{}[{}]", task.job, task.slot)).unwrap_or_default();
            TaskRow { id, name, node: node.node.clone(), usage: None, progress: None }
        };
        rows.extend(used.map(|usage| TaskRow { usage: Some(*usage), ..row(usage.task_id) }));
        rows.extend(
            node.progress.iter().map(|one| TaskRow { progress: Some(one.clone()), ..row(one.task_id) }),
        );
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.usage.as_ref().map_or(0, |usage| usage.cpu_millis)));
    rows
}

/// The nodes, one a line.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn nodes(rows: &[NodeRow], layout: &Layout, now: Timestamp) -> Result<String, String> {
    let text = draw(NODES, rows, layout, now)?;
    Ok(if rows.is_empty() { "no agent has a session with the leader".to_owned() } else { text })
}

/// The tasks, one a line.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn tasks(rows: &[TaskRow], layout: &Layout, now: Timestamp) -> Result<String, String> {
    let text = draw(TASKS, rows, layout, now)?;
    Ok(if rows.is_empty() { "nothing was measured yet: agents measure every 10 s".to_owned() } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::common::NodeUsage;

    #[test]
    fn the_busiest_come_first_and_starts_show_how_far_they_are() {
        let usage = |task_id, cpu_millis| TaskUsage { task_id, cpu_millis, memory_bytes: 1 << 20, pids: 2 };
        let progress = TaskProgress {
            task_id: 3,
            activity: "pulling web:1".to_owned(),
            done_bytes: 1 << 20,
            total_bytes: 4 << 20,
        };
        let node = NamedUsage {
            node: "n1".to_owned(),
            usage: Some(NodeUsage { tasks: vec![usage(1, 10), usage(2, 500)], ..NodeUsage::default() }),
            progress: vec![progress],
        };
        let task = Task { id: "t2".to_owned(), job: "web".to_owned(), slot: 4, ..Task::default() };
        let rows = task_rows(&[node], &[task]);
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["t2", "t1", "t3"]);
        assert_eq!(rows[0].name, "web[4]");
        assert!(activity(&rows[2]).starts_with("pulling web:1  1"), "{}", activity(&rows[2]));
    }
}
