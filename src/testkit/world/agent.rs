//! Agents: sessions, obedience, what survives a crash.

use std::collections::{BTreeMap, BTreeSet};

use quorate_base::rand::Rng;
use quorate_model::{JobId, Name, NodeFacts, Slot, TaskId, TaskState, TaskStatus, Term};
use quorate_state::Report;

use super::{
    World,
    queue::{Body, Downlink, Event, Order, Uplink},
};
use crate::{counters::Sometimes, generate};

/// Period of heartbeats, in milliseconds.
const BEAT_MS: u64 = 1_000;
/// Silence after which an agent gives its session up, in milliseconds.
const SILENCE_MS: u64 = 3_000;

/// A machine with its agent.
pub struct Agent {
    /// Name of the node.
    pub name: Name,
    /// What it says of its machine.
    pub facts: NodeFacts,
    /// Number of its data directory; another one is another agent.
    pub disk: u64,
    /// Whether the agent's process runs.
    pub up: bool,
    /// Whether it reaches the managers.
    pub linked: bool,
    /// Since when it is both, in milliseconds; meaningless while it is not.
    pub healthy_since: u64,
    /// Grows with each start.
    pub(super) life: u64,
    /// Its connection; 0 = none.
    pub(super) conn: u64,
    pub(super) session: Option<Term>,
    pub(super) welcomed: bool,
    heard: u64,
    /// Number of the set it has applied in this session; `None` = it waits for a complete one.
    applied: Option<u64>,
    /// Durable: the newest words it obeyed.
    pub fence: (Term, u64),
    /// Durable: what it was told to run, with what it saw.
    pub held: BTreeMap<TaskId, Held>,
    /// The runtime's: these survive the agent.
    pub containers: BTreeMap<TaskId, Container>,
}

/// A task in an agent's ledger.
pub struct Held {
    /// What the leader wants.
    pub desired: TaskState,
    /// What the agent saw.
    pub status: TaskStatus,
    /// Number of the newest acknowledged report.
    pub acked: u64,
    pub(super) batch: bool,
}

/// A container.
#[derive(Debug, Clone)]
pub struct Container {
    /// Whose.
    pub job: JobId,
    /// Which replica.
    pub slot: Slot,
    /// How far it is.
    pub phase: TaskState,
    /// Whether its node was marked down while it existed: a second copy may run elsewhere.
    pub forsaken: bool,
    /// Only the step with this number is still meant.
    pub(super) token: u64,
}

impl Container {
    /// One that runs.
    #[cfg(test)]
    pub(crate) fn running(job: JobId, slot: Slot) -> Self {
        Self { job, slot, phase: TaskState::Running, forsaken: false, token: 0 }
    }
}

impl Agent {
    /// A machine that was never started.
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        let name = Name::parse("node", &format!("n{index}"));
        Self {
            name: name.unwrap_or_else(|_| Name::default_namespace()),
            facts: generate::facts(rng),
            disk: 1,
            up: false,
            linked: true,
            healthy_since: 0,
            life: 0,
            conn: 0,
            session: None,
            welcomed: false,
            heard: 0,
            applied: None,
            fence: (Term(0), 0),
            held: BTreeMap::new(),
            containers: BTreeMap::new(),
        }
    }

    /// Identity of its data directory.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}-{}", self.name, self.disk)
    }

    /// Whether the leader can hear it.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.up && self.linked
    }

    fn hang_up(&mut self) {
        self.conn = 0;
        self.session = None;
        self.welcomed = false;
        self.applied = None;
    }
}

impl World {
    pub(super) fn start_agent(&mut self, index: usize) {
        let now = self.now;
        let agent = &mut self.agents[index];
        if agent.up {
            return;
        }
        agent.up = true;
        agent.life += 1;
        agent.healthy_since = now;
        let life = agent.life;
        self.at(1, Event::Dial { agent: index, life });
        self.at(BEAT_MS, Event::Beat { agent: index, life });
        self.adopt(index);
    }

    pub(super) fn crash_agent(&mut self, index: usize) {
        self.agents[index].up = false;
        self.agents[index].hang_up();
    }

    /// The disk is emptied: ledger and fence are gone, containers stay.
    pub(super) fn empty_disk(&mut self, index: usize) {
        self.crash_agent(index);
        let agent = &mut self.agents[index];
        agent.disk += 1;
        agent.held.clear();
        agent.fence = (Term(0), 0);
        self.counters.note(Sometimes::DiskEmptied);
    }

    pub(super) fn link(&mut self, index: usize, linked: bool) {
        let agent = &mut self.agents[index];
        if linked && !agent.linked {
            agent.healthy_since = self.now;
        }
        agent.linked = linked;
    }

    pub(super) fn dial(&mut self, index: usize, life: u64) {
        let agent = &self.agents[index];
        if !agent.up || agent.life != life || agent.conn != 0 {
            return;
        }
        let reachable = agent.linked && !self.leaders.is_empty();
        if !reachable {
            let retry = self.rng.between(200, 800);
            self.at(retry, Event::Dial { agent: index, life });
            return;
        }
        // It may reach one that no longer leads and does not know it.
        let cut_off = self.leaders.iter().find(|l| !l.leads()).map(|l| l.term);
        let real = self.leader().map(|l| l.term);
        let term = match (real, cut_off) {
            (Some(real), Some(cut_off)) => {
                if self.rng.chance(0.4) {
                    cut_off
                } else {
                    real
                }
            }
            (one, other) => one.or(other).unwrap_or(self.term),
        };
        self.journal.connections += 1;
        let conn = self.journal.connections;
        let now = self.now;
        let agent = &mut self.agents[index];
        (agent.conn, agent.session, agent.heard) = (conn, Some(term), now);
        self.tell(index, Uplink::Hello);
    }

    pub(super) fn broken(&mut self, index: usize, conn: u64) {
        if self.agents[index].conn == conn && conn != 0 {
            self.redial(index, 1, 300);
        }
    }

    fn redial(&mut self, index: usize, least: u64, most: u64) {
        self.agents[index].hang_up();
        let life = self.agents[index].life;
        let delay = self.rng.between(least, most);
        self.at(delay, Event::Dial { agent: index, life });
    }

    pub(super) fn beat(&mut self, index: usize, life: u64) {
        let agent = &self.agents[index];
        if !agent.up || agent.life != life {
            return;
        }
        self.at(BEAT_MS, Event::Beat { agent: index, life });
        let agent = &self.agents[index];
        if agent.conn == 0 {
            return;
        }
        if self.now > agent.heard + SILENCE_MS {
            self.redial(index, 1, 300);
        } else if agent.welcomed {
            let applied = agent.applied.unwrap_or(0);
            self.tell(index, Uplink::Heartbeat { applied });
            self.report_unacked(index);
        }
    }

    /// Sends words up: late, out of order, sometimes twice.
    pub(super) fn tell(&mut self, index: usize, words: Uplink) {
        let agent = &self.agents[index];
        let (Some(term), conn, true) = (agent.session, agent.conn, agent.linked) else { return };
        let copies = if self.rng.chance(0.05) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.rng.between(1, 60);
            self.at(delay, Event::ToLeader { term, agent: index, conn, words: words.clone() });
        }
    }

    /// Every status that is not acknowledged.
    pub(super) fn report_unacked(&mut self, index: usize) {
        let unacked = self.agents[index].held.iter().filter(|(_, h)| h.status.seq > h.acked);
        let reports: Vec<Report> =
            unacked.map(|(task, h)| Report { task: *task, status: h.status.clone() }).collect();
        if !reports.is_empty() {
            self.tell(index, Uplink::Statuses(reports));
        }
    }

    pub(super) fn agent_hears(&mut self, index: usize, words: Downlink) {
        let agent = &mut self.agents[index];
        if !agent.healthy() || words.conn != agent.conn {
            return;
        }
        if words.term < agent.fence.0 {
            self.counters.note(Sometimes::AssignmentRefused);
            self.redial(index, 50, 500);
            return;
        }
        if !agent.welcomed && !matches!(words.body, Body::Welcome | Body::Refusal) {
            // The welcome was lost: a session without its beginning is none.
            self.redial(index, 1, 300);
            return;
        }
        agent.heard = self.now;
        match words.body {
            Body::Echo => {}
            Body::Refusal => self.redial(index, 500, 1_500),
            Body::Acks(marks) => {
                for (task, seq) in marks {
                    if let Some(held) = agent.held.get_mut(&task) {
                        held.acked = held.acked.max(seq);
                    }
                }
            }
            Body::Welcome => {
                agent.welcomed = true;
                if words.term > agent.fence.0 {
                    agent.fence = (words.term, 0);
                }
                self.report_unacked(index);
            }
            Body::Set { applies_to, results_in, orders, removals } => {
                self.take_set(index, words.term, (applies_to, results_in), &orders, &removals);
            }
        }
    }

    fn take_set(
        &mut self,
        index: usize,
        term: Term,
        (applies_to, results_in): (u64, u64),
        orders: &[Order],
        removals: &[TaskId],
    ) {
        let agent = &mut self.agents[index];
        if (term, results_in) <= agent.fence {
            self.counters.note(Sometimes::AssignmentRefused);
            return;
        }
        if applies_to != 0 && agent.applied != Some(applies_to) {
            self.counters.note(Sometimes::GapNoticed);
            agent.applied = None;
            self.tell(index, Uplink::Gap);
            return;
        }
        self.journal.obeys(&agent.identity(), (term, results_in));
        agent.fence = (term, results_in);
        agent.applied = Some(results_in);
        let mut gone: BTreeSet<TaskId> = removals.iter().copied().collect();
        if applies_to == 0 {
            let listed: BTreeSet<TaskId> = orders.iter().map(|o| o.task).collect();
            let known = agent.held.keys().chain(agent.containers.keys());
            gone.extend(known.filter(|task| !listed.contains(task)));
        }
        for task in gone {
            self.drop_task(index, task);
        }
        for order in orders {
            self.obey(index, *order);
        }
    }
}
