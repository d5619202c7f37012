//! A disk in memory that behaves like a bad one: what is not flushed is lost at
//! a power cut, and any step can be made to fail, hang or be slow.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use quorate_base::Rng;
use quorate_base::sync::lock;

use crate::files::{FileReader, FileWriter, Files};
use crate::medium::{Batch, Change, Mark, Medium, Reader};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone, Default)]
struct Trees {
    log: Map,
    meta: Map,
}

impl Trees {
    fn apply(&mut self, batch: &Batch) {
        for (map, changes) in [(&mut self.meta, &batch.meta), (&mut self.log, &batch.log)] {
            changes.iter().for_each(|c| change(map, c));
        }
    }
}

fn change(map: &mut Map, (key, value): &Change) {
    match value {
        Some(value) => map.insert(key.clone(), value.clone()),
        None => map.remove(key),
    };
}

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: usize,
}

#[derive(Debug, Clone)]
enum NameOp {
    Set(String, u64),
    Remove(String),
}

fn rename(names: &mut BTreeMap<String, u64>, op: &NameOp) {
    match op {
        NameOp::Set(name, file) => names.insert(name.clone(), *file),
        NameOp::Remove(name) => names.remove(name),
    };
}

#[derive(Debug, Default)]
struct FileState {
    next: u64,
    contents: BTreeMap<u64, Content>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending: Vec<NameOp>,
}

#[derive(Debug, Default)]
struct Faults {
    write: Option<io::ErrorKind>,
    flush: Option<io::ErrorKind>,
    full: bool,
    hold: bool,
    delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Raised at each power cut: what was open before can't touch the disk.
    boot: u64,
    durable: Trees,
    view: Trees,
    pending: Vec<Batch>,
    files: FileState,
    faults: Faults,
    in_use: bool,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// The disk. A cheap handle: keep one to cut the power and to open again.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Inner>);

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Cuts the power: a random prefix of what was not flushed is left, the last
    /// piece of it perhaps torn. Whoever has the disk open gets errors from now
    /// on; open it again to see what is left.
    pub fn power_cut(&self, seed: u64) {
        let mut rng = Rng::seeded(seed);
        let state = &mut *lock(&self.0.state);
        state.boot += 1;
        state.in_use = false;
        state.faults = Faults::default();
        let pending = std::mem::take(&mut state.pending);
        let keep = rng.below(pending.len() as u64 + 1) as usize;
        pending[..keep].iter().for_each(|b| state.durable.apply(b));
        if let Some(torn) = pending.get(keep)
            && rng.chance(0.5)
        {
            tear(&mut state.durable, torn, &mut rng);
        }
        state.view = state.durable.clone();
        cut_files(&mut state.files, &mut rng);
        self.0.changed.notify_all();
    }

    /// Flushes hang from now on, until [`MemoryDisk::release_flushes`] or a power cut.
    pub fn hold_flushes(&self) {
        lock(&self.0.state).faults.hold = true;
    }

    /// Lets held flushes finish.
    pub fn release_flushes(&self) {
        lock(&self.0.state).faults.hold = false;
        self.0.changed.notify_all();
    }

    /// Each flush takes this long from now on.
    pub fn slow_flushes(&self, delay: Duration) {
        lock(&self.0.state).faults.delay = delay;
    }

    /// The next flush of the log fails, and what it should have written is lost
    /// (as on Linux, which drops the pages of a failed fsync).
    pub fn fail_next_flush(&self, kind: io::ErrorKind) {
        lock(&self.0.state).faults.flush = Some(kind);
    }

    /// The next write to the log fails.
    pub fn fail_next_write(&self, kind: io::ErrorKind) {
        lock(&self.0.state).faults.write = Some(kind);
    }

    /// Whether the disk is full: writes to files and the log fail, removals work.
    pub fn set_full(&self, full: bool) {
        lock(&self.0.state).faults.full = full;
    }

    /// Blocks until at least `batches` log batches wait to be flushed.
    pub fn wait_unflushed(&self, batches: usize) {
        let mut state = lock(&self.0.state);
        while state.pending.len() < batches {
            state = wait(&self.0.changed, state);
        }
    }

    /// Changes one random bit of one random durable log record; false if there is none.
    pub fn rot(&self, seed: u64) -> bool {
        let mut rng = Rng::seeded(seed);
        let state = &mut *lock(&self.0.state);
        let n = rng.below(state.durable.log.len() as u64) as usize;
        let Some(value) = state.durable.log.values_mut().nth(n) else { return false };
        let at = rng.below(value.len() as u64) as usize;
        value[at] ^= 1 << rng.below(8);
        state.view = state.durable.clone();
        true
    }

    /// Changes one byte in the middle of a durable file; false if there is no such file.
    pub fn damage_file(&self, name: &str) -> bool {
        let state = &mut *lock(&self.0.state);
        let content = state.files.names.get(name).and_then(|f| state.files.contents.get_mut(f));
        let Some(content) = content else { return false };
        let middle = content.bytes.len() / 2;
        content.bytes.get_mut(middle).map(|b| *b ^= 0x10).is_some()
    }

    /// The names of the files on the disk.
    pub fn file_names(&self) -> Vec<String> {
        lock(&self.0.state).files.names.keys().cloned().collect()
    }

    /// Takes the disk for one owner; `None` if it is in use.
    pub(crate) fn claim(&self) -> Option<MemoryClaim> {
        let mut state = lock(&self.0.state);
        if std::mem::replace(&mut state.in_use, true) {
            return None;
        }
        Some(MemoryClaim { disk: self.clone(), boot: state.boot })
    }

    /// Empties the disk, as if it had been replaced.
    pub fn wipe(&self) {
        let state = &mut *lock(&self.0.state);
        *state = State { boot: state.boot + 1, ..State::default() };
        self.0.changed.notify_all();
    }
}

fn wait<'a>(changed: &Condvar, guard: std::sync::MutexGuard<'a, State>) -> std::sync::MutexGuard<'a, State> {
    changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Writes a part of a batch: some changes in order, the last new value cut short.
fn tear(durable: &mut Trees, batch: &Batch, rng: &mut Rng) {
    batch.meta.iter().for_each(|c| change(&mut durable.meta, c));
    let n = rng.below(batch.log.len() as u64 + 1) as usize;
    batch.log[..n].iter().for_each(|c| change(&mut durable.log, c));
    if let Some((key, Some(value))) = batch.log.get(n)
        && !durable.log.contains_key(key)
    {
        let keep = rng.below(value.len() as u64) as usize;
        durable.log.insert(key.clone(), value[..keep].to_vec());
    }
}

fn cut_files(files: &mut FileState, rng: &mut Rng) {
    let pending = std::mem::take(&mut files.pending);
    let keep = rng.below(pending.len() as u64 + 1) as usize;
    pending[..keep].iter().for_each(|op| rename(&mut files.durable_names, op));
    files.names = files.durable_names.clone();
    files.contents.retain(|id, _| files.names.values().any(|n| n == id));
    for content in files.contents.values_mut() {
        let unsynced = (content.bytes.len() - content.synced) as u64;
        content.bytes.truncate(content.synced + rng.below(unsynced + 1) as usize);
        content.synced = content.bytes.len();
    }
}

/// One owner's access to the disk, ended by a power cut.
#[derive(Debug)]
pub(crate) struct MemoryClaim {
    disk: MemoryDisk,
    boot: u64,
}

impl MemoryClaim {
    pub(crate) fn medium(&self) -> Box<dyn Medium> {
        Box::new(self.access())
    }

    /// A flat folder whose names all begin with `prefix`.
    pub(crate) fn folder(&self, prefix: &'static str) -> Arc<dyn Files> {
        Arc::new(MemoryFolder { access: self.access(), prefix })
    }

    fn access(&self) -> Access {
        Access { disk: self.disk.clone(), boot: self.boot }
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let mut state = lock(&self.disk.0.state);
        if state.boot == self.boot {
            state.in_use = false;
        }
    }
}

#[derive(Debug, Clone)]
struct Access {
    disk: MemoryDisk,
    boot: u64,
}

impl Access {
    fn state(&self) -> io::Result<std::sync::MutexGuard<'_, State>> {
        let state = lock(&self.disk.0.state);
        if state.boot == self.boot { Ok(state) } else { Err(io::Error::other("the power was cut")) }
    }

    /// The state once no fault delays flushes.
    fn flushing(&self) -> io::Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.state()?;
        let delay = state.faults.delay;
        if !delay.is_zero() {
            let waited = self.disk.0.changed.wait_timeout_while(state, delay, |s| s.boot == self.boot);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        while state.faults.hold && state.boot == self.boot {
            state = wait(&self.disk.0.changed, state);
        }
        if state.boot == self.boot { Ok(state) } else { Err(io::Error::other("the power was cut")) }
    }
}

fn full(state: &State) -> io::Result<()> {
    if state.faults.full { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
}

impl Medium for Access {
    fn apply(&mut self, batch: Batch) -> io::Result<()> {
        let mut state = self.state()?;
        if let Some(kind) = state.faults.write.take() {
            return Err(io::Error::from(kind));
        }
        if batch.meta.iter().chain(&batch.log).any(|(_, value)| value.is_some()) {
            full(&state)?;
        }
        if !batch.is_empty() {
            state.view.apply(&batch);
            state.pending.push(batch);
            self.disk.0.changed.notify_all();
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.flushing()?;
        let pending = std::mem::take(&mut state.pending);
        if let Some(kind) = state.faults.flush.take() {
            return Err(io::Error::from(kind));
        }
        pending.iter().for_each(|b| state.durable.apply(b));
        Ok(())
    }

    /// Never loses what was flushed unless a test damages it, so it keeps none.
    fn marked(&self) -> io::Result<Mark> {
        Ok(Mark::default())
    }

    fn mark(&mut self, _mark: Mark, _durable: bool) -> io::Result<()> {
        Ok(())
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(self.clone())
    }

    fn size(&self) -> u64 {
        let bytes = |m: &Map| m.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        self.state().map_or(0, |s| (bytes(&s.view.log) + bytes(&s.view.meta)) as u64)
    }
}

impl Reader for Access {
    fn meta(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state()?.view.meta.get(key).cloned())
    }

    fn floor(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state()?.view.log.range(..=key.to_vec()).next_back().map(|(k, _)| k.clone()))
    }

    fn scan(&self, from: &[u8], limit: usize) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut out, mut bytes) = (Vec::new(), 0);
        for (k, v) in self.state()?.view.log.range(from.to_vec()..) {
            bytes += v.len();
            out.push((k.clone(), v.clone()));
            if bytes >= limit {
                break;
            }
        }
        Ok(out)
    }
}

#[derive(Debug)]
struct MemoryFolder {
    access: Access,
    prefix: &'static str,
}

impl MemoryFolder {
    fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Files for MemoryFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.access.state()?;
        Ok(state.files.names.keys().filter_map(|n| n.strip_prefix(self.prefix)).map(str::to_owned).collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn FileWriter>> {
        let state = &mut *self.access.state()?;
        full(state)?;
        state.files.next += 1;
        let file = state.files.next;
        state.files.contents.insert(file, Content::default());
        let op = NameOp::Set(self.full_name(name), file);
        rename(&mut state.files.names, &op);
        state.files.pending.push(op);
        Ok(Box::new(MemoryFile { access: self.access.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        let state = self.access.state()?;
        let file = state.files.names.get(&self.full_name(name)).ok_or_else(missing)?;
        let content = state.files.contents.get(file).ok_or_else(missing)?;
        Ok(Box::new(Cursor::new(content.bytes.clone())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.access.state()?;
        let file = *state.files.names.get(&self.full_name(from)).ok_or_else(missing)?;
        for op in [NameOp::Set(self.full_name(to), file), NameOp::Remove(self.full_name(from))] {
            rename(&mut state.files.names, &op);
            state.files.pending.push(op);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.access.state()?;
        let op = NameOp::Remove(self.full_name(name));
        state.files.names.remove(&self.full_name(name)).ok_or_else(missing)?;
        state.files.pending.push(op);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let state = &mut *self.access.flushing()?;
        for op in std::mem::take(&mut state.files.pending) {
            rename(&mut state.files.durable_names, &op);
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("memory:/{}", self.full_name(name)))
    }
}

struct MemoryFile {
    access: Access,
    file: u64,
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let state = &mut *self.access.state()?;
        full(state)?;
        let content = state.files.contents.get_mut(&self.file).ok_or_else(missing)?;
        content.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileWriter for MemoryFile {
    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.access.flushing()?;
        let content = state.files.contents.get_mut(&self.file).ok_or_else(missing)?;
        content.synced = content.bytes.len();
        Ok(())
    }
}
