//! What goes wrong, drawn per seed: some seeds see only leader changes, some only bad agents, some all.

use quorate_base::rand::Rng;

use super::{World, queue::Event};

/// How much of what goes wrong in one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    leader_dies: u64,
    leader_cut_off: u64,
    controller_forgets: u64,
    agent_dies: u64,
    link_breaks: u64,
    disk_emptied: u64,
    /// Probability that a step of a container fails.
    pub(super) failing: f64,
    /// Mean time between faults, in milliseconds.
    pause_ms: u64,
}

impl Profile {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut weight = |most| if rng.chance(0.35) { 0 } else { rng.between(1, most) };
        Self {
            leader_dies: weight(6),
            leader_cut_off: weight(6),
            controller_forgets: weight(6),
            agent_dies: weight(6),
            link_breaks: weight(6),
            disk_emptied: weight(1),
            failing: weight(3) as f64 * 0.05,
            pause_ms: 500 + weight(6) * 600,
        }
    }
}

impl World {
    pub(super) fn fault(&mut self) {
        if self.healed() {
            return;
        }
        let pause = self.rng.between(self.profile.pause_ms / 2, self.profile.pause_ms * 2);
        self.at(pause, Event::Fault);
        let Profile {
            leader_dies,
            leader_cut_off,
            controller_forgets,
            agent_dies,
            link_breaks,
            disk_emptied,
            ..
        } = self.profile;
        let weights =
            [leader_dies, leader_cut_off, controller_forgets, agent_dies, link_breaks, disk_emptied];
        let mut drawn = self.rng.below(weights.iter().sum());
        let agent = self.rng.below(self.agents.len() as u64) as usize;
        let kind = weights.iter().position(|weight| {
            let hit = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            hit
        });
        match kind {
            Some(0) => self.lose_leader(false),
            Some(1) => self.lose_leader(true),
            Some(2) => self.forget_plan(),
            Some(3) => {
                self.crash_agent(agent);
                let back = self.rng.between(100, 9_000);
                self.at(back, Event::AgentStart { agent });
            }
            Some(4) => {
                self.link(agent, false);
                let back = self.rng.between(300, 12_000);
                self.at(back, Event::LinkUp { agent });
            }
            Some(5) => {
                self.empty_disk(agent);
                let back = self.rng.between(500, 5_000);
                self.at(back, Event::AgentStart { agent });
            }
            Some(_) | None => {}
        }
    }

    /// Everything is whole again and stays so.
    pub(super) fn heal(&mut self) {
        for agent in 0..self.agents.len() {
            self.link(agent, true);
            self.start_agent(agent);
        }
        if self.leader().is_none() {
            self.at(500, Event::Elect);
        }
    }
}
