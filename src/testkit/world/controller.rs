//! Leaders: elections, leases, passes of the reconcilers. None of them remembers anything of an older one.

use std::{collections::BTreeMap, time::Duration};

use quorate_model::{Name, NodeId, NodeStatus, Settings, Term};
use quorate_orchestrator::{Tick, registry};
use quorate_state::{Command, State};

use super::{
    World,
    dispatcher::Link,
    queue::{Answer, Event},
};
use crate::{counters::Sometimes, generate};

/// How often a leader looks at its leases, in milliseconds.
const LEASE_CHECK_MS: u64 = 250;
/// How soon some worlds give up the tasks of a lost node.
const ORPHAN_AFTER: Duration = Duration::from_secs(10);

/// A manager that leads, or still believes so.
pub struct Leader {
    /// Its term.
    pub term: Term,
    /// Since when it leads.
    pub(super) since: u64,
    /// The last state it saw before it was cut off; `None` = it leads.
    pub(super) stale: Option<State>,
    /// Commands of its plan that are on their way.
    busy: usize,
    pass_due: Option<u64>,
    pub(super) dispatch_due: bool,
    /// Last word of each agent.
    pub(super) heard: BTreeMap<usize, u64>,
    pub(super) links: BTreeMap<usize, Link>,
    /// Number of the last assignment set per agent, over all its sessions with this leader.
    pub(super) numbers: BTreeMap<usize, u64>,
}

impl Leader {
    fn new(term: Term, since: u64) -> Self {
        Self {
            term,
            since,
            stale: None,
            busy: 0,
            pass_due: None,
            dispatch_due: false,
            heard: BTreeMap::new(),
            links: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }

    /// Whether it really leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.stale.is_none()
    }
}

impl World {
    /// The one that really leads.
    pub(super) fn leader(&self) -> Option<&Leader> {
        self.leaders.iter().find(|l| l.leads() && l.term == self.term)
    }

    pub(super) fn leader_of(&mut self, term: Term) -> Option<&mut Leader> {
        self.leaders.iter_mut().find(|l| l.term == term)
    }

    /// What a leader of that term sees.
    pub(super) fn view(&mut self, term: Term) -> State {
        let stale = self.leader_of(term).and_then(|l| l.stale.clone());
        stale.unwrap_or_else(|| self.state.clone())
    }

    pub(super) fn elect(&mut self) {
        if self.leader().is_some() {
            return;
        }
        self.term = Term(self.term.0 + self.rng.between(1, 2));
        let term = self.term;
        self.torn = false;
        self.journal.calm_since = Some(self.now);
        if self.entries == 0 {
            self.choose_settings(term);
        }
        self.leaders.push(Leader::new(term, self.now));
        self.ask_pass(term, 1);
        self.at(LEASE_CHECK_MS, Event::Lease { term });
    }

    /// In some worlds lost nodes are given up within a run, and little or no history is kept.
    fn choose_settings(&mut self, term: Term) {
        let orphan_after = if self.rng.chance(0.5) { ORPHAN_AFTER } else { Settings::default().orphan_after };
        let task_history = generate::pick(&mut self.rng, &[5, 1, 0], 5);
        let settings = Settings { orphan_after, task_history, ..Settings::default() };
        self.propose(term, 1, Command::UpdateSettings { settings }, Answer::Controller);
    }

    /// The leader dies, or is cut off and goes on for a while without knowing.
    pub(super) fn lose_leader(&mut self, cut_off: bool) {
        let Some(term) = self.leader().map(|l| l.term) else { return };
        let view = self.state.clone();
        self.journal.calm_since = None;
        let busy = self.leader_of(term).is_some_and(|l| l.busy > 0);
        self.counters.note_if(busy, Sometimes::LeaderChangedMidPlan);
        if cut_off {
            if let Some(leader) = self.leader_of(term) {
                leader.stale = Some(view);
                leader.busy = 0;
            }
            self.ask_pass(term, 5);
            let knows = self.rng.between(200, 3_000);
            self.at(knows, Event::StepDown { term });
        } else {
            self.step_down(term);
        }
        let gap = self.rng.between(50, 2_500);
        self.at(gap, Event::Elect);
    }

    pub(super) fn step_down(&mut self, term: Term) {
        self.leaders.retain(|l| l.term != term);
        for agent in 0..self.agents.len() {
            let (session, conn) = (self.agents[agent].session, self.agents[agent].conn);
            if session == Some(term) && conn != 0 {
                let notices = self.rng.between(1, 200);
                self.at(notices, Event::Broken { agent, conn });
            }
        }
    }

    /// The leader's controller restarts in its term and forgets what it has on the way.
    pub(super) fn forget_plan(&mut self) {
        let Some(term) = self.leader().map(|l| l.term) else { return };
        self.journal.calm_since = Some(self.now);
        let busy = self.leader_of(term).map_or(0, |l| std::mem::take(&mut l.busy));
        self.counters.note_if(busy > 0, Sometimes::AmnesiaPlanned);
        self.ask_pass(term, 1);
    }

    /// Asks for a pass in at most `delay`; several wishes make one pass.
    pub(super) fn ask_pass(&mut self, term: Term, delay: u64) {
        let at = self.now + delay;
        let Some(leader) = self.leader_of(term) else { return };
        if leader.pass_due.is_none_or(|due| at < due) {
            leader.pass_due = Some(at);
            self.at(delay, Event::Pass { term });
        }
    }

    pub(super) fn pass(&mut self, term: Term) {
        let now = self.now;
        let Some(leader) = self.leader_of(term) else { return };
        if leader.pass_due.is_some_and(|due| due > now) {
            return;
        }
        leader.pass_due = None;
        if leader.busy > 0 {
            return;
        }
        let stale = leader.stale.is_some();
        let view = self.view(term);
        let overdue = self.overdue(term, &view);
        let tick = Tick { now: self.leader_clock(term), overdue: &overdue };
        let outcomes: Vec<_> = registry().iter().map(|r| r.reconcile(&view, &tick)).collect();
        let commands: Vec<Command> = outcomes.iter().flat_map(|o| o.commands.clone()).collect();
        self.counters.note_if(stale && !commands.is_empty(), Sometimes::CutOffLeaderPlanned);
        if let Some(leader) = self.leader_of(term) {
            leader.busy = commands.len();
        }
        if let Some(wake) = outcomes.iter().filter_map(|o| o.wake_at).min() {
            let delay = wake.as_millis().saturating_sub(tick.now.as_millis());
            self.ask_pass(term, delay.max(1));
        }
        let delay = self.rng.between(2, 40);
        self.line(|| format!("{term:?} plans for in {delay} ms: {commands:?}"));
        for command in commands {
            self.propose(term, delay, command, Answer::Controller);
        }
    }

    pub(super) fn plan_answered(&mut self, term: Term) {
        if let Some(leader) = self.leader_of(term) {
            leader.busy = leader.busy.saturating_sub(1);
        }
    }

    pub(super) fn watch_leases(&mut self, term: Term) {
        let view = self.view(term);
        if self.leader_of(term).is_none() {
            return;
        }
        if !self.overdue(term, &view).is_empty() {
            self.ask_pass(term, 1);
        }
        self.close_silent_sessions(term, &view);
        self.at(LEASE_CHECK_MS, Event::Lease { term });
    }

    /// Ready nodes that this leader has not heard for a lease; each has a whole one from its election.
    fn overdue(&self, term: Term, view: &State) -> Vec<NodeId> {
        let Some(leader) = self.leaders.iter().find(|l| l.term == term) else { return Vec::new() };
        let lease = view.settings().node_lease.as_millis() as u64;
        let lost = |name: &Name| {
            let heard = self.agents.iter().position(|a| a.name == *name).and_then(|a| leader.heard.get(&a));
            self.now > heard.copied().unwrap_or(0).max(leader.since) + lease
        };
        view.nodes().filter(|n| n.status == NodeStatus::Ready && lost(&n.name)).map(|n| n.id).collect()
    }
}
