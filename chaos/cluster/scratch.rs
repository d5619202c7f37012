//! The folder of one run, and the traces of runs whose harness was killed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster::sweep;

/// How the folders of all runs are called, in the system's folder for temporary files.
const PREFIX: &str = "quorate-run-";
/// Says, in a run's folder, which process owns it: its id and when it began.
const OWNER: &str = "owner";
/// Says, in a run's folder, which cluster's containers belong to it.
const CLUSTER: &str = "cluster-id";

/// A folder that goes with its run, unless it is kept.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    kept: bool,
}

impl Scratch {
    /// A new folder below the system's one for temporary files.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create() -> Result<Self> {
        let pid = std::process::id();
        let path = std::env::temp_dir().join(format!("{PREFIX}{pid}"));
        // Only an earlier process of the same id can have left it.
        sweep_one(&path);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let began = began(pid).unwrap_or_default();
        fs::write(path.join(OWNER), format!("{pid} {began}"))?;
        Ok(Self { path: path.canonicalize()?, kept: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes whose containers belong to the run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_cluster(&self, cluster_id: &str) -> Result<()> {
        fs::write(self.path.join(CLUSTER), cluster_id).context("cannot note the cluster's id")
    }

    /// Keeps the folder after the run, for reading its logs.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// Ends what still runs of it. Removes it unless it is kept.
    fn clear(&self) {
        end(&self.path);
        // A folder without an owner is left alone by later runs.
        let gone =
            if self.kept { fs::remove_file(self.path.join(OWNER)) } else { fs::remove_dir_all(&self.path) };
        drop(gone);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Ends and removes what killed harnesses left behind. Returns how many runs that were.
pub fn sweep_leftovers() -> usize {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return 0 };
    let runs = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    runs.filter(|entry| sweep_one(&entry.path())).count()
}

/// Whether `path` was a run without a living owner; it is gone then.
fn sweep_one(path: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(path.join(OWNER)) else { return false };
    let mut words = owner.split_whitespace();
    let (pid, then) = (words.next().and_then(|pid| pid.parse::<u32>().ok()), words.next());
    let lives = pid.is_some_and(|pid| began(pid).as_deref() == Some(then.unwrap_or_default()));
    if lives {
        return false;
    }
    end(path);
    drop(fs::remove_dir_all(path));
    true
}

fn end(path: &Path) {
    sweep::end_processes(path);
    if let Ok(cluster_id) = fs::read_to_string(path.join(CLUSTER)) {
        sweep::remove_containers(cluster_id.trim());
    }
}

/// When a process that still runs began, in clock ticks since the machine did: with its id, it names a process for ever.
pub fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, in brackets, may hold spaces. Behind it: state, and as the 22nd of all the begin.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    // Ended, and its parent has not heard of it yet.
    if state == "Z" { None } else { fields.nth(18).map(ToOwned::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_behind(folder: &Path, owner: &str) -> PathBuf {
        let run = folder.join("quorate-run-1");
        fs::create_dir(&run).unwrap();
        fs::write(run.join(OWNER), owner).unwrap();
        run
    }

    #[test]
    fn a_run_whose_owner_is_gone_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let run = left_behind(folder.path(), &format!("{pid} 1"));
        assert!(sweep_one(&run), "an owner with another begin is another process");
        assert!(!run.exists());
    }

    #[test]
    fn a_run_whose_owner_lives_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let run = left_behind(folder.path(), &format!("{pid} {}", began(pid).unwrap()));
        assert!(!sweep_one(&run));
        assert!(run.exists());
    }

    #[test]
    fn a_process_that_has_ended_has_no_begin_any_more() {
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        assert!(began(child.id()).is_some_and(|ticks| ticks.parse::<u64>().is_ok_and(|ticks| ticks > 0)));
        child.kill().unwrap();
        // Nobody has waited for it: it stays in the table of processes until somebody does.
        while began(child.id()).is_some() {}
        child.wait().unwrap();
    }

    #[test]
    fn a_kept_folder_stays_and_another_goes() {
        let mut scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        scratch.keep();
        drop(scratch);
        assert!(path.exists() && !path.join(OWNER).exists());
        fs::remove_dir_all(&path).unwrap();
        let scratch = Scratch::create().unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
