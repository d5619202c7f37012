//! Nodes.

use quorate_base::Timestamp;
use quorate_model::quantity;
use quorate_wire::api::{Node, NodeStatus};
use quorate_wire::common::moment;

use super::table::{Side, Table};
use super::words::{NONE, age, or_none, percent, word};

/// The nodes, one a line.
pub(crate) fn table(nodes: &[Node], now: Timestamp) -> String {
    if nodes.is_empty() {
        return "no node has joined the cluster".to_owned();
    }
    let mut table = Table::new(&[
        ("NAME", Side::Left),
        ("ZONE", Side::Left),
        ("STATUS", Side::Left),
        ("SCHED", Side::Left),
        ("TASKS", Side::Right),
        ("CPU (res/cap)", Side::Left),
        ("MEM (res/cap)", Side::Left),
        ("RUNTIMES", Side::Left),
        ("VERSION", Side::Left),
        ("", Side::Left),
    ]);
    for node in by_name(nodes) {
        let (reserved, room) = (node.reserved.unwrap_or_default(), node.allocatable.unwrap_or_default());
        let share = |part: u64, whole: u64, print: fn(u64) -> String| {
            format!("{}/{}  {}%", print(part), print(whole), percent(part, whole))
        };
        let runtimes: Vec<&str> = node.runtimes.keys().map(String::as_str).collect();
        table.row([
            node.name.clone(),
            node.labels.get("zone").cloned().unwrap_or_else(|| NONE.to_owned()),
            status(node, now),
            if node.eligible { "eligible" } else { "ineligible" }.to_owned(),
            node.tasks.to_string(),
            share(reserved.cpu_millis, room.cpu_millis, quantity::cpu),
            share(reserved.memory_bytes, room.memory_bytes, quantity::memory),
            or_none(&runtimes.join(",")),
            or_none(&node.agent_version),
            node.reason.clone(),
        ]);
    }
    table.to_string()
}

/// The nodes, ordered by their names.
pub(crate) fn by_name(nodes: &[Node]) -> Vec<&Node> {
    let mut sorted: Vec<&Node> = nodes.iter().collect();
    sorted.sort_by_key(|node| natural(&node.name));
    sorted
}

/// Orders `n2` before `n10`: the name without its last digits, then those as a number.
fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

fn status(node: &Node, now: Timestamp) -> String {
    let status = word(node.status().as_str_name(), "NODE_STATUS");
    match (node.status(), &node.status_time) {
        (NodeStatus::Down, Some(since)) => format!("{status} {}", age(now.since(moment(since)))),
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::task::tests::NOW;
    use quorate_wire::common::{Resources, timestamp};

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
            ..Node::default()
        };
        let down = Node {
            name: "n02".into(),
            status: NodeStatus::Down.into(),
            reason: "unheard for 5s".into(),
            status_time: Some(timestamp(Timestamp::from_millis(NOW.as_millis() - 134_000))),
            ..Node::default()
        };
        assert_eq!(
            table(&[down, up], NOW),
            "\
NAME  ZONE  STATUS   SCHED       TASKS  CPU (res/cap)  MEM (res/cap)     RUNTIMES        VERSION
n01   a     ready    eligible       14  6.2/8  77%     21GiB/32GiB  65%  docker,process  0.1.0
n02   –     down 2m  ineligible      0  0/0  0%        0B/0B  0%         –               –        unheard for 5s"
        );
        assert!(natural("n2") < natural("n10") && natural("n10") < natural("o1"));
        assert_eq!(table(&[], NOW), "no node has joined the cluster");
    }
}
