//! Commands on nodes.

use std::sync::Arc;

use quorate_model::{Name, Node, NodeFacts, NodeId, NodeStatus, Revision, TaskState, TaskStatus};

use crate::{Change, Event, Object, Receipt, Rejection, State, apply::task, tables::event};

/// An agent opened a session. A name is free when nobody has it, when the same agent
/// comes back, or when its holder is down (a machine with an emptied disk).
pub(super) fn register(
    state: &mut State,
    at: Revision,
    name: &Name,
    agent: &str,
    facts: &Arc<NodeFacts>,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    facts.validate().map_err(Rejection::Invalid)?;
    let now = state.now();
    let Some(old) = state.node_named(name).cloned() else {
        let id = NodeId(state.meta.next_node);
        state.meta.next_node += 1;
        let node = state.put_node(Node {
            id,
            name: name.clone(),
            agent: agent.to_owned(),
            facts: (**facts).clone(),
            status: NodeStatus::Ready,
            reason: String::new(),
            eligible: true,
            status_since: now,
            created: at,
            changed: at,
        });
        events.push(event(at, Change::Created, Object::Node(node)));
        return Ok(Receipt::Node { id });
    };
    let replaced = old.agent != agent;
    if replaced && old.status == NodeStatus::Ready {
        return Err(Rejection::NodeNameTaken { name: name.clone() });
    }
    if !replaced && old.status == NodeStatus::Ready && old.facts == **facts {
        return Ok(Receipt::Node { id: old.id });
    }
    let since = if old.status == NodeStatus::Ready { old.status_since } else { now };
    let node = state.put_node(Node {
        agent: agent.to_owned(),
        facts: (**facts).clone(),
        status: NodeStatus::Ready,
        reason: String::new(),
        status_since: since,
        changed: at,
        ..(*old).clone()
    });
    events.push(event(at, Change::Updated, Object::Node(node)));
    if replaced {
        lose_tasks(state, at, old.id, events);
    }
    Ok(Receipt::Node { id: old.id })
}

/// Another agent took the node's name: it cannot know the old one's tasks, so they are gone.
fn lose_tasks(state: &mut State, at: Revision, node: NodeId, events: &mut Vec<Event>) {
    let lost: Vec<_> = state.tasks_on(node).filter(|t| !t.status.state.is_terminal()).cloned().collect();
    for old in lost {
        let status = TaskStatus { state: TaskState::Orphaned, at: state.now(), ..old.status.clone() }
            .with_reason("the node came back with another agent, without its tasks");
        task::write_status(state, at, &old, status, events);
    }
}

pub(super) fn set_status(
    state: &mut State,
    at: Revision,
    id: NodeId,
    status: NodeStatus,
    reason: &str,
    events: &mut Vec<Event>,
) -> Result<Receipt, Rejection> {
    let Some(old) = state.node(id).cloned() else {
        return Err(Rejection::Gone { what: "node", id: u64::from(id.0) });
    };
    if old.status == status {
        return Ok(Receipt::Done);
    }
    let node = state.put_node(Node {
        status,
        reason: quorate_model::task::cut(reason, quorate_model::task::MAX_REASON).to_owned(),
        status_since: state.now(),
        changed: at,
        ..(*old).clone()
    });
    events.push(event(at, Change::Updated, Object::Node(node)));
    Ok(Receipt::Done)
}
