//! A real cluster: managers and agents as processes on free loopback ports, with data directories of their own.

pub mod config;
pub mod ports;
pub mod process;
pub mod scratch;
pub mod sweep;
pub mod usage;
pub mod wires;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use quorate_base::time::Mono;
use quorate_base::{Clock, Rng};

use crate::api::{Api, Seen};
use crate::cluster::config::{AgentFiles, ManagerFiles};
use crate::cluster::ports::Ports;
use crate::cluster::process::Process;
use crate::cluster::scratch::Scratch;
use crate::cluster::wires::{End, Wires};
use crate::term::Note;
use crate::wait::{Look, until};

/// How long a process may take to end by itself once it is asked to.
const STOP: Duration = Duration::from_secs(20);
/// How long a killed process may take to be gone.
const DIE: Duration = Duration::from_secs(10);

/// What to start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable under test.
    pub quorate: PathBuf,
    /// Managers: 1, 3 or 5.
    pub managers: usize,
    /// Agents.
    pub agents: usize,
    /// What the agents may run containers with.
    pub runtimes: Vec<&'static str>,
    /// After how long a silent node counts as down.
    pub lease: Duration,
    /// Whether to take the documented ports where they are free, so that a user can type less.
    pub documented_ports: bool,
    /// Whether agents reach managers over wires that can be cut. Needs an asynchronous runtime.
    pub wired: bool,
}

/// One manager.
#[derive(Debug)]
pub struct Manager {
    /// Its files and addresses.
    pub files: ManagerFiles,
    /// Its process.
    pub process: Process,
    /// A connection to its API.
    pub api: Api,
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    /// Its files.
    pub files: AgentFiles,
    /// Its process.
    pub process: Process,
}

/// Processes that end with this value, whatever happens.
#[derive(Debug)]
pub struct Cluster {
    /// What it was built from.
    pub plan: Plan,
    /// The managers.
    pub managers: Vec<Manager>,
    /// The agents.
    pub agents: Vec<Agent>,
    /// What agents reach managers by, where that can be cut.
    pub wires: Option<Wires>,
    clock: Clock,
    // Last: it sweeps what the processes above left.
    scratch: Scratch,
}

/// A manager that leads, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Which one of [`Cluster::managers`].
    pub index: usize,
    /// What it says.
    pub seen: Seen,
}

impl Cluster {
    /// Lays out folders, ports and configuration; starts nothing.
    ///
    /// # Errors
    /// When the disk or the ports refuse.
    pub fn lay_out(plan: Plan) -> Result<Self> {
        if !plan.quorate.is_file() {
            bail!(
                "there is no program {}; build it with `cargo build --release -p quorate`",
                plan.quorate.display()
            );
        }
        let scratch = Scratch::create()?;
        let mut ports = Ports::new(Rng::from_entropy());
        let files = config::managers(&plan, scratch.path(), &mut ports)?;
        let agents = config::agents(&plan, scratch.path(), &files)?;
        let wires = plan.wired.then(|| wired(&files, &agents)).transpose()?;
        let managers = files
            .into_iter()
            .map(|files| {
                let api = Api::new(&files.name, &files.api)?;
                Ok(Manager { process: Process::new(files.program(&plan.quorate)), api, files })
            })
            .collect::<Result<_>>()?;
        let agents = agents
            .into_iter()
            .map(|files| Agent { process: Process::new(files.program(&plan.quorate)), files })
            .collect();
        Ok(Self { plan, managers, agents, wires, clock: Clock::system(), scratch })
    }

    /// Where logs, configuration and data are.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Keeps the folder after the end.
    pub fn keep_folder(&mut self) {
        self.scratch.keep();
    }

    /// Starts all processes, without waiting for what they do.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(&mut self) -> Result<()> {
        for process in self.processes() {
            process.start()?;
        }
        Ok(())
    }

    /// The APIs of all managers.
    pub fn apis(&self) -> Vec<Api> {
        self.managers.iter().map(|manager| manager.api.clone()).collect()
    }

    /// The addresses of all managers' APIs.
    pub fn api_addresses(&self) -> Vec<String> {
        self.managers.iter().map(|manager| manager.files.api.clone()).collect()
    }

    /// The same as the command line takes them.
    pub fn addresses(&self) -> String {
        self.api_addresses().join(",")
    }

    /// Every process that ought to run runs.
    ///
    /// # Errors
    /// When one has ended by itself, with the end of its log.
    pub fn must_run(&mut self) -> Result<()> {
        self.processes().try_for_each(Process::must_run)
    }

    /// Waits until one manager leads, all others follow it, and every agent is ready.
    ///
    /// # Errors
    /// When that is not so within `limit`, or a process ends.
    pub async fn ready(&mut self, limit: Duration, note: &Note) -> Result<Leader> {
        let wanted = u32::try_from(self.agents.len())?;
        let leader = until("a cluster that is ready", limit, async || {
            self.must_run()?;
            let look = match self.agreed_leader().await {
                Err(missing) => Look::NotYet(missing),
                Ok(leader) if leader.seen.nodes_ready < wanted => {
                    Look::NotYet(format!("{} of {wanted} agents are ready", leader.seen.nodes_ready))
                }
                Ok(leader) => Look::Done(leader),
            };
            Ok(look.noted(note))
        })
        .await?;
        self.scratch.note_cluster(&leader.seen.cluster_id)?;
        Ok(leader)
    }

    /// The manager that leads by its own word, with every other running one following it.
    ///
    /// # Errors
    /// What is missing, in words.
    pub async fn agreed_leader(&self) -> Result<Leader, String> {
        let mut seen = Vec::new();
        for (index, manager) in self.managers.iter().enumerate() {
            if manager.process.pid().is_some() {
                let status = manager
                    .api
                    .status()
                    .await
                    .map_err(|_| format!("{} does not answer", manager.api.name))?;
                seen.push((index, status));
            }
        }
        let leads = seen.iter().filter(|(_, status)| status.leads).max_by_key(|(_, status)| status.term);
        let (index, status) = leads.cloned().ok_or_else(|| "no manager leads".to_owned())?;
        let name = self.managers.get(index).map_or("", |manager| manager.api.name.as_str());
        let astray = seen.iter().find(|(_, other)| other.leader != name || other.term != status.term);
        match astray.and_then(|(other, _)| self.managers.get(*other)) {
            Some(other) => Err(format!("{} does not follow {name} yet", other.api.name)),
            None => Ok(Leader { index, seen: status }),
        }
    }

    /// Kills a manager with SIGKILL. Returns the moment just before the signal.
    ///
    /// # Errors
    /// When it does not run or does not die.
    pub async fn kill_manager(&mut self, index: usize) -> Result<Mono> {
        let clock = self.clock.clone();
        let manager = self.managers.get_mut(index).context("no such manager")?;
        let at = clock.monotonic();
        manager.process.signal(Signal::SIGKILL)?;
        manager.process.ended(DIE).await?;
        Ok(at)
    }

    /// Starts a manager again, on its own data.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start_manager(&mut self, index: usize) -> Result<u32> {
        self.managers.get_mut(index).context("no such manager")?.process.start()
    }

    /// Waits until a manager has applied the log up to `target` and follows a leader.
    ///
    /// # Errors
    /// When it has not within `limit`, or a process ends.
    pub async fn caught_up(
        &mut self,
        index: usize,
        target: u64,
        limit: Duration,
        note: &Note,
    ) -> Result<Seen> {
        let api = self.managers.get(index).context("no such manager")?.api.clone();
        until(&format!("{} to catch up", api.name), limit, async || {
            self.must_run()?;
            let look = match api.status().await {
                Err(_) => Look::NotYet("it does not answer yet".to_owned()),
                Ok(seen) if seen.applied < target => {
                    Look::NotYet(format!("revision {} of {target}", seen.applied))
                }
                Ok(seen) if seen.leader.is_empty() => Look::NotYet("it knows no leader yet".to_owned()),
                Ok(seen) => Look::Done(seen),
            };
            Ok(look.noted(note))
        })
        .await
    }

    /// Ends all processes in good order: agents, then managers.
    ///
    /// # Errors
    /// When one cannot be ended.
    pub async fn stop(&mut self) -> Result<()> {
        stop_all(self.agents.iter_mut().map(|agent| &mut agent.process).collect()).await?;
        // Together: the last one would wait for a quorum to hand its leadership to.
        stop_all(self.managers.iter_mut().map(|manager| &mut manager.process).collect()).await
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let managers = self.managers.iter_mut().map(|manager| &mut manager.process);
        managers.chain(self.agents.iter_mut().map(|agent| &mut agent.process))
    }
}

/// Wires from each agent to each manager.
fn wired(managers: &[ManagerFiles], agents: &[AgentFiles]) -> Result<Wires> {
    let end = |files: &AgentFiles| End {
        name: files.name.clone(),
        argument: files.config.to_string_lossy().into_owned(),
    };
    let wires = Wires::new(agents.iter().map(end).collect());
    managers.iter().try_for_each(|files| wires.lead(&files.agents_told, &files.agents))?;
    Ok(wires)
}

/// Asks all to end, then waits for each; one that does not end in time is killed.
async fn stop_all(processes: Vec<&mut Process>) -> Result<()> {
    for process in processes.iter().filter(|process| process.pid().is_some()) {
        process.signal(Signal::SIGTERM)?;
    }
    for process in processes {
        process.stop(STOP).await?;
    }
    Ok(())
}
