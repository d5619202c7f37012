//! One cluster, one queue, one seed.
//!
//! A run has two phases. In the first, faults and users do what the seed says. Then everything is
//! healed, users fall silent, and the cluster must come to rest. Invariants are checked after every
//! applied entry and every change of a container; some more at rest.

mod agent;
mod controller;
mod dispatcher;
mod faults;
mod journal;
mod log;
mod observe;
mod queue;
mod runtime;
mod users;

use quorate_base::{rand::Rng, time::Timestamp};
use quorate_model::{Task, Term};
use quorate_state::State;

use crate::{
    counters::{Counters, Sometimes},
    invariants::{self, Scene},
    trace::Trace,
};

pub use agent::{Agent, Container, Held};
pub use controller::Leader;
pub use faults::Profile;
pub use journal::Journal;
use queue::{Event, Queue};
use users::Users;

/// Wall time at the start of every run.
pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Length of the phase with faults, in milliseconds.
const SAFETY_MS: u64 = 60_000;
/// Time to come to rest after the heal, in milliseconds: leases, back-off of 8 s, a few roll-outs.
const LIVENESS_MS: u64 = 90_000;
/// Machines of a world.
const AGENTS: usize = 5;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// Simulated milliseconds since its start.
    pub at_ms: u64,
    /// Which invariant.
    pub invariant: &'static str,
    /// What was seen.
    pub detail: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, at_ms, invariant, detail } = self;
        write!(
            f,
            "seed {seed} breaks {invariant:?} after {at_ms} simulated ms: {detail}\n\
             reproduce: QUORATE_SEED={seed} cargo nextest run -p quorate-testkit one_seed --no-capture"
        )
    }
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Hash of all events and of the final state.
    pub trace: u64,
    /// Applied log entries.
    pub entries: u64,
    /// Events of the queue.
    pub events: u64,
    /// What the run has seen.
    pub counters: Counters,
}

/// The simulated cluster.
pub struct World {
    seed: u64,
    /// Milliseconds since the start.
    now: u64,
    rng: Rng,
    profile: Profile,
    queue: Queue,
    /// The state of everybody who follows the log.
    state: State,
    /// Raft's term; the leader of it is in `leaders` once elected.
    term: Term,
    /// Whether a proposal of this term was lost with its leader.
    torn: bool,
    leaders: Vec<Leader>,
    agents: Vec<Agent>,
    users: Users,
    journal: Journal,
    counters: Counters,
    trace: Trace,
    events: u64,
    entries: u64,
    failure: Option<Failure>,
    story: Option<Vec<String>>,
}

/// Runs a seed to its end.
///
/// # Errors
/// The first broken invariant.
pub fn run(seed: u64) -> Result<Summary, Failure> {
    World::new(seed, None).run().1
}

/// Runs a seed and tells its events and applied commands, line by line.
pub fn tell(seed: u64) -> (Vec<String>, Result<Summary, Failure>) {
    let (story, result) = World::new(seed, Some(Vec::new())).run();
    (story.unwrap_or_default(), result)
}

impl World {
    fn new(seed: u64, story: Option<Vec<String>>) -> Self {
        let mut rng = Rng::seeded(seed);
        let profile = Profile::draw(&mut rng);
        let agents = (0..AGENTS).map(|index| Agent::new(index, &mut rng)).collect();
        let mut world = Self {
            seed,
            now: 0,
            rng,
            profile,
            queue: Queue::default(),
            state: State::new(),
            term: Term(0),
            torn: false,
            leaders: Vec::new(),
            agents,
            users: Users::default(),
            journal: Journal::default(),
            counters: Counters::default(),
            trace: Trace::default(),
            events: 0,
            entries: 0,
            failure: None,
            story,
        };
        world.begin();
        world
    }

    fn run(mut self) -> (Option<Vec<String>>, Result<Summary, Failure>) {
        while let (Some(event), None) = (self.next_event(), &self.failure) {
            self.handle(event);
        }
        if self.failure.is_none() {
            self.rest();
        }
        let story = self.story.take();
        match self.failure.take() {
            Some(failure) => (story, Err(failure)),
            None => (story, Ok(self.summary())),
        }
    }

    /// Adds a line to the story, where one is told.
    fn line(&mut self, text: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>7} {}", self.now, text()));
        }
    }

    fn begin(&mut self) {
        self.at(0, Event::Elect);
        for agent in 0..AGENTS {
            let delay = self.rng.between(10, 2_000);
            self.at(delay, Event::AgentStart { agent });
        }
        self.at(50, Event::User);
        self.at(SAFETY_MS / 20, Event::Fault);
        self.at(SAFETY_MS, Event::Heal);
    }

    fn next_event(&mut self) -> Option<Event> {
        let (at, event) = self.queue.pop()?;
        if at > SAFETY_MS + LIVENESS_MS {
            return None;
        }
        self.now = at;
        self.events += 1;
        self.trace.word(at);
        self.trace.word(event.number());
        Some(event)
    }

    /// Puts an event `delay` milliseconds ahead.
    fn at(&mut self, delay: u64, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    fn healed(&self) -> bool {
        self.now >= SAFETY_MS
    }

    /// True time on the wall.
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(START.as_millis() + self.now)
    }

    fn handle(&mut self, event: Event) {
        if !matches!(event, Event::Commit { .. }) {
            self.line(|| format!("{event:?}"));
        }
        match event {
            Event::Commit { term, envelope, answer } => self.commit(term, &envelope, answer),
            Event::Elect => self.elect(),
            Event::StepDown { term } => self.step_down(term),
            Event::Pass { term } => self.pass(term),
            Event::Lease { term } => self.watch_leases(term),
            Event::Dispatch { term } => self.dispatch(term),
            Event::ToLeader { term, agent, conn, words } => self.leader_hears(term, agent, conn, words),
            Event::ToAgent { agent, words } => self.agent_hears(agent, words),
            Event::Dial { agent, life } => self.dial(agent, life),
            Event::Broken { agent, conn } => self.broken(agent, conn),
            Event::Beat { agent, life } => self.beat(agent, life),
            Event::Work { agent, task, token } => self.work(agent, task, token),
            Event::AgentStart { agent } => self.start_agent(agent),
            Event::LinkUp { agent } => self.link(agent, true),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
            Event::User => self.user_acts(),
            Event::Send { request } => self.send_request(request),
        }
    }

    /// Checks what must hold of the machines at any time.
    fn check_scene(&mut self) {
        let broken = invariants::always(&self.scene());
        self.fail(broken);
    }

    /// Checks what must hold at rest.
    fn rest(&mut self) {
        let given_up = self.state.jobs().filter(|j| j.status.wants_tasks()).any(|job| {
            let last = |t: &Task| self.state.tasks_of_slot(job.id, t.slot).next_back().map(|l| l.id);
            self.state.tasks_of(job.id).any(|t| last(t) == Some(t.id) && !t.is_live())
        });
        self.counters.note_if(given_up, Sometimes::GivenUp);
        let broken = invariants::at_rest(&self.scene());
        self.fail(broken);
    }

    fn scene(&self) -> Scene<'_> {
        let leader = self.leader().map(|l| l.term);
        let Self { state, agents, journal, now, .. } = self;
        Scene { state, agents, journal, leader, now_ms: *now }
    }

    fn fail(&mut self, broken: Option<(&'static str, String)>) {
        if let (Some((invariant, detail)), None) = (broken, &self.failure) {
            self.failure = Some(Failure { seed: self.seed, at_ms: self.now, invariant, detail });
        }
    }

    fn summary(mut self) -> Summary {
        self.trace.text(&format!("{:?}", self.state.records().collect::<Vec<_>>()));
        Summary {
            trace: self.trace.value(),
            entries: self.entries,
            events: self.events,
            counters: self.counters,
        }
    }
}
