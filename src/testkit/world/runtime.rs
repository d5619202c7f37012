//! Containers: how they come, run, fail and go.

use quorate_base::time::Timestamp;
use quorate_model::{NodeStatus, TaskId, TaskState, TaskStatus};

use super::{
    Container, Held, World,
    queue::{Event, Order, Uplink},
};
use crate::counters::Sometimes;

impl World {
    /// Takes one order of an assignment set.
    pub(super) fn obey(&mut self, index: usize, order: Order) {
        let now = self.agent_clock(index);
        let agent = &mut self.agents[index];
        // A leader that was cut off may start here what its successor has replaced elsewhere.
        let node = self.state.node_named(&agent.name);
        let forsaken = node.is_none_or(|node| node.status == NodeStatus::Down);
        if order.observed.is_terminal() {
            return self.obey_end(index, order);
        }
        if let Some(held) = agent.held.get_mut(&order.task) {
            if order.desired > held.desired {
                held.desired = order.desired;
                if order.desired >= TaskState::Shutdown && !held.status.state.is_terminal() {
                    self.schedule(index, order.task, 10, 800);
                }
            }
            return;
        }
        let status = TaskStatus { seq: order.seq, ..TaskStatus::by_manager(TaskState::Assigned, now) };
        let held = Held { desired: order.desired, status, acked: order.seq, batch: order.batch };
        agent.held.insert(order.task, held);
        let container =
            Container { job: order.job, slot: order.slot, phase: TaskState::Accepted, forsaken, token: 0 };
        agent.containers.insert(order.task, container);
        self.see(index, order.task, TaskState::Accepted);
        self.schedule(index, order.task, 5, 200);
    }

    /// A task that ended, as far as the managers know: what runs of it is stopped, and nothing is started.
    fn obey_end(&mut self, index: usize, order: Order) {
        let now = self.agent_clock(index);
        let agent = &mut self.agents[index];
        let held = agent.held.entry(order.task).or_insert_with(|| {
            let status = TaskStatus { seq: order.seq, ..TaskStatus::by_manager(order.observed, now) };
            Held { desired: order.desired, status, acked: order.seq, batch: order.batch }
        });
        held.desired = held.desired.max(order.desired);
        if !held.status.state.is_terminal() {
            held.status.state = order.observed;
        }
        // The managers take no word on it any more.
        held.acked = held.status.seq;
        let Some(container) = agent.containers.get_mut(&order.task) else { return };
        container.token = 0;
        if !container.phase.is_terminal() {
            let ran = std::mem::replace(&mut container.phase, TaskState::Shutdown) == TaskState::Running;
            if ran {
                let name = agent.name.clone();
                self.journal.killed(&self.state, &name, order.task);
            }
        }
    }

    /// Stops and forgets a task that is no longer assigned.
    pub(super) fn drop_task(&mut self, index: usize, task: TaskId) {
        let agent = &mut self.agents[index];
        agent.held.remove(&task);
        let Some(container) = agent.containers.remove(&task) else { return };
        if container.phase == TaskState::Running {
            let name = agent.name.clone();
            self.journal.killed(&self.state, &name, task);
        }
    }

    fn schedule(&mut self, index: usize, task: TaskId, least: u64, most: u64) {
        let delay = self.rng.between(least, most);
        self.journal.tokens += 1;
        let token = self.journal.tokens;
        if let Some(container) = self.agents[index].containers.get_mut(&task) {
            container.token = token;
            self.at(delay, Event::Work { agent: index, task, token });
        }
    }

    /// A container's next step is due.
    pub(super) fn work(&mut self, index: usize, task: TaskId, token: u64) {
        let agent = &self.agents[index];
        let Some(container) = agent.containers.get(&task).filter(|c| c.token == token) else { return };
        let phase = container.phase;
        let Some(held) = agent.held.get(&task).filter(|_| agent.up) else {
            // Nobody watches. What runs may end all the same.
            if phase == TaskState::Running && !self.healed() {
                self.set_phase(index, task, TaskState::Failed);
            }
            return;
        };
        if held.desired >= TaskState::Shutdown {
            self.see(index, task, TaskState::Shutdown);
            return;
        }
        let bad = !self.healed() && self.rng.chance(self.profile.failing);
        match phase {
            TaskState::Accepted => self.go_on(index, task, TaskState::Preparing),
            TaskState::Preparing if bad => self.see(index, task, TaskState::Rejected),
            TaskState::Preparing => self.go_on(index, task, TaskState::Starting),
            TaskState::Starting if bad => self.see(index, task, TaskState::Failed),
            TaskState::Starting => self.begin_running(index, task),
            TaskState::Running => self.end(index, task),
            _ => {}
        }
    }

    fn go_on(&mut self, index: usize, task: TaskId, phase: TaskState) {
        self.see(index, task, phase);
        self.schedule(index, task, 5, 300);
    }

    fn begin_running(&mut self, index: usize, task: TaskId) {
        self.see(index, task, TaskState::Running);
        self.plan_end(index, task);
        self.check_scene();
    }

    fn plan_end(&mut self, index: usize, task: TaskId) {
        let batch = self.agents[index].held.get(&task).is_some_and(|h| h.batch);
        if batch {
            self.schedule(index, task, 100, 4_000);
        } else if !self.healed() && self.rng.chance(self.profile.failing * 2.0) {
            self.schedule(index, task, 300, 20_000);
        }
    }

    /// A running container ends, or is restarted in place.
    fn end(&mut self, index: usize, task: TaskId) {
        let batch = self.agents[index].held.get(&task).is_some_and(|h| h.batch);
        if self.healed() && !batch {
            return;
        }
        if self.healed() {
            return self.see(index, task, TaskState::Complete);
        }
        match self.rng.below(10) {
            0..=2 if !batch => {
                self.counters.note(Sometimes::RestartedInPlace);
                self.await_restart(index, task);
            }
            3..=4 => self.see(index, task, TaskState::Failed),
            5 if !batch => self.see(index, task, TaskState::Shutdown),
            6..=7 if !batch => self.see(index, task, TaskState::Failed),
            _ => self.see(index, task, TaskState::Complete),
        }
    }

    /// A container ended and is started again after a while; until then the task's state has no beginning.
    fn await_restart(&mut self, index: usize, task: TaskId) {
        self.set_phase(index, task, TaskState::Starting);
        let at = self.agent_clock(index);
        if let Some(held) = self.agents[index].held.get_mut(&task) {
            let (seq, restarts) = (held.status.seq + 1, held.status.restarts + 1);
            held.status = TaskStatus { seq, restarts, at, running_since: None, ..held.status.clone() };
        }
        self.report(index, task);
        self.schedule(index, task, 50, 3_000);
    }

    /// After a start of the agent: what is in the ledger meets what the runtime has.
    pub(super) fn adopt(&mut self, index: usize) {
        let agent = &self.agents[index];
        let known: Vec<(TaskId, TaskState, bool)> = agent
            .held
            .iter()
            .filter(|(_, held)| !held.status.state.is_terminal())
            .filter_map(|(task, held)| {
                let phase = agent.containers.get(task)?.phase;
                Some((*task, phase, held.desired >= TaskState::Shutdown))
            })
            .collect();
        let mut adopted = false;
        for (task, phase, stop) in known {
            if phase.is_terminal() {
                self.counters.note(Sometimes::EndedUnseen);
                self.see(index, task, phase);
            } else if stop || phase < TaskState::Running {
                self.schedule(index, task, 5, 300);
            } else {
                adopted = true;
            }
        }
        self.counters.note_if(adopted, Sometimes::AgentRestarted);
    }

    fn set_phase(&mut self, index: usize, task: TaskId, phase: TaskState) {
        if let Some(container) = self.agents[index].containers.get_mut(&task) {
            container.phase = phase;
        }
    }

    /// The agent sees a state, writes it down and reports it.
    fn see(&mut self, index: usize, task: TaskId, state: TaskState) {
        self.set_phase(index, task, state);
        let now = self.agent_clock(index);
        let agent = &mut self.agents[index];
        let Some(held) = agent.held.get_mut(&task) else { return };
        let running_since = match state {
            TaskState::Running => Some(now),
            _ => held.status.running_since,
        };
        held.status = TaskStatus {
            state,
            seq: held.status.seq + 1,
            at: now,
            running_since,
            restarts: held.status.restarts,
            ..TaskStatus::by_manager(state, now)
        };
        self.report(index, task);
    }

    fn report(&mut self, index: usize, task: TaskId) {
        let agent = &self.agents[index];
        let Some(held) = agent.held.get(&task).filter(|_| agent.welcomed) else { return };
        let reports = vec![quorate_state::Report { task, status: held.status.clone() }];
        self.tell(index, Uplink::Statuses(reports));
    }

    /// An agent's clock is off by up to an hour.
    fn agent_clock(&self, index: usize) -> Timestamp {
        let skew = [0, 5_000, 3_600_000, 1_000, 0][index % 5];
        let ahead = index.is_multiple_of(2);
        let wall = self.wall().as_millis();
        Timestamp::from_millis(if ahead { wall + skew } else { wall - skew })
    }
}
