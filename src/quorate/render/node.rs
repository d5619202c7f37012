//! Nodes.

use std::time::Duration;

use quorate_base::Timestamp;
use quorate_model::quantity;
use quorate_wire::api::{Node, NodeStatus};
use quorate_wire::common::{Resources, moment};

use super::style::Tint;
use super::table::{Cell, Column, Keep, Key, Layout, Side, column, draw};
use super::words::{NONE, age, or_none, percent, span, word};

/// What a list of nodes shows.
pub(crate) const COLUMNS: &[Column<Node>] = &[
    column("name", "NAME", Side::Left, Keep::Always, |node, _| node.name.as_str().into()),
    column("zone", "ZONE", Side::Left, Keep::Until(3), |node, _| {
        node.labels.get("zone").map_or(NONE, String::as_str).into()
    }),
    column("status", "STATUS", Side::Left, Keep::Always, |node, now| {
        Cell::from(status(node, now)).by(Key::Word(status_word(node))).tint(tint(node))
    }),
    column("sched", "SCHED", Side::Left, Keep::Until(4), |node, _| {
        if node.eligible { "eligible" } else { "ineligible" }.into()
    }),
    column("tasks", "TASKS", Side::Right, Keep::Always, |node, _| Cell::number(node.tasks)),
    column("cpu", "CPU (res/cap)", Side::Left, Keep::Until(2), |node, _| {
        share(node, |of| of.cpu_millis, quantity::cpu)
    }),
    column("memory", "MEM (res/cap)", Side::Left, Keep::Until(1), |node, _| {
        share(node, |of| of.memory_bytes, quantity::memory)
    }),
    column("runtimes", "RUNTIMES", Side::Left, Keep::Until(6), |node, _| {
        let runtimes: Vec<&str> = node.runtimes.keys().map(String::as_str).collect();
        or_none(&runtimes.join(",")).into()
    }),
    column("version", "VERSION", Side::Left, Keep::Until(7), |node, _| or_none(&node.agent_version).into()),
    column("host", "HOST", Side::Left, Keep::Wide, |node, _| node.hostname.as_str().into()),
    column("arch", "ARCH", Side::Left, Keep::Wide, |node, _| node.arch.as_str().into()),
    column("labels", "LABELS", Side::Left, Keep::Wide, |node, _| {
        let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        labels.join(",").into()
    }),
    column("orphans", "ORPHANS", Side::Right, Keep::Wide, |node, _| Cell::number(node.orphans)),
    column("revision", "REVISION", Side::Right, Keep::Wide, |node, _| Cell::number(node.revision)),
    column("seen", "LAST SEEN", Side::Right, Keep::Until(5), |node, now| {
        let heard = last_seen(node, now);
        let text = heard.map_or_else(|| NONE.to_owned(), age);
        Cell::from(text).by(Key::Number(heard.map_or(u64::MAX, |heard| heard.as_secs())))
    }),
    column("reason", "REASON", Side::Left, Keep::Shorten(32), |node, _| reason(node).into()),
];

/// The nodes, one a line.
///
/// # Errors
/// The layout names a column that there is not.
pub(crate) fn table(nodes: &[Node], layout: &Layout, now: Timestamp) -> Result<String, String> {
    let text = draw(COLUMNS, nodes, layout, now)?;
    Ok(if nodes.is_empty() { "no node has joined the cluster".to_owned() } else { text })
}

fn share(node: &Node, part: fn(&Resources) -> u64, print: fn(u64) -> String) -> Cell {
    let (reserved, room) = (node.reserved.unwrap_or_default(), node.allocatable.unwrap_or_default());
    let (reserved, room) = (part(&reserved), part(&room));
    let full = percent(reserved, room);
    Cell::from(format!("{}/{}  {full}%", print(reserved), print(room))).by(Key::Number(full))
}

/// How long its agent was not heard, as far as the manager that answered knows. Of a node that is down at least since it
/// counts as such.
fn last_seen(node: &Node, now: Timestamp) -> Option<Duration> {
    let heard = node.last_heard.as_ref().map(span);
    match (node.status(), &node.status_time) {
        (NodeStatus::Down, Some(since)) => heard.max(Some(now.since(moment(since)))),
        _ => heard,
    }
}

/// Why it takes no tasks.
fn reason(node: &Node) -> String {
    let conditions = node.conditions.iter().map(|condition| condition.message.as_str());
    let all: Vec<&str> =
        [node.reason.as_str()].into_iter().chain(conditions).filter(|why| !why.is_empty()).collect();
    all.join("; ")
}

fn tint(node: &Node) -> Tint {
    match node.status() {
        NodeStatus::Down => Tint::Bad,
        NodeStatus::Ready if node.eligible && node.conditions.is_empty() => Tint::Good,
        _ => Tint::Warn,
    }
}

pub(super) fn status_word(node: &Node) -> String {
    word(node.status().as_str_name(), "NODE_STATUS")
}

/// Orders the nodes by their names.
pub(crate) fn by_name(nodes: &mut [Node]) {
    nodes.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
}

/// Orders `n2` before `n10`: the name without its last digits, then those as a number.
fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

fn status(node: &Node, now: Timestamp) -> String {
    let status = status_word(node);
    match (node.status(), &node.status_time) {
        (NodeStatus::Down, Some(since)) => format!("{status} {}", age(now.since(moment(since)))),
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::task::tests::NOW;
    use quorate_wire::api::NodeCondition;
    use quorate_wire::common::{duration, timestamp};

    #[test]
    fn nodes_show_how_full_they_are_and_why_they_are_down() {
        let resources = |cpu_millis, gib: u64| Some(Resources { cpu_millis, memory_bytes: gib << 30 });
        let up = Node {
            name: "n01".into(),
            status: NodeStatus::Ready.into(),
            eligible: true,
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            runtimes: [("docker".to_owned(), "28.2".to_owned()), ("process".to_owned(), String::new())]
                .into(),
            allocatable: resources(8_000, 32),
            reserved: resources(6_200, 21),
            tasks: 14,
            agent_version: "0.1.0".into(),
            last_heard: Some(duration(Duration::from_millis(1_400))),
            conditions: vec![NodeCondition {
                message: "the disk is full".into(),
                ..NodeCondition::default()
            }],
            ..Node::default()
        };
        let down = Node {
            name: "n02".into(),
            status: NodeStatus::Down.into(),
            reason: "unheard for 5s".into(),
            status_time: Some(timestamp(Timestamp::from_millis(NOW.as_millis() - 134_000))),
            ..Node::default()
        };
        let mut nodes = [down, up];
        by_name(&mut nodes);
        assert_eq!(
            table(&nodes, &Layout::plain(), NOW).unwrap(),
            "\
NAME  ZONE  STATUS   SCHED       TASKS  CPU (res/cap)  MEM (res/cap)     RUNTIMES        VERSION  LAST SEEN  REASON
n01   a     ready    eligible       14  6.2/8  77%     21GiB/32GiB  65%  docker,process  0.1.0           1s  the disk is full
n02   –     down 2m  ineligible      0  0/0  0%        0B/0B  0%         –               –               2m  unheard for 5s"
        );
        assert!(natural("n2") < natural("n10") && natural("n10") < natural("o1"));
        assert_eq!(table(&[], &Layout::plain(), NOW).unwrap(), "no node has joined the cluster");
        let narrow = Layout { width: Some(80), ..Layout::plain() };
        assert_eq!(
            table(&nodes, &narrow, NOW).unwrap().lines().next().unwrap(),
            "NAME  ZONE  STATUS   TASKS  CPU (res/cap)  MEM (res/cap)     REASON"
        );
    }
}
