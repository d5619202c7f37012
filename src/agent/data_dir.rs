//! The agent's data directory: whose it is, and that one agent at a time has it.
//!
//! `lock` (held while the agent lives, names its pid), `identity.json`, `ledger`, `tasks/` (the process runtime's).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quorate_base::{Clock, Rng, next_incarnation};
use quorate_model::Name;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::durable;

/// Who the agent is.
const IDENTITY: &str = "identity.json";
/// The format of the directory that this agent writes and reads.
const FORMAT: u32 = 1;

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum DataDirError {
    /// The operating system refuses.
    #[error("cannot {what} {path}: {reason}; give the agent a data directory that it may write to")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's word.
        reason: String,
    },
    /// Another agent lives there.
    #[error(
        "the data directory {path} is in use by process {pid}; stop that agent or choose another directory"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it; `?` when it did not say.
        pid: String,
    },
    /// It holds files, and no agent's.
    #[error(
        "{path} is not empty and no agent's data directory: it has no identity.json, it looks like {looks}; choose an \
         empty directory for the agent"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// What it seems to be.
        looks: String,
    },
    /// It belongs to another node.
    #[error(
        "the data directory {path} belongs to node {owner:?}, not to {node:?}: start the agent under its old name, or \
         choose an empty directory for the new one"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Who asked.
        node: Name,
    },
    /// A newer agent wrote it.
    #[error(
        "the data directory {path} has format {found}, this agent knows {FORMAT}: run the newer version again"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The identity is damaged.
    #[error(
        "{path} is damaged ({reason}): restore it from a backup, or move the data directory away; the node then starts \
         as a new one and its processes must be ended by hand"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Who the agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    node: String,
    /// Drawn once for a data directory.
    pub agent_id: String,
    /// Grows with every start.
    pub incarnation: u64,
    /// Starts so far, this one included.
    pub starts: u64,
}

impl Identity {
    fn fresh(node: &Name, rng: &mut Rng) -> Self {
        let agent_id = format!("{:032x}", u128::from_be_bytes(rng.bytes()));
        Self { format: FORMAT, node: node.to_string(), agent_id, incarnation: 0, starts: 0 }
    }

    fn next(self, clock: &Clock, rng: &mut Rng) -> Self {
        let previous = (self.starts > 0).then_some(self.incarnation);
        Self {
            incarnation: next_incarnation(previous, clock.now(), rng),
            starts: self.starts.saturating_add(1),
            ..self
        }
    }

    /// The identity of an agent that keeps nothing.
    #[must_use]
    pub(crate) fn in_memory(node: &Name, clock: &Clock, rng: &mut Rng) -> Self {
        Self::fresh(node, rng).next(clock, rng)
    }
}

/// A data directory, locked while this lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl DataDir {
    /// Opens or creates it for `node` and counts a start.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing is changed then.
    pub(crate) fn open(
        path: &Path,
        node: &Name,
        clock: &Clock,
        rng: &mut Rng,
    ) -> Result<(Self, Identity), DataDirError> {
        let cannot = |what, path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| DataDirError::Io { what, path, reason: durable::text(&error) }
        };
        fs::create_dir_all(path).map_err(cannot("create", path))?;
        let foreign = foreign(path).map_err(cannot("read", path))?;
        if let Some(looks) = foreign {
            return Err(DataDirError::NotOurs { path: path.to_owned(), looks });
        }
        let lock_path = path.join("lock");
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).read(true).write(true).open(&lock_path);
        let mut lock = lock.map_err(cannot("open", &lock_path))?;
        lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let pid = std::process::id();
                let written = lock.set_len(0).and_then(|()| writeln!(lock, "{pid}"));
                // A full disk must not keep an agent from looking after what runs.
                if let Err(error) = written {
                    tracing::warn!(path = %lock_path.display(), %error, "cannot write the pid into the lock file");
                }
                return Self::identify(path, node, clock, rng, lock);
            }
            Err((lock, _)) => lock,
        };
        let mut pid = String::new();
        let _ = lock.read_to_string(&mut pid);
        let pid = Some(pid.trim()).filter(|pid| !pid.is_empty()).unwrap_or("?").to_owned();
        Err(DataDirError::InUse { path: path.to_owned(), pid })
    }

    fn identify(
        path: &Path,
        node: &Name,
        clock: &Clock,
        rng: &mut Rng,
        lock: Flock<File>,
    ) -> Result<(Self, Identity), DataDirError> {
        let file = path.join(IDENTITY);
        let damaged = |reason: String| DataDirError::Damaged { path: file.clone(), reason };
        let identity = match fs::read(&file) {
            Ok(bytes) => {
                let stored: Identity =
                    serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                if stored.format != FORMAT {
                    return Err(DataDirError::Newer { path: path.to_owned(), found: stored.format });
                }
                if stored.node != node.as_str() {
                    let owner = stored.node;
                    return Err(DataDirError::OtherNode { path: path.to_owned(), owner, node: node.clone() });
                }
                stored
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Identity::fresh(node, rng),
            Err(error) => return Err(damaged(durable::text(&error))),
        };
        let (first, identity) = (identity.starts == 0, identity.next(clock, rng));
        let bytes = serde_json::to_vec_pretty(&identity).map_err(|error| damaged(error.to_string()))?;
        match durable::replace(&file, &bytes) {
            Err(error) if first => {
                let reason = durable::text(&error);
                return Err(DataDirError::Io { what: "write", path: file, reason });
            }
            // Known already: on a full disk it goes on with an incarnation that may repeat.
            Err(error) => tracing::warn!(path = %file.display(), %error, "cannot count this start"),
            Ok(()) => {}
        }
        Ok((Self { path: path.to_owned(), _lock: lock }, identity))
    }

    /// Where the ledger lies.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.path.join("ledger")
    }

    /// Where the process runtime's folders lie.
    pub(crate) fn tasks(&self) -> PathBuf {
        self.path.join("tasks")
    }
}

/// What a directory that no agent wrote looks like; `None` for an agent's or an empty one.
fn foreign(path: &Path) -> io::Result<Option<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A first start that was cut off leaves its lock and a part of its identity, a new file system its own folder.
        if !matches!(name.as_str(), "lock" | "lost+found" | "identity.tmp" | IDENTITY) {
            names.push(name);
        }
    }
    if names.is_empty() || path.join(IDENTITY).try_exists()? {
        return Ok(None);
    }
    let has = |name: &str| names.iter().any(|found| found == name);
    let first = names.iter().min().map_or("", String::as_str);
    Ok(Some(if has("header") && (has("log") || has("images")) {
        "a manager's data directory".to_owned()
    } else if has("ledger") || has("tasks") {
        "an agent's that lost this file".to_owned()
    } else {
        format!("something else's (it has {first:?})")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::Timestamp;

    fn open(path: &Path, node: &str) -> Result<(DataDir, Identity), DataDirError> {
        let clock = Clock::manual(Timestamp::from_millis(1_000));
        DataDir::open(path, &Name::parse("node", node).unwrap(), &clock, &mut Rng::seeded(1))
    }

    #[test]
    fn an_identity_stays_and_its_incarnation_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/agent");
        let (first, a) = open(&path, "n1").unwrap();
        drop(first);
        let (_second, b) = open(&path, "n1").unwrap();
        assert_eq!(a.agent_id, b.agent_id);
        assert!(b.incarnation > a.incarnation, "also when the clock stands still");
        assert_eq!((a.starts, b.starts), (1, 2));
    }

    #[test]
    fn two_agents_on_one_directory_are_refused_with_the_pid() {
        let folder = tempfile::tempdir().unwrap();
        let _first = open(folder.path(), "n1").unwrap();
        let message = open(folder.path(), "n1").unwrap_err().to_string();
        assert!(message.contains(&format!("is in use by process {};", std::process::id())), "{message}");
    }

    #[test]
    fn the_directory_of_another_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), "n1").unwrap());
        let message = open(folder.path(), "n2").unwrap_err().to_string();
        assert!(message.contains("belongs to node \"n1\", not to \"n2\""), "{message}");
        open(folder.path(), "n1").unwrap();
    }

    #[test]
    fn a_directory_that_is_not_an_agents_is_refused_and_left_as_it_is() {
        let managers: &[&str] = &["header", "lock", "log"];
        for (names, looks) in [
            (managers, "looks like a manager's data directory"),
            (&["ledger"], "looks like an agent's that lost this file"),
            (&["notes.txt", "photos"], "looks like something else's (it has \"notes.txt\")"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            names.iter().for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
            let message = open(folder.path(), "n1").unwrap_err().to_string();
            assert!(message.starts_with(&format!("{} is not empty", folder.path().display())), "{message}");
            assert!(message.contains(looks) && message.contains("choose an empty directory"), "{message}");
            let mut left: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, names, "nothing was written");
        }
    }

    #[test]
    fn a_first_start_that_was_cut_off_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lock"), "7\n").unwrap();
        fs::write(folder.path().join("identity.tmp"), "{").unwrap();
        fs::create_dir(folder.path().join("lost+found")).unwrap();
        open(folder.path(), "n1").unwrap();
    }

    #[test]
    fn a_damaged_or_newer_identity_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), "n1").unwrap());
        let file = folder.path().join("identity.json");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert!(open(folder.path(), "n1").unwrap_err().to_string().contains("has format 2"));
        fs::write(&file, "{").unwrap();
        assert!(open(folder.path(), "n1").unwrap_err().to_string().contains("identity.json is damaged"));
    }

    #[test]
    fn a_path_that_cannot_be_had_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let message = open(&file, "n1").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot create {}", file.display())), "{message}");
    }
}
