//! What really runs, by the word of the operating system and of the Docker engine, not of the product.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quorate_wire::api::{Task, TaskState};
use tokio::process::Command;

use crate::check::tasks::{InstanceFact, TaskFact};
use crate::cluster::scratch::began;

/// Deadline of a question to the engine.
const ASK: Duration = Duration::from_secs(20);

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

    fn running(instance: &str) -> TaskFact {
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
    async fn a_process_counts_only_with_its_own_begin() {
        let pid = std::process::id();
        let own = format!("{pid}:{}", began(pid).unwrap());
        let facts = instances(&[running(&own), running(&format!("{pid}:1"))]).await.unwrap();
        assert_eq!(facts[&own], InstanceFact::RunsSince(began(pid).unwrap()));
        assert_eq!(facts[&format!("{pid}:1")], InstanceFact::Gone);
    }

    #[tokio::test]
    async fn a_running_task_without_an_instance_is_an_error() {
        assert!(instances(&[running("")]).await.is_err());
    }
}
