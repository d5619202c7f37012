//! Commands on nodes.

use std::sync::Arc;

use quorate_model::{NodeFacts, NodeId, NodeStatus, Resources, TaskState};
use quorate_state::{Command, Receipt, Rejection, lab::facts};

use crate::{name, refusal, running};

const ROOM: Resources = Resources { cpu_millis: 1000, memory_bytes: 1 << 30 };

fn register(agent: &str, facts: NodeFacts) -> Command {
    Command::RegisterNode { name: name("n1"), agent: agent.to_owned(), facts: Arc::new(facts) }
}

fn down() -> Command {
    Command::SetNodeStatus { node: NodeId(0), status: NodeStatus::Down, reason: "lost".to_owned() }
}

#[test]
fn registering_again_changes_nothing_unless_the_facts_did() {
    let (mut lab, _, _) = running();
    let same = lab.apply(register("agent-1", facts(ROOM)));
    assert_eq!((same.outcome, same.events.len()), (Ok(Receipt::Node { id: NodeId(0) }), 0));
    let more = Resources { cpu_millis: 2000, ..ROOM };
    let new = lab.apply(register("agent-1", facts(more)));
    assert_eq!(new.events.len(), 1);
    assert_eq!(lab.state.node(NodeId(0)).unwrap().facts.capacity, more);
}

#[test]
fn a_name_belongs_to_its_agent_while_that_is_ready() {
    let (mut lab, _, task) = running();
    let thief = refusal(&mut lab, register("agent-9", facts(ROOM)));
    assert!(matches!(thief, Rejection::NodeNameTaken { .. }));
    lab.done(down()).unwrap();
    assert_eq!(lab.done(register("agent-9", facts(ROOM))).unwrap(), Receipt::Node { id: NodeId(0) });
    let lost = lab.state.task(task).unwrap();
    assert_eq!(lost.status.state, TaskState::Orphaned, "the new agent does not know the old one's tasks");
    assert_eq!(lab.state.node(NodeId(0)).unwrap().agent, "agent-9");
}

#[test]
fn an_agent_that_returns_keeps_its_tasks() {
    let (mut lab, _, task) = running();
    lab.done(down()).unwrap();
    assert_eq!(lab.state.node(NodeId(0)).unwrap().reason, "lost");
    lab.done(register("agent-1", facts(ROOM))).unwrap();
    let node = lab.state.node(NodeId(0)).unwrap();
    assert_eq!((node.status, node.reason.as_str()), (NodeStatus::Ready, ""));
    assert_eq!(lab.state.task(task).unwrap().status.state, TaskState::Running);
}

#[test]
fn a_status_is_written_once() {
    let (mut lab, _, _) = running();
    assert_eq!(lab.apply(down()).events.len(), 1);
    assert_eq!(lab.apply(down()).events.len(), 0);
    let unknown = Command::SetNodeStatus { node: NodeId(9), status: NodeStatus::Down, reason: String::new() };
    assert!(matches!(refusal(&mut lab, unknown), Rejection::Gone { what: "node", id: 9 }));
}

#[test]
fn facts_beyond_their_bounds_are_refused() {
    let (mut lab, _, _) = running();
    let mut bloated = facts(ROOM);
    bloated.hostname = "x".repeat(300);
    bloated.labels = (0..100).map(|n| (format!("k{n}"), String::new())).collect();
    let refused = refusal(&mut lab, register("agent-1", bloated));
    assert!(refused.to_string().contains("hostname") && refused.to_string().contains("labels"), "{refused}");
}
