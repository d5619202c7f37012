//! Opening a data directory: whose it is, that nobody else uses it, and what to
//! do with a store that does not open.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_base::Rng;

use crate::files::{Files, Folder};
use crate::header::{self, DATA_VERSION, HEADER, Header, HeaderStore};
use crate::image::{DamagedImage, ImageStore};
use crate::log::{LogOptions, LogStore};
use crate::medium::Medium;
use crate::memory::{MemoryClaim, MemoryDisk};
use crate::recover::{Recovered, check_owner, recover};
use crate::{StorageError, fsync, sled_store};

const LOCK: &str = "lock";
const LOG: &str = "log";
const IMAGES: &str = "images";
const QUARANTINE: &str = "quarantine";
/// sled's page cache: the log's tail is in memory anyway.
const SLED_CACHE_BYTES: u64 = 64 << 20;

/// Why a data directory can't be used. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "data directory {} is in use{}; stop that process or choose another --data-dir",
        path.display(),
        pid.map(|p| format!(" by process {p}")).unwrap_or_default()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that holds the lock, if it left its id.
        pid: Option<u32>,
    },
    /// It belongs to another manager.
    #[error(
        "data directory {} belongs to manager {found:?}, this is {expected:?}; correct the name or the --data-dir",
        path.display()
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// The owner's name.
        found: String,
        /// This manager's name.
        expected: String,
    },
    /// It was written by another version.
    #[error(
        "data directory {} has data version {found}, this build reads {DATA_VERSION}; start the version that wrote it",
        path.display()
    )]
    OtherVersion {
        /// The directory.
        path: PathBuf,
        /// The version found.
        found: u32,
    },
    /// It holds files but no header.
    #[error(
        "{} is not empty and no data directory of quorate (it has no file {HEADER:?}); choose an empty one",
        path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// Its header is unreadable, so that its owner is unknown.
    #[error(
        "the header of data directory {} is damaged: {reason}; move the directory away and start again: \
         the manager then rejoins with an empty store",
        path.display()
    )]
    DamagedHeader {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A system call or the store failed; trying again may help.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A store that would not open and was moved aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where its files are now.
    pub path: PathBuf,
    /// What was wrong with it.
    pub reason: String,
    /// The Raft id that must never be used again.
    pub raft_id: u64,
}

/// Everything durable of one manager.
#[derive(Debug, Clone)]
pub struct Storage {
    /// Log, vote and bookkeeping.
    pub log: LogStore,
    /// Whole-state images.
    pub images: ImageStore,
    /// Whose data this is.
    pub header: HeaderStore,
    _owner: Arc<Owner>,
}

/// Held while the storage is in use.
#[derive(Debug)]
enum Owner {
    Directory { _lock: File },
    Memory { _claim: MemoryClaim },
}

/// An open store and what its opening found.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub storage: Storage,
    /// What the log held.
    pub recovered: Recovered,
    /// Images that were skipped.
    pub damaged_images: Vec<DamagedImage>,
    /// Set if the old store was moved aside, and this one is new and empty.
    pub quarantined: Option<Quarantined>,
}

impl Storage {
    /// Opens the data directory of manager `node`, or makes one in an empty or
    /// missing folder. Draws the Raft id of a new store from `rng`. Blocks.
    ///
    /// A store that is damaged is moved to `quarantine/` and replaced by an
    /// empty one with a new Raft id: starting empty under the old id would
    /// forget votes.
    pub fn open(path: &Path, node: &str, options: LogOptions, rng: &mut Rng) -> Result<Opened, OpenError> {
        let at = |what| move |e| StorageError::io_at(what, path, e);
        let root: Arc<dyn Files> = Arc::new(Folder::create(path).map_err(at("creating the data directory"))?);
        let lock = lock_directory(path)?;
        let stored = header::read(&*root).map_err(at("reading the header of the data directory"))?;
        let header = match stored {
            Some(bytes) => owned(path, node, &bytes)?,
            None => first_header(path, node, rng)?,
        };
        let header = HeaderStore::new(root, header);
        let (parts, quarantined) = match open_parts(path, &header, &options) {
            Ok(parts) => (parts, None),
            Err(e) if e.is_damage() => {
                let quarantined = quarantine(path, &header, e.to_string(), rng)?;
                (open_parts(path, &header, &options)?, Some(quarantined))
            }
            Err(e) => return Err(e.into()),
        };
        let owner = Owner::Directory { _lock: lock };
        Ok(parts.into_opened(header, quarantined, owner))
    }

    /// Opens a memory disk the same way; a damaged store is an error here.
    /// Blocks while flushes are held.
    pub fn open_memory(
        disk: &MemoryDisk,
        node: &str,
        options: LogOptions,
        rng: &mut Rng,
    ) -> Result<Opened, OpenError> {
        let path = Path::new("memory:/");
        let claim = disk.claim().ok_or(OpenError::Locked { path: path.to_owned(), pid: None })?;
        let root = claim.folder("");
        let at = |e| StorageError::io_at("reading the header of the data directory", path, e);
        let header = match header::read(&*root).map_err(at)? {
            Some(bytes) => owned(path, node, &bytes)?,
            None => new_header(node, rng),
        };
        let header = HeaderStore::new(root, header);
        let parts = Parts::start(claim.medium(), claim.folder("images/"), &header, options)?;
        Ok(parts.into_opened(header, None, Owner::Memory { _claim: claim }))
    }

    /// Finishes what is queued and closes the log. The directory is free for
    /// another owner once all clones are dropped.
    pub async fn close(self) {
        self.log.clone().close().await;
    }
}

struct Parts {
    log: LogStore,
    recovered: Recovered,
    images: ImageStore,
    damaged: Vec<DamagedImage>,
}

impl Parts {
    fn start(
        mut medium: Box<dyn Medium>,
        images: Arc<dyn Files>,
        header: &HeaderStore,
        options: LogOptions,
    ) -> Result<Parts, StorageError> {
        let (images, damaged) = ImageStore::open(images)?;
        let owner = header.get();
        check_owner(&mut *medium, owner.raft_id, !owner.ready)?;
        if !owner.ready {
            header.write(Header { ready: true, ..owner })?;
        }
        let recovered = recover(&mut *medium)?;
        covers_the_log(&images, &recovered, &damaged)?;
        let log = LogStore::start(medium, &recovered, options)?;
        Ok(Parts { log, recovered, images, damaged })
    }

    fn into_opened(self, header: HeaderStore, quarantined: Option<Quarantined>, owner: Owner) -> Opened {
        let storage = Storage { log: self.log, images: self.images, header, _owner: Arc::new(owner) };
        Opened { storage, recovered: self.recovered, damaged_images: self.damaged, quarantined }
    }
}

/// The newest image has to reach the start of the log: what lies between them
/// would be lost.
fn covers_the_log(
    images: &ImageStore,
    recovered: &Recovered,
    damaged: &[DamagedImage],
) -> Result<(), StorageError> {
    let next = images.newest().map_or(0, |i| i.id().index + 1);
    let start = recovered.start;
    if next >= start {
        return Ok(());
    }
    let skipped: Vec<_> = damaged.iter().map(|d| d.reason.clone()).collect();
    let skipped = if skipped.is_empty() { "no image is there".to_owned() } else { skipped.join("; ") };
    Err(StorageError::damaged(
        "the set of images",
        format!("the log begins at index {start} but the newest valid image ends at {next}: {skipped}"),
    ))
}

/// Takes the directory's lock and leaves this process's id in it.
fn lock_directory(path: &Path) -> Result<File, OpenError> {
    let lock = path.join(LOCK);
    let failed = |e| StorageError::io_at("locking the data directory", &lock, e);
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only for the message: an unreadable id is left out of it.
            let _ = file.read_to_string(&mut pid);
            return Err(OpenError::Locked { path: path.to_owned(), pid: pid.trim().parse().ok() });
        }
        Err(TryLockError::Error(e)) => return Err(failed(e).into()),
    }
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(file)
}

fn owned(path: &Path, node: &str, bytes: &[u8]) -> Result<Header, OpenError> {
    let path = path.to_owned();
    let header = match Header::decode(bytes) {
        Ok(header) => header,
        Err(reason) => return Err(OpenError::DamagedHeader { path, reason }),
    };
    if header.version != DATA_VERSION {
        return Err(OpenError::OtherVersion { path, found: header.version });
    }
    if header.node != node {
        return Err(OpenError::OtherNode { path, found: header.node, expected: node.to_owned() });
    }
    Ok(header)
}

fn new_header(node: &str, rng: &mut Rng) -> Header {
    let raft_id = rng.next_u64().max(1);
    Header { version: DATA_VERSION, node: node.to_owned(), raft_id, cluster: None, epoch: 0, ready: false }
}

fn first_header(path: &Path, node: &str, rng: &mut Rng) -> Result<Header, OpenError> {
    let failed = |e| StorageError::io_at("listing the data directory", path, e);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // The last is what an interrupted first start leaves behind.
        let harmless = [LOCK, "lost+found", "header.tmp"];
        if !harmless.iter().any(|h| name == *h) {
            return Err(OpenError::NotOurs { path: path.to_owned() });
        }
    }
    Ok(new_header(node, rng))
}

/// Opens or creates log and images.
fn open_parts(path: &Path, header: &HeaderStore, options: &LogOptions) -> Result<Parts, StorageError> {
    let (log_dir, ready) = (path.join(LOG), header.get().ready);
    if ready && !log_dir.join("db").exists() {
        return Err(StorageError::damaged(
            format!("the log store at {}", log_dir.display()),
            "it is missing",
        ));
    }
    if !ready {
        // Nothing was ever acknowledged from it: a start that was interrupted.
        header.write(header.get())?;
        let removed = if log_dir.exists() { fs::remove_dir_all(&log_dir) } else { Ok(()) };
        removed.map_err(|e| StorageError::io_at("clearing an unfinished log store", &log_dir, e))?;
    }
    let images = Folder::create(&path.join(IMAGES));
    let images =
        images.map_err(|e| StorageError::io_at("creating the image folder", path.join(IMAGES), e))?;
    let medium = sled_store::open(&log_dir, SLED_CACHE_BYTES)?;
    Parts::start(Box::new(medium), Arc::new(images), header, options.clone())
}

/// Moves log and images aside and starts over under a new Raft id. The cluster
/// is kept: this manager rejoins it and never forms another.
fn quarantine(
    path: &Path,
    header: &HeaderStore,
    reason: String,
    rng: &mut Rng,
) -> Result<Quarantined, StorageError> {
    let old = header.get();
    let name = |n: u32| path.join(QUARANTINE).join(format!("{:016x}-{n}", old.raft_id));
    let place = (0..).map(name).find(|p| !p.exists()).unwrap_or_else(|| name(0));
    let moved = || -> io::Result<()> {
        fs::create_dir_all(&place)?;
        for part in [LOG, IMAGES] {
            match fs::rename(path.join(part), place.join(part)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        fs::write(place.join("reason"), &reason)?;
        fsync::folder(&place)?;
        fsync::folder(&path.join(QUARANTINE))?;
        fsync::folder(path)
    };
    moved().map_err(|e| StorageError::io_at("moving a damaged store aside", &place, e))?;
    let raft_id = new_header(&old.node, rng).raft_id;
    header.write(Header { raft_id, ready: false, ..old.clone() })?;
    Ok(Quarantined { path: place, reason, raft_id: old.raft_id })
}
