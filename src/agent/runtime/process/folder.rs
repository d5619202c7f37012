//! The folder of one process.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use quorate_model::{Epoch, Invalid, JobVersion, Name, Slot, StopPolicy, TaskId};
use serde::{Deserialize, Serialize};

use super::cannot;
use crate::runtime::shim::{ALIVE, RUN, Run, State};
use crate::runtime::{Owner, Unit};
use crate::step::Fault;

/// Whose the folder is.
const UNIT: &str = "unit.json";

/// Where the folders of all processes of an agent lie.
#[derive(Debug)]
pub(super) struct Folders {
    root: PathBuf,
}

/// The folder of one process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

/// What [`UNIT`] holds.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    cluster: String,
    node: String,
    epoch: u64,
    task: u64,
    container: String,
    namespace: String,
    job: String,
    version: u32,
    slot: u32,
    stop_signal: String,
    stop_grace_ms: u64,
}

impl Stored {
    fn new(unit: &Unit, stop: &StopPolicy) -> Self {
        Self {
            cluster: unit.owner.cluster.to_string(),
            node: unit.owner.node.to_string(),
            epoch: unit.epoch.0,
            task: unit.task.0,
            container: unit.container.to_string(),
            namespace: unit.namespace.to_string(),
            job: unit.job.to_string(),
            version: unit.version.0,
            slot: unit.slot.0,
            stop_signal: stop.signal.clone(),
            stop_grace_ms: u64::try_from(stop.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn unit(&self) -> Result<Unit, Invalid> {
        let owner = Owner { cluster: Arc::from(&*self.cluster), node: Name::parse("node", &self.node)? };
        Ok(Unit {
            owner,
            epoch: Epoch(self.epoch),
            task: TaskId(self.task),
            container: Name::parse("container", &self.container)?,
            namespace: Name::parse("namespace", &self.namespace)?,
            job: Name::parse("job", &self.job)?,
            version: JobVersion(self.version),
            slot: Slot(self.slot),
        })
    }
}

impl Folders {
    pub(super) const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn of(&self, unit: &Unit) -> Folder {
        Folder { path: self.root.join(unit.task.to_string()).join(unit.container.as_str()) }
    }

    /// Whose the folders are.
    pub(super) fn all(&self) -> Result<Vec<Unit>, Fault> {
        let mut all = Vec::new();
        for task in folders_in(&self.root)? {
            for path in folders_in(&task)? {
                all.extend(Folder { path }.unit()?);
            }
        }
        all.sort();
        Ok(all)
    }
}

fn folders_in(path: &Path) -> Result<Vec<PathBuf>, Fault> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
        Ok(folders)
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| cannot("read", path, &error)),
    }
}

impl Folder {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn stored(&self) -> Result<Option<Stored>, Fault> {
        let path = self.path.join(UNIT);
        match fs::read(&path) {
            // What cannot be read was torn at its creation, before anything ran: as good as absent.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// Whose it is; `None` when there is none.
    pub(super) fn unit(&self) -> Result<Option<Unit>, Fault> {
        Ok(self.stored()?.and_then(|stored| stored.unit().ok()))
    }

    /// How its process was meant to be stopped when it was created.
    pub(super) fn stop(&self) -> Result<(String, Duration), Fault> {
        let default = StopPolicy::default();
        Ok(self.stored()?.map_or((default.signal, default.grace), |stored| {
            (stored.stop_signal, Duration::from_millis(stored.stop_grace_ms))
        }))
    }

    pub(super) fn create(&self, unit: &Unit, stop: &StopPolicy, run: &Run) -> Result<(), Fault> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.path)?;
            fs::write(self.path.join(RUN), serde_json::to_vec(run)?)?;
            // Last: it makes the folder count.
            fs::write(self.path.join(UNIT), serde_json::to_vec(&Stored::new(unit, stop))?)
        };
        write().map_err(|error| cannot("create", &self.path, &error))
    }

    /// What became of its process, as far as its shim wrote it down.
    pub(super) fn state(&self) -> Result<Option<State>, Fault> {
        State::read(&self.path).map_err(|error| cannot("read", &self.path, &error))
    }

    /// What its process was made of; `None` when there is none.
    pub(super) fn run(&self) -> Result<Option<Run>, Fault> {
        let path = self.path.join(RUN);
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// Whether a shim holds it.
    pub(super) fn shim_lives(&self) -> Result<bool, Fault> {
        let path = self.path.join(ALIVE);
        let open = fs::OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&path);
        // The end of the stream means that nobody holds the other end; nobody ever writes.
        match open.and_then(|mut pipe| pipe.read(&mut [0])) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// Removes it with the output files.
    pub(super) fn remove(&self) -> Result<(), Fault> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(cannot("remove", &self.path, &error))
            }
            _ => {
                if let Some(task) = self.path.parent() {
                    // Fails while the task has another container.
                    let _ = fs::remove_dir(task);
                }
                Ok(())
            }
        }
    }
}
