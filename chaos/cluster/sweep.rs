//! Finding and ending what belongs to a run: processes by its folder, containers by its cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// How often to look for survivors: a process may start another while it is being ended.
const PASSES: usize = 20;

/// Ends every process that was started from or for `folder`, and all that these started. Never the caller, nor what
/// the caller was started by.
pub fn end_processes(folder: &Path) {
    for _ in 0..PASSES {
        let found = processes_of(folder);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may be gone already.
            let _gone = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Removes every container of a cluster from the Docker engine, running or not. Does nothing without an engine.
pub fn remove_containers(cluster_id: &str) {
    let prefix = container_prefix(cluster_id);
    let filter = format!("name=^/{prefix}");
    let listed = docker(&["ps", "--all", "--quiet", "--filter", &filter]);
    let ids: Vec<&str> = listed.split_whitespace().collect();
    if !ids.is_empty() {
        docker(&[&["rm", "--force", "--volumes"], ids.as_slice()].concat());
    }
}

/// How the names of a cluster's containers begin: the end of its id is what tells clusters apart.
pub fn container_prefix(cluster_id: &str) -> String {
    let short = cluster_id.get(cluster_id.len().saturating_sub(8)..).unwrap_or(cluster_id);
    format!("quorate-{}-", short.to_ascii_lowercase())
}

fn docker(args: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["30", "docker"])
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}

/// The processes whose working folder, arguments or environment name `folder`, and their descendants.
pub fn processes_of(folder: &Path) -> BTreeSet<i32> {
    let parents = parents();
    let ours = ancestors(&parents, i32::try_from(std::process::id()).unwrap_or_default());
    let named = parents.keys().copied().filter(|&pid| !ours.contains(&pid) && names(pid, folder));
    let mut found: BTreeSet<i32> = named.collect();
    loop {
        let below: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid) && !ours.contains(pid))
            .map(|(&pid, _)| pid)
            .collect();
        if below.is_empty() {
            return found;
        }
        found.extend(below);
    }
}

/// Parent by process, without those that have ended and only wait for their parent to hear of it.
fn parents() -> BTreeMap<i32, i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything; state and parent follow its last bracket.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        (state != "Z").then_some((pid, parent))
    })
    .collect()
}

fn ancestors(parents: &BTreeMap<i32, i32>, of: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([of]);
    let mut at = of;
    while let Some(&parent) = parents.get(&at)
        && found.insert(parent)
    {
        at = parent;
    }
    found
}

fn names(pid: i32, folder: &Path) -> bool {
    let Some(text) = folder.to_str() else { return false };
    let file_holds = |file: &str| {
        fs::read(format!("/proc/{pid}/{file}"))
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
        || file_holds("cmdline")
        || file_holds("environ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_the_folder_and_what_it_started_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let folder_path = folder.path().canonicalize().unwrap();
        let mut parent = Command::new("/bin/sh")
            .args(["-c", "cd / && sleep 1000 & wait"])
            .current_dir(&folder_path)
            .env("RUN", &folder_path)
            .spawn()
            .unwrap();
        assert!(processes_of(&folder_path).contains(&i32::try_from(parent.id()).unwrap()));
        end_processes(&folder_path);
        assert!(processes_of(&folder_path).is_empty());
        assert!(!parent.wait().unwrap().success());
    }

    #[test]
    fn the_caller_is_never_found() {
        let own = std::env::current_dir().unwrap();
        assert!(!processes_of(&own).contains(&i32::try_from(std::process::id()).unwrap()));
    }

    #[test]
    fn containers_are_told_by_the_end_of_the_clusters_id() {
        assert_eq!(container_prefix("01ARYZ6S41TSV4RRFFQ69G5FAV"), "quorate-q69g5fav-");
    }
}
