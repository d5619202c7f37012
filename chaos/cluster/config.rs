//! The configuration files of a cluster's processes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use quorate_base::format_duration;

use crate::cluster::Plan;
use crate::cluster::ports::Ports;
use crate::cluster::process::Program;

/// The ports of the first manager in the documentation; the others' lie ten apart.
const DOCUMENTED: [u16; 4] = [7_420, 7_421, 7_422, 7_480];

/// Where one manager listens and keeps its files.
#[derive(Clone, Debug)]
pub struct ManagerFiles {
    /// Its name.
    pub name: String,
    /// Address of its API.
    pub api: String,
    /// Address for agents.
    pub agents: String,
    /// Address that agents are told: the same, or a wire's end.
    pub agents_told: String,
    /// Address for the other managers.
    pub raft: String,
    /// Address of metrics and health.
    pub admin: String,
    /// Its configuration.
    pub config: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// Its output.
    pub log: PathBuf,
}

/// Where one agent keeps its files.
#[derive(Clone, Debug)]
pub struct AgentFiles {
    /// Its name.
    pub name: String,
    /// Its configuration.
    pub config: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// Its output.
    pub log: PathBuf,
}

impl ManagerFiles {
    /// How to start it.
    pub fn program(&self, quorate: &Path) -> Program {
        program("manager", &self.name, &self.config, &self.log, quorate)
    }
}

impl AgentFiles {
    /// How to start it.
    pub fn program(&self, quorate: &Path) -> Program {
        program("agent", &self.name, &self.config, &self.log, quorate)
    }
}

fn program(role: &str, name: &str, config: &Path, log: &Path, quorate: &Path) -> Program {
    Program {
        name: name.to_owned(),
        path: quorate.to_owned(),
        args: vec![role.into(), "run".into(), "-c".into(), config.into()],
        log: log.to_owned(),
    }
}

/// Writes the managers' files.
///
/// # Errors
/// When the disk or the ports refuse.
pub fn managers(plan: &Plan, folder: &Path, ports: &mut Ports) -> Result<Vec<ManagerFiles>> {
    let mut all = Vec::new();
    for number in 1..=u16::try_from(plan.managers)? {
        let [api, agents, raft, admin] = DOCUMENTED.map(|port| port + 10 * (number - 1));
        let mut at = |wanted: u16| {
            let port = if plan.documented_ports { ports.prefer(wanted) } else { ports.any() }?;
            Ok::<String, anyhow::Error>(format!("127.0.0.1:{port}"))
        };
        let (name, wire, agents) = (format!("m{number}"), agents + 5, at(agents)?);
        all.push(ManagerFiles {
            api: at(api)?,
            raft: at(raft)?,
            admin: at(admin)?,
            agents_told: if plan.wired { at(wire)? } else { agents.clone() },
            agents,
            config: folder.join(format!("{name}.toml")),
            data: folder.join(&name),
            log: folder.join(format!("{name}.log")),
            name,
        });
    }
    let peers: Vec<String> = all.iter().map(|files| format!("{} = {:?}", files.name, files.raft)).collect();
    for files in &all {
        let text = format!(
            "node = {{ name = {:?}, data_dir = {:?} }}\n\
             api = {{ listen = {:?} }}\n\
             agents = {{ listen = {:?}, advertise = {:?} }}\n\
             admin = {{ listen = {:?} }}\n\n\
             [raft]\nlisten = {:?}\n\n\
             [cluster]\nmanagers = {{ {} }}\n\n\
             [tls]\nmode = \"plaintext-loopback\"\n\n\
             [nodes]\nlease = {:?}\n",
            files.name,
            files.data,
            files.api,
            files.agents,
            files.agents_told,
            files.admin,
            files.raft,
            peers.join(", "),
            format_duration(plan.lease)
        );
        write(&files.config, &text)?;
    }
    Ok(all)
}

/// Writes the agents' files. Zones go round: a, b, c.
///
/// # Errors
/// When the disk refuses.
pub fn agents(plan: &Plan, folder: &Path, managers: &[ManagerFiles]) -> Result<Vec<AgentFiles>> {
    let addresses: Vec<&str> = managers.iter().map(|files| files.agents_told.as_str()).collect();
    let mut all = Vec::new();
    for (number, zone) in (1..=plan.agents).zip(["a", "b", "c"].into_iter().cycle()) {
        let name = format!("n{number}");
        let files = AgentFiles {
            config: folder.join(format!("{name}.toml")),
            data: folder.join(&name),
            log: folder.join(format!("{name}.log")),
            name,
        };
        let text = format!(
            "node = {{ name = {:?}, data_dir = {:?}, labels = {{ zone = {zone:?} }} }}\n\
             managers = {addresses:?}\n\
             runtimes = {:?}\n\
             orphan_grace = \"2s\"\n\n\
             [tls]\nmode = \"plaintext-loopback\"\n",
            files.name, files.data, plan.runtimes
        );
        write(&files.config, &text)?;
        all.push(files);
    }
    Ok(all)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
