//! Why no node takes a task, in words and counts.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::{Explanation, Filter, Node, NodeCondition, NodeStatus, Reason, quantity};

use crate::{group::Need, ledger::Ledger};

/// What the refused nodes had, gathered filter by filter.
#[derive(Default)]
struct Tally {
    down: u32,
    not_eligible: u32,
    pressed: u32,
    /// Their troubles, each in one node's words.
    troubles: BTreeMap<NodeCondition, String>,
    runtime: u32,
    missing: BTreeSet<&'static str>,
    constraint: u32,
    broken: BTreeSet<usize>,
    cpu: u32,
    best_cpu: u64,
    memory: u32,
    best_memory: u64,
    port: u32,
    taken: BTreeSet<(u16, bool)>,
    most: u32,
}

/// Counts each node for the first filter that it fails.
pub(crate) fn explain(ledger: &mut Ledger<'_>, need: &Need) -> Explanation {
    let total = u32::try_from(ledger.nodes.len()).unwrap_or(u32::MAX);
    let mut tally = Tally::default();
    for at in 0..total {
        judge(ledger, need, at, &mut tally);
    }
    Explanation { total, reasons: tally.reasons(need) }
}

fn judge(ledger: &mut Ledger<'_>, need: &Need, at: u32, tally: &mut Tally) {
    let index = at as usize;
    let node: &Node = ledger.nodes[index];
    let lacks = |kind: &&quorate_model::RuntimeKind| !node.facts.runtimes.contains_key(*kind);
    if node.status == NodeStatus::Down {
        tally.down += 1;
    } else if !node.eligible {
        tally.not_eligible += 1;
    } else if !node.takes_tasks() {
        tally.pressed += 1;
        for (condition, text) in &node.facts.conditions {
            tally.troubles.entry(*condition).or_insert_with(|| text.clone());
        }
    } else if need.class.runtimes.iter().any(|kind| lacks(&kind)) {
        tally.runtime += 1;
        tally.missing.extend(need.class.runtimes.iter().filter(lacks).map(|kind| kind.as_str()));
    } else if let Some(first) = need.class.constraints.iter().position(|c| !c.holds(node)) {
        tally.constraint += 1;
        tally.broken.insert(first);
    } else {
        judge_room(ledger, need, at, tally);
    }
}

fn judge_room(ledger: &mut Ledger<'_>, need: &Need, at: u32, tally: &mut Tally) {
    let (free, reserve) = (ledger.free[at as usize], need.reserve());
    if reserve.cpu_millis > free.cpu_millis {
        tally.cpu += 1;
        tally.best_cpu = tally.best_cpu.max(free.cpu_millis);
    } else if reserve.memory_bytes > free.memory_bytes {
        tally.memory += 1;
        tally.best_memory = tally.best_memory.max(free.memory_bytes);
    } else if let Some(port) = ledger.taken_port(at, &need.ports) {
        tally.port += 1;
        tally.taken.insert(port);
    } else {
        tally.most += u32::from(need.most.is_some());
    }
}

impl Tally {
    fn reasons(&self, need: &Need) -> Vec<Reason> {
        let reserve = need.reserve();
        let all = [
            (Filter::Ready, self.down + self.not_eligible, self.ready()),
            (Filter::Pressure, self.pressed, self.troubles()),
            (
                Filter::Runtime,
                self.runtime,
                format!(
                    "lacks the {} runtime",
                    self.missing.iter().copied().collect::<Vec<_>>().join(" or ")
                ),
            ),
            (Filter::Constraint, self.constraint, self.constraints(need)),
            (
                Filter::Cpu,
                self.cpu,
                format!(
                    "need {} CPU, best free {}",
                    quantity::cpu(reserve.cpu_millis),
                    quantity::cpu(self.best_cpu)
                ),
            ),
            (
                Filter::Memory,
                self.memory,
                format!(
                    "need {} of memory, best free {}",
                    quantity::memory(reserve.memory_bytes),
                    quantity::memory(self.best_memory)
                ),
            ),
            (Filter::Port, self.port, self.ports()),
            (Filter::MaxPerNode, self.most, at_most(need.most.map_or(0, |m| m.per_node))),
        ];
        all.into_iter()
            .filter(|(_, nodes, _)| *nodes > 0)
            .map(|(filter, nodes, detail)| Reason { filter, nodes, detail })
            .collect()
    }

    fn ready(&self) -> String {
        match (self.down, self.not_eligible) {
            (_, 0) => "is down".to_owned(),
            (0, _) => "takes no new tasks".to_owned(),
            (_, _) => "is down or takes no new tasks".to_owned(),
        }
    }

    fn troubles(&self) -> String {
        let each = self.troubles.iter().map(|(condition, text)| format!("{}: {text}", condition.as_str()));
        format!("takes no new tasks under {}", each.collect::<Vec<_>>().join("; "))
    }

    fn constraints(&self, need: &Need) -> String {
        let texts: Vec<String> = self
            .broken
            .iter()
            .filter_map(|at| need.class.constraints.get(*at))
            .map(ToString::to_string)
            .collect();
        format!("{} does not hold", texts.join(" or "))
    }

    fn ports(&self) -> String {
        let texts: Vec<String> = self
            .taken
            .iter()
            .map(|(port, udp)| if *udp { format!("{port}/udp") } else { port.to_string() })
            .collect();
        format!("port {} is taken", texts.join(" or "))
    }
}

fn at_most(per_node: u32) -> String {
    let tasks = if per_node == 1 { "task" } else { "tasks" };
    format!("runs {per_node} {tasks} of this job already (maxPerNode {per_node})")
}
