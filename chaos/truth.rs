//! What really runs, by the word of the operating system and of the Docker engine, not of the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_wire::api::{JobSpec, Task, TaskState};
use quorate_wire::common::Runtime;
use tokio::process::Command;

use crate::check::tasks::{InstanceFact, TaskFact};
use crate::cluster::scratch::began;
use crate::cluster::sweep::container_prefix;

/// Deadline of a question to the engine.
const ASK: Duration = Duration::from_secs(20);

/// The environment variable of marked processes: the folder of the run.
const MARK: &str = "CHAOS_RUN";

/// What runs a task, as tasks tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Instance<'a> {
    /// A process: its pid, and its begin in clock ticks since the machine's.
    Process(u32, &'a str),
    /// A container's id.
    Container(&'a str),
    /// Nothing real.
    Fake,
}

impl<'a> Instance<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text.starts_with("fake:") {
            return Some(Self::Fake);
        }
        match text.split_once(':') {
            Some((pid, began)) => Some(Self::Process(pid.parse().ok()?, began)),
            None if text.len() >= 12 && text.chars().all(|c| c.is_ascii_hexdigit()) => {
                Some(Self::Container(text))
            }
            None => None,
        }
    }
}

/// A task as the checkers compare it.
pub fn fact(task: &Task) -> TaskFact {
    let running = i32::from(TaskState::Running);
    TaskFact {
        id: task.id.clone(),
        label: format!("{}[{}]", task.job, task.slot),
        node: task.node.clone(),
        instance: task.instance.clone(),
        restarts: task.restarts,
        running: task.state == running && task.desired_state == running,
    }
}

/// What runs the tasks, asked of who runs it. Fake instances are left out.
///
/// # Errors
/// When the engine does not answer, or a running task names no instance that could be asked for.
pub async fn instances(tasks: &[TaskFact]) -> Result<BTreeMap<String, InstanceFact>> {
    let mut facts = BTreeMap::new();
    let mut containers = Vec::new();
    for task in tasks.iter().filter(|task| task.running) {
        match Instance::parse(&task.instance) {
            Some(Instance::Process(pid, start)) => {
                let fact = match began(pid) {
                    Some(now) if now == start => InstanceFact::RunsSince(now),
                    _ => InstanceFact::Gone,
                };
                facts.insert(task.instance.clone(), fact);
            }
            Some(Instance::Container(id)) => containers.push(id),
            Some(Instance::Fake) => {}
            None => bail!(
                "task {} runs as {:?}, which names neither process nor container",
                task.id,
                task.instance
            ),
        }
    }
    if !containers.is_empty() {
        facts.extend(inspect(&containers).await?);
    }
    Ok(facts)
}

/// Marks the processes of a job, so that each of them is found, whoever started it and whoever forgot it.
#[must_use]
pub fn marked(mut spec: JobSpec, folder: &Path) -> JobSpec {
    let processes = spec.containers.values_mut().filter(|c| c.runtime == i32::from(Runtime::Process));
    processes.for_each(|c| drop(c.env.insert(MARK.to_owned(), folder.to_string_lossy().into_owned())));
    spec
}

/// All that runs, as instances: the marked processes of the run in `folder`, and the containers of the cluster where it
/// has an engine.
///
/// # Errors
/// When the engine does not answer.
pub async fn running(folder: &Path, engine_of: Option<&str>) -> Result<BTreeSet<String>> {
    let mark = format!("{MARK}={}", folder.display());
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let marked = pids.filter(is_marked).filter_map(|pid| Some(format!("{pid}:{}", began(pid)?)));
    let mut found: BTreeSet<String> = marked.collect();
    if let Some(cluster_id) = engine_of {
        let name = format!("name=^/{}", container_prefix(cluster_id));
        let listed = docker(&["ps", "--no-trunc", "--quiet", "--filter", &name]).await?;
        found.extend(listed.split_whitespace().map(ToOwned::to_owned));
    }
    Ok(found)
}

async fn inspect(ids: &[&str]) -> Result<BTreeMap<String, InstanceFact>> {
    const FORMAT: &str = "{{.Id}} {{.State.Running}} {{.State.StartedAt}} pid={{.State.Pid}}";
    let listed = docker(&[&["inspect", "--format", FORMAT], ids].concat()).await?;
    let mut facts: BTreeMap<String, InstanceFact> =
        ids.iter().map(|id| ((*id).to_owned(), InstanceFact::Gone)).collect();
    for line in listed.lines() {
        let Some((id, rest)) = line.split_once(' ') else { continue };
        if let Some(since) = rest.strip_prefix("true ") {
            facts.insert(id.to_owned(), InstanceFact::RunsSince(since.to_owned()));
        }
    }
    Ok(facts)
}

/// The engine's version.
///
/// # Errors
/// When none answers.
pub async fn engine_version() -> Result<String> {
    Ok(docker(&["version", "--format", "{{.Server.Version}}"]).await?.trim().to_owned())
}

/// Whether the engine has an image.
pub async fn has_image(image: &str) -> bool {
    docker(&["image", "inspect", "--format", "{{.Id}}", image]).await.is_ok_and(|id| !id.trim().is_empty())
}

/// What the client prints. An id that the engine does not know is no failure: it is missing in the output.
async fn docker(args: &[&str]) -> Result<String> {
    let mut command = Command::new("docker");
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ASK, command.output())
        .await
        .context("the Docker engine does not answer")?
        .context("there is no docker client")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && !told.contains("No such object") {
        bail!("docker {}: {}", args.first().copied().unwrap_or_default(), told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{On, idle_service};

    fn task_as(instance: &str) -> TaskFact {
        TaskFact {
            id: "t1".to_owned(),
            label: "web[0]".to_owned(),
            node: "n1".to_owned(),
            instance: instance.to_owned(),
            restarts: 0,
            running: true,
        }
    }

    #[test]
    fn instances_are_told_apart_by_their_form() {
        assert_eq!(Instance::parse("fake:t1:1"), Some(Instance::Fake));
        assert_eq!(Instance::parse("42:1000"), Some(Instance::Process(42, "1000")));
        assert_eq!(Instance::parse("0123456789abcdef"), Some(Instance::Container("0123456789abcdef")));
        assert_eq!(Instance::parse(""), None);
    }

    #[tokio::test]
    async fn a_marked_process_is_found_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let spec = marked(idle_service("test", "job", On::Process, 1), folder.path());
        let container = spec.containers.values().next().unwrap();
        let start = |mark: bool| {
            let mut command = std::process::Command::new("sleep");
            let command = command.arg("1000");
            if mark { command.envs(&container.env) } else { command }.spawn().unwrap()
        };
        let (mut ours, mut other) = (start(true), start(false));
        let expected = format!("{}:{}", ours.id(), began(ours.id()).unwrap());
        let found = running(folder.path(), None).await.unwrap();
        for child in [&mut ours, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, BTreeSet::from([expected]));
    }

    #[tokio::test]
    async fn a_process_counts_only_with_its_own_begin() {
        let pid = std::process::id();
        let own = format!("{pid}:{}", began(pid).unwrap());
        let facts = instances(&[task_as(&own), task_as(&format!("{pid}:1"))]).await.unwrap();
        assert_eq!(facts[&own], InstanceFact::RunsSince(began(pid).unwrap()));
        assert_eq!(facts[&format!("{pid}:1")], InstanceFact::Gone);
    }

    #[tokio::test]
    async fn a_running_task_without_an_instance_is_an_error() {
        assert!(instances(&[task_as("")]).await.is_err());
    }
}
