//! The log: what is proposed reaches it later, or never, or in another term.

use quorate_base::time::Timestamp;
use quorate_model::{Name, Term};
use quorate_state::{Actor, Applied, Command, Envelope, Position, apply};

use super::{
    World,
    queue::{Answer, Event},
};
use crate::{
    counters::Sometimes,
    invariants::{self, Step},
};

impl World {
    /// Sends a command of the control plane on its way into the log.
    pub(super) fn propose(&mut self, term: Term, delay: u64, command: Command, answer: Answer) {
        let envelope = Box::new(Envelope {
            proposed_at: self.leader_clock(term),
            fence: Some(term),
            actor: Actor::Manager(Name::default_namespace()),
            request: None,
            trace: None,
            command,
        });
        self.at(delay, Event::Commit { term, envelope, answer });
    }

    /// A leader's clock is off by up to two seconds, in each term by another amount.
    pub(super) fn leader_clock(&self, term: Term) -> Timestamp {
        let skew = term.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 4_000;
        Timestamp::from_millis(self.wall().as_millis() + skew - 2_000)
    }

    /// A proposal arrives.
    ///
    /// That of a dead leader is lost, or a majority had it before the election and it is committed in
    /// its own term, or it comes in through the new leader, where its fence must stop it. A log has no
    /// holes: once one of a term is lost, all later ones of that term are.
    pub(super) fn commit(&mut self, term: Term, envelope: &Envelope, answer: Answer) {
        let led = self.leader().is_some();
        if term == self.term && led {
            self.append(term, envelope, Some(answer));
        } else if term == self.term {
            self.torn |= self.rng.chance(0.4);
            if !self.torn {
                self.counters.note(Sometimes::OldTermCommitted);
                self.append(term, envelope, None);
            }
        } else if led && self.rng.chance(0.5) {
            self.append(self.term, envelope, Some(answer));
        }
    }

    fn append(&mut self, term: Term, envelope: &Envelope, answer: Option<Answer>) {
        let at = Position { term, index: self.state.applied().index.next() };
        let before = self.state.clone();
        let applied = apply(&mut self.state, at, envelope);
        self.entries += 1;
        self.line(|| format!("{at:?} {:?} => {:?}", envelope.command, applied.outcome));
        self.trace.word(at.index.0 << 1 | u64::from(applied.outcome.is_ok()));
        self.observe(&before, envelope, &applied);
        self.journal.record(self.now, envelope, &applied);
        let step = Step {
            before: &before,
            after: &self.state,
            at,
            envelope,
            applied: &applied,
            journal: &self.journal,
            agents: &self.agents,
            now_ms: self.now,
        };
        let broken = invariants::after_step(&step);
        self.fail(broken);
        // A dead leader does not learn that its entry was committed, nor does anyone who asked it.
        if let Some(answer) = answer {
            self.answered(term, answer, &applied);
        }
        self.wake_leader();
    }

    /// The leader's readers are told that there is a newer state.
    fn wake_leader(&mut self) {
        let Some(term) = self.leader().map(|l| l.term) else { return };
        self.ask_pass(term, 5);
        self.ask_dispatch(term);
    }

    fn answered(&mut self, term: Term, answer: Answer, applied: &Applied) {
        match answer {
            Answer::Controller => self.plan_answered(term),
            Answer::Reports { agent, marks } => self.acknowledge(term, agent, marks),
            Answer::Session { agent, conn } => self.session_answered(term, agent, conn, applied),
            Answer::Client { request } => self.client_answered(request, applied),
        }
    }
}
