//! The leader's side of the sessions: a complete set, then chained increments.

use std::{collections::BTreeMap, sync::Arc};

use quorate_model::{JobKind, NodeId, NodeStatus, TaskId, TaskState, Term};
use quorate_state::{Applied, Command, Receipt, Report, State};

use super::{
    World,
    queue::{Answer, Body, Downlink, Event, Order, Uplink},
};

/// Time for a set to be applied and shown by a heartbeat, in milliseconds.
const ACK_MS: u64 = 500;

/// One agent's session with one leader.
pub(super) struct Link {
    conn: u64,
    /// Known once the registration is applied.
    node: Option<NodeId>,
    registering: bool,
    /// Last set that was sent, with its number; `None` = the complete one is due.
    sent: Option<(u64, BTreeMap<TaskId, TaskState>)>,
    sent_at: u64,
    /// Words of a connection arrive in order.
    last_at: u64,
}

impl World {
    pub(super) fn leader_hears(&mut self, term: Term, agent: usize, conn: u64, words: Uplink) {
        let now = self.now;
        let Some(leader) = self.leader_of(term) else { return };
        if matches!(words, Uplink::Hello) {
            let link = Link { conn, node: None, registering: false, sent: None, sent_at: now, last_at: now };
            leader.links.insert(agent, link);
        }
        let Some(link) = leader.links.get(&agent).filter(|link| link.conn == conn) else { return };
        // Only a registered session renews the lease: another agent of the same name must not keep the old one alive.
        if link.node.is_some() {
            leader.heard.insert(agent, now);
        }
        match words {
            Uplink::Hello => self.open_session(term, agent, conn),
            Uplink::Heartbeat { applied } => self.take_heartbeat(term, agent, applied),
            Uplink::Statuses(reports) => self.take_reports(term, agent, reports),
            Uplink::Gap => self.start_over(term, agent),
        }
    }

    /// The last set may be lost without a later one that shows the gap: the heartbeat shows it.
    fn take_heartbeat(&mut self, term: Term, agent: usize, applied: u64) {
        let now = self.now;
        self.say(term, agent, Body::Echo);
        let Some(link) = self.link_of(term, agent) else { return };
        let sent = link.sent.as_ref().map(|(number, _)| *number);
        if sent.is_some_and(|number| number != applied) && now > link.sent_at + ACK_MS {
            self.start_over(term, agent);
        }
    }

    /// The complete set is due.
    fn start_over(&mut self, term: Term, agent: usize) {
        if let Some(link) = self.link_of(term, agent) {
            link.sent = None;
        }
        self.ask_dispatch(term);
    }

    fn link_of(&mut self, term: Term, agent: usize) -> Option<&mut Link> {
        self.leader_of(term)?.links.get_mut(&agent)
    }

    /// Registers the node, or welcomes the agent at once where its record is as it says.
    fn open_session(&mut self, term: Term, agent: usize, conn: u64) {
        let view = self.view(term);
        let known = view.node_named(&self.agents[agent].name).filter(|node| {
            node.status == NodeStatus::Ready
                && node.agent == self.agents[agent].identity()
                && node.facts == self.agents[agent].facts
        });
        match known.map(|node| node.id) {
            Some(node) => self.welcome(term, agent, node),
            None => self.register(term, agent, conn),
        }
    }

    fn register(&mut self, term: Term, agent: usize, conn: u64) {
        let command = Command::RegisterNode {
            name: self.agents[agent].name.clone(),
            agent: self.agents[agent].identity(),
            facts: Arc::new(self.agents[agent].facts.clone()),
        };
        if let Some(link) = self.link_of(term, agent) {
            link.registering = true;
        }
        let delay = self.rng.between(2, 30);
        self.propose(term, delay, command, Answer::Session { agent, conn });
    }

    pub(super) fn session_answered(&mut self, term: Term, agent: usize, conn: u64, applied: &Applied) {
        let Some(link) = self.link_of(term, agent).filter(|l| l.conn == conn) else { return };
        link.registering = false;
        if let Ok(Receipt::Node { id }) = applied.outcome {
            if link.node.is_none() {
                self.welcome(term, agent, id);
            }
        } else {
            self.say(term, agent, Body::Refusal);
            if let Some(leader) = self.leader_of(term) {
                leader.links.remove(&agent);
            }
        }
    }

    fn welcome(&mut self, term: Term, agent: usize, node: NodeId) {
        let now = self.now;
        if let Some(leader) = self.leader_of(term) {
            leader.heard.insert(agent, now);
        }
        if let Some(link) = self.link_of(term, agent) {
            link.node = Some(node);
        }
        self.say(term, agent, Body::Welcome);
        self.ask_dispatch(term);
    }

    fn take_reports(&mut self, term: Term, agent: usize, reports: Vec<Report>) {
        let Some(node) = self.link_of(term, agent).and_then(|l| l.node) else { return };
        let marks = reports.iter().map(|r| (r.task, r.status.seq)).collect();
        let delay = self.rng.between(2, 30);
        self.propose(
            term,
            delay,
            Command::ReportStatuses { node, reports },
            Answer::Reports { agent, marks },
        );
    }

    /// Statuses are acknowledged after their commit, also those that nobody wanted any more.
    pub(super) fn acknowledge(&mut self, term: Term, agent: usize, marks: Vec<(TaskId, u64)>) {
        self.say(term, agent, Body::Acks(marks));
    }

    /// A session that outlives its lease is over: it must not register its node again.
    pub(super) fn close_silent_sessions(&mut self, term: Term, view: &State) {
        let (now, lease) = (self.now, view.settings().node_lease.as_millis() as u64);
        if let Some(leader) = self.leader_of(term) {
            let (heard, since) = (&leader.heard, leader.since);
            let silent = |agent: &usize| heard.get(agent).copied().unwrap_or(since) + lease <= now;
            leader.links.retain(|agent, link| link.node.is_none() || !silent(agent));
        }
    }

    pub(super) fn ask_dispatch(&mut self, term: Term) {
        let Some(leader) = self.leader_of(term) else { return };
        if !std::mem::replace(&mut leader.dispatch_due, true) {
            self.at(10, Event::Dispatch { term });
        }
    }

    pub(super) fn dispatch(&mut self, term: Term) {
        let view = self.view(term);
        let Some(leader) = self.leader_of(term) else { return };
        leader.dispatch_due = false;
        let open: Vec<(usize, u64, NodeId)> =
            leader.links.iter().filter_map(|(agent, l)| Some((*agent, l.conn, l.node?))).collect();
        for (agent, conn, node) in open {
            self.send_set(term, agent, node, &view);
            // Marked down while its session lives: a lease that ran out before the agent came back.
            let down = view.node(node).is_some_and(|n| n.status == NodeStatus::Down);
            if down && self.link_of(term, agent).is_some_and(|l| !l.registering) {
                self.register(term, agent, conn);
            }
        }
    }

    fn send_set(&mut self, term: Term, agent: usize, node: NodeId, view: &State) {
        let (set, now) = (wanted(view, node), self.now);
        let Some(leader) = self.leader_of(term) else { return };
        let Some(link) = leader.links.get_mut(&agent) else { return };
        let (applies_to, old) = link.sent.take().unwrap_or_default();
        let orders: Vec<Order> = set
            .iter()
            .filter(|(task, desired)| applies_to == 0 || old.get(task) != Some(desired))
            .filter_map(|(task, desired)| order(view, *task, *desired))
            .collect();
        let removals: Vec<TaskId> = old.keys().filter(|task| !set.contains_key(task)).copied().collect();
        if applies_to != 0 && orders.is_empty() && removals.is_empty() {
            link.sent = Some((applies_to, set));
            return;
        }
        let number = leader.numbers.entry(agent).or_default();
        *number += 1;
        let results_in = *number;
        link.sent = Some((results_in, set));
        link.sent_at = now;
        self.say(term, agent, Body::Set { applies_to, results_in, orders, removals });
    }

    /// Sends words down a connection: late, but in order.
    fn say(&mut self, term: Term, agent: usize, body: Body) {
        let delay = self.rng.between(1, 40);
        let now = self.now;
        let Some(link) = self.link_of(term, agent) else { return };
        link.last_at = link.last_at.max(now + delay);
        let (at, conn) = (link.last_at, link.conn);
        self.at(at - now, Event::ToAgent { agent, words: Downlink { conn, term, body } });
    }
}

/// What a node's agent must run or stop, and what ended there and is not forgotten yet.
fn wanted(view: &State, node: NodeId) -> BTreeMap<TaskId, TaskState> {
    view.tasks_on(node).map(|t| (t.id, t.desired)).collect()
}

fn order(view: &State, task: TaskId, desired: TaskState) -> Option<Order> {
    let record = view.task(task)?;
    let batch = matches!(view.spec_of(record)?.kind, JobKind::Batch { .. });
    let (observed, seq) = (record.status.state, record.status.seq);
    Some(Order { task, job: record.job, slot: record.slot, desired, observed, seq, batch })
}
