//! Users: they submit, scale, stop and purge, and retry with one request id until they have an answer.

use std::sync::Arc;

use quorate_base::id::RequestId;
use quorate_model::{Name, Revision};
use quorate_state::{Actor, Applied, Command, Envelope, Request};

use super::{
    World,
    queue::{Answer, Event},
};
use crate::generate::{self, BATCHES, SERVICES};

/// Requests of all clients.
#[derive(Default)]
pub(super) struct Users {
    requests: Vec<Call>,
}

struct Call {
    id: RequestId,
    job: Name,
    command: Command,
    /// When it was sent first, in milliseconds.
    asked: u64,
    answered: bool,
}

impl World {
    pub(super) fn user_acts(&mut self) {
        if self.healed() {
            return;
        }
        let pause = self.rng.between(200, 6_000);
        self.at(pause, Event::User);
        let names: Vec<&str> = SERVICES.into_iter().chain(BATCHES).collect();
        let name = generate::pick(&mut self.rng, &names, SERVICES[0]);
        let number = self.users.requests.len();
        let (Ok(job), Ok(id)) = (Name::parse("job", name), RequestId::new(&format!("r{number}"))) else {
            return;
        };
        let Some(command) = self.draw_command(&job) else { return };
        if matches!(command, Command::DeleteJob { purge: true, .. }) {
            self.journal.purge_asked(&job);
        }
        let asked = self.now;
        self.users.requests.push(Call { id, job, command, asked, answered: false });
        self.at(1, Event::Send { request: number });
    }

    fn draw_command(&mut self, job: &Name) -> Option<Command> {
        let (namespace, name) = (Name::default_namespace(), job.clone());
        Some(match self.rng.below(10) {
            0..=5 => {
                let spec = Arc::new(generate::job(&mut self.rng, job.as_str()).ok()?);
                // Some mean a job that must not be there yet, and are refused where it is.
                let expect = self.rng.chance(0.15).then_some(Revision(0));
                Command::ApplyJob { spec, expect }
            }
            6..=7 => {
                let replicas = self.rng.below(9) as u32;
                Command::ScaleJob { namespace, name, replicas, expect: None }
            }
            8 => Command::DeleteJob { namespace, name, purge: false, expect: None },
            _ => Command::DeleteJob { namespace, name, purge: true, expect: None },
        })
    }

    /// Sends a request, and again until there is an answer.
    pub(super) fn send_request(&mut self, request: usize) {
        let Some(call) = self.users.requests.get(request).filter(|c| !c.answered) else { return };
        let envelope = Box::new(Envelope {
            proposed_at: self.leader_clock(self.term),
            fence: None,
            actor: Actor::User(Arc::from("user")),
            request: Some(Request { id: call.id.clone(), fingerprint: request as u64 }),
            trace: None,
            command: call.command.clone(),
        });
        let purged = matches!(call.command, Command::DeleteJob { purge: true, .. }).then(|| call.job.clone());
        let retry = self.rng.between(800, 2_500);
        self.at(retry, Event::Send { request });
        let lost = self.leaders.is_empty() || self.rng.chance(0.1);
        if !lost {
            let delay = self.rng.between(2, 120);
            if let Some(job) = purged {
                self.journal.purge_sent(&job, self.now + delay);
            }
            let answer = Answer::Client { request };
            self.at(delay, Event::Commit { term: self.term, envelope, answer });
        }
    }

    pub(super) fn client_answered(&mut self, request: usize, applied: &Applied) {
        let lost = !self.healed() && self.rng.chance(0.15);
        let Some(call) = self.users.requests.get_mut(request).filter(|c| !c.answered && !lost) else {
            return;
        };
        call.answered = true;
        self.journal.acked(&call.job, &call.command, call.asked, applied);
    }
}
