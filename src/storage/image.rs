//! Whole-state images: checksummed, compressed files, of which two are kept.
//!
//! A file appears under its name only when it is
//! whole and durable: temporary name, fsync, rename, fsync of the folder.

use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use quorate_base::sync::lock;
use quorate_base::tasks::spawn_thread;
use tokio::sync::oneshot;

use crate::StorageError;
use crate::files::{FileReader, FileWriter, Files};
use crate::image_file::{BUFFER, Body, Checked, SYNC_EVERY, check, fill};

const KEPT: usize = 2;

/// The log position that an image covers: its last entry's index and term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    /// Index of the last entry that the image includes.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

impl ImageId {
    fn name(self) -> String {
        format!("image-{:020}-{:020}", self.index, self.term)
    }

    fn parse(name: &str) -> Option<ImageId> {
        let (index, term) = name.strip_prefix("image-")?.split_once('-')?;
        Some(ImageId { index: index.parse().ok()?, term: term.parse().ok()? })
    }
}

/// A damaged image that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedImage {
    /// Its file.
    pub path: std::path::PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// A durable, checked image. Keeps its file open, so that it can be read after
/// newer ones have replaced it.
#[derive(Clone)]
pub struct Image {
    id: ImageId,
    meta: Bytes,
    body: Body,
    name: String,
    file: Arc<Mutex<Box<dyn FileReader>>>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("id", &self.id).field("body", &self.body).finish_non_exhaustive()
    }
}

impl Image {
    fn open(files: &dyn Files, name: String, expected: Option<ImageId>) -> Result<Image, StorageError> {
        let Checked { id, meta, body, file } = check(files, &name, expected)?;
        Ok(Image { id, meta, body, name, file: Arc::new(Mutex::new(file)) })
    }

    /// What it covers.
    pub fn id(&self) -> ImageId {
        self.id
    }

    /// The caller's bytes from the head.
    pub fn meta(&self) -> &Bytes {
        &self.meta
    }

    /// Size of the whole file in bytes.
    pub fn file_len(&self) -> u64 {
        self.body.file_len
    }

    /// Reads up to `len` bytes of the file (head and trailer included) from
    /// `offset`, to send it elsewhere. Blocks.
    pub fn chunk(&self, offset: u64, len: usize) -> Result<Bytes, StorageError> {
        let left = self.body.file_len.saturating_sub(offset).min(len as u64) as usize;
        let mut out = vec![0; left];
        let mut file = lock(&self.file);
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut out));
        read.map_err(|e| StorageError::io_at("reading an image", &self.name, e))?;
        Ok(Bytes::from(out))
    }

    /// Hands the decompressed body to `consume`. Blocks.
    pub fn read<T>(&self, consume: impl FnOnce(&mut dyn Read) -> io::Result<T>) -> Result<T, StorageError> {
        let mut body = ImageBody { image: self.clone(), at: 0 };
        let buffered = BufReader::with_capacity(BUFFER, &mut body);
        let read = zstd::stream::Decoder::with_buffer(buffered).and_then(|mut d| consume(&mut d));
        read.map_err(|e| StorageError::damaged(format!("image {}", self.name), e.to_string()))
    }
}

struct ImageBody {
    image: Image,
    at: u64,
}

impl Read for ImageBody {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min((self.image.body.len - self.at) as usize);
        let mut file = lock(&self.image.file);
        file.seek(SeekFrom::Start(self.image.body.offset + self.at))?;
        let read = file.read(&mut out[..len])?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The images of a data directory. A cheap handle.
#[derive(Debug, Clone)]
pub struct ImageStore {
    files: Arc<dyn Files>,
    newest: Arc<Mutex<Option<Image>>>,
    temporary: Arc<AtomicU64>,
}

impl ImageStore {
    /// Finds the newest image that checks out; damaged ones are reported and
    /// left alone. Unfinished files are removed. Blocks.
    pub(crate) fn open(files: Arc<dyn Files>) -> Result<(ImageStore, Vec<DamagedImage>), StorageError> {
        let failed = |e| StorageError::io_at("listing images", files.path(""), e);
        let (mut ids, mut damaged, mut newest) = (Vec::new(), Vec::new(), None);
        for name in files.list().map_err(failed)? {
            match ImageId::parse(&name) {
                Some(id) => ids.push(id),
                None if name.ends_with(".tmp") => files.remove(&name).map_err(failed)?,
                None => {}
            }
        }
        ids.sort();
        for id in ids.into_iter().rev() {
            match Image::open(&*files, id.name(), Some(id)) {
                Ok(image) => {
                    newest = Some(image);
                    break;
                }
                Err(e) if e.is_damage() => {
                    damaged.push(DamagedImage { path: files.path(&id.name()), reason: e.to_string() });
                }
                Err(e) => return Err(e),
            }
        }
        let newest = Arc::new(Mutex::new(newest));
        Ok((ImageStore { files, newest, temporary: Arc::default() }, damaged))
    }

    /// The newest valid image.
    pub fn newest(&self) -> Option<Image> {
        lock(&self.newest).clone()
    }

    /// Writes an image on a thread of its own: `produce` streams the body. When
    /// this returns it is durable and the newest (unless a newer one exists).
    pub async fn write(
        &self,
        id: ImageId,
        meta: Bytes,
        produce: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Image, StorageError> {
        let store = self.clone();
        blocking("quorate-image", move || store.write_blocking(id, &meta, produce)).await
    }

    /// Hands `image` to `load` on a thread of its own; see [`Image::read`].
    pub async fn load_with<T: Send + 'static>(
        &self,
        image: Image,
        load: impl FnOnce(&Image) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        blocking("quorate-image", move || load(&image)).await
    }

    /// Reads a part of the file off the async workers; see [`Image::chunk`].
    pub async fn chunk(&self, image: Image, offset: u64, len: usize) -> Result<Bytes, StorageError> {
        blocking("quorate-image", move || image.chunk(offset, len)).await
    }

    fn write_blocking(
        &self,
        id: ImageId,
        meta: &[u8],
        produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Image, StorageError> {
        let tmp = self.temporary_name();
        let written = self.files.create(&tmp).and_then(|file| fill(file, id, meta, produce));
        match written {
            Ok(()) => self.publish(&tmp, id),
            Err(e) => {
                // The failure to report is the first one; a leftover goes at the next start.
                let _ = self.files.remove(&tmp);
                Err(StorageError::io_at("writing an image", self.files.path(&id.name()), e))
            }
        }
    }

    /// Starts to receive an image file from elsewhere. Blocks shortly.
    pub fn receive(&self) -> Result<ImageReceiver, StorageError> {
        let tmp = self.temporary_name();
        let file = self.files.create(&tmp);
        let file = file.map_err(|e| StorageError::io_at("receiving an image", self.files.path(&tmp), e))?;
        Ok(ImageReceiver { store: self.clone(), file: Some(file), tmp, unsynced: 0, len: 0 })
    }

    /// Makes `image` the newest one here, copying it if it belongs to another
    /// store. Blocks.
    pub fn adopt(&self, image: &Image) -> Result<(), StorageError> {
        if self.newest().is_some_and(|newest| newest.id() >= image.id()) {
            return Ok(());
        }
        let mut receiver = self.receive()?;
        while receiver.received() < image.file_len() {
            receiver.write(&image.chunk(receiver.received(), BUFFER)?)?;
        }
        receiver.finish().map(drop)
    }

    fn temporary_name(&self) -> String {
        format!("{}.tmp", self.temporary.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives a complete, synced temporary file its name, and drops old images.
    fn publish(&self, tmp: &str, id: ImageId) -> Result<Image, StorageError> {
        let mut newest = lock(&self.newest);
        let name = id.name();
        let failed = |e| StorageError::io_at("publishing an image", self.files.path(&name), e);
        self.files.rename(tmp, &name).map_err(failed)?;
        self.files.sync_names().map_err(failed)?;
        let image = Image::open(&*self.files, name.clone(), Some(id))?;
        if newest.as_ref().is_none_or(|n| n.id <= id) {
            *newest = Some(image.clone());
        }
        let mut ids: Vec<_> =
            self.files.list().map_err(failed)?.iter().filter_map(|n| ImageId::parse(n)).collect();
        ids.sort();
        for old in ids.iter().rev().skip(KEPT) {
            self.files.remove(&old.name()).map_err(failed)?;
        }
        Ok(image)
    }
}

/// An image that arrives in chunks. Dropped unfinished, it leaves nothing behind.
pub struct ImageReceiver {
    store: ImageStore,
    file: Option<Box<dyn FileWriter>>,
    tmp: String,
    unsynced: u64,
    len: u64,
}

impl fmt::Debug for ImageReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageReceiver")
            .field("tmp", &self.tmp)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl ImageReceiver {
    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.len
    }

    /// Adds the next bytes of the file. Blocks.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), StorageError> {
        let path = self.store.files.path(&self.tmp);
        let Some(file) = &mut self.file else { return Err(StorageError::Closed) };
        let failed = |e| StorageError::io_at("receiving an image", path.clone(), e);
        file.write_all(chunk).map_err(failed)?;
        self.len += chunk.len() as u64;
        self.unsynced += chunk.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            file.sync().map_err(failed)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Checks the whole file and makes it durable and the newest image. Blocks.
    pub fn finish(mut self) -> Result<Image, StorageError> {
        let path = self.store.files.path(&self.tmp);
        let Some(mut file) = self.file.take() else { return Err(StorageError::Closed) };
        file.sync().map_err(|e| StorageError::io_at("receiving an image", path, e))?;
        drop(file);
        let checked = check(&*self.store.files, &self.tmp, None);
        let image = checked.and_then(|image| self.store.publish(&self.tmp, image.id));
        if image.is_err() {
            let _ = self.store.files.remove(&self.tmp);
        }
        image
    }
}

impl Drop for ImageReceiver {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // A leftover goes at the next start.
            let _ = self.store.files.remove(&self.tmp);
        }
    }
}

/// Runs work that blocks on a thread of its own, which `name` is given to.
///
/// # Errors
/// Those of the work; also if no thread can be had, or the work panics.
pub async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let (reply, answer) = oneshot::channel();
    let run = move || {
        // The caller may have given up; the work is done all the same.
        let _ = reply.send(work());
    };
    spawn_thread(name, run).map_err(|e| StorageError::io("starting a storage thread", e))?;
    let panicked = || StorageError::io(name, io::Error::other("the thread panicked"));
    answer.await.map_err(|_| panicked())?
}
