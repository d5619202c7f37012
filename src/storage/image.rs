//! Whole-state images: checksummed, compressed files, of which two are kept.
//!
//! ```text
//! head     magic · format · index · term · meta length · meta · crc32 of the head
//! body     one zstd frame
//! trailer  body length · length before compression · crc32 of the body · magic
//! ```
//! All numbers are little-endian. A file appears under its name only when it is
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

const MAGIC: &[u8; 8] = b"QRTIMAGE";
const END: &[u8; 4] = b"QEND";
const FORMAT: u32 = 1;
const HEAD: usize = 8 + 4 + 8 + 8 + 4;
const TRAILER: usize = 8 + 8 + 4 + 4;
/// Largest meta part, in bytes.
const MAX_META: usize = 1 << 20;
/// Dirty pages are written back in steps of this size: one sync of a large
/// image at its end would stall the log's flushes.
const SYNC_EVERY: u64 = 8 << 20;
const KEPT: usize = 2;
const BUFFER: usize = 256 << 10;
const LEVEL: i32 = 1;

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

#[derive(Debug, Clone, Copy)]
struct Body {
    offset: u64,
    len: u64,
    file_len: u64,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("id", &self.id).field("body", &self.body).finish_non_exhaustive()
    }
}

impl Image {
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
            match check(&*files, id.name(), Some(id)) {
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

    /// Reads `image` on a thread of its own; see [`Image::read`].
    pub async fn load<T: Send + 'static>(
        &self,
        image: Image,
        consume: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StorageError> {
        blocking("quorate-image", move || image.read(consume)).await
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
        let image = check(&*self.files, name.clone(), Some(id))?;
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
        let checked = check(&*self.store.files, self.tmp.clone(), None);
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

/// Counts and checksums what passes through, and syncs now and then.
struct Metered {
    file: Box<dyn FileWriter>,
    crc: crc32fast::Hasher,
    len: u64,
    unsynced: u64,
}

impl Write for Metered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.crc.update(bytes);
        self.len += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.file.sync()?;
            self.unsynced = 0;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counted<W> {
    inner: W,
    len: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.len += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn fill(
    mut file: Box<dyn FileWriter>,
    id: ImageId,
    meta: &[u8],
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut head = Vec::with_capacity(HEAD + meta.len() + 4);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(&id.index.to_le_bytes());
    head.extend_from_slice(&id.term.to_le_bytes());
    head.extend_from_slice(&(meta.len() as u32).to_le_bytes());
    head.extend_from_slice(meta);
    let crc = crc32fast::hash(&head);
    head.extend_from_slice(&crc.to_le_bytes());
    file.write_all(&head)?;
    let metered = Metered { file, crc: crc32fast::Hasher::new(), len: 0, unsynced: 0 };
    let buffered = io::BufWriter::with_capacity(BUFFER, metered);
    let mut encoder = zstd::stream::Encoder::new(buffered, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut counted = Counted { inner: encoder, len: 0 };
    produce(&mut counted)?;
    let raw = counted.len;
    let mut body = counted.inner.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let mut trailer = Vec::with_capacity(TRAILER);
    trailer.extend_from_slice(&body.len.to_le_bytes());
    trailer.extend_from_slice(&raw.to_le_bytes());
    trailer.extend_from_slice(&body.crc.finalize().to_le_bytes());
    trailer.extend_from_slice(END);
    body.file.write_all(&trailer)?;
    body.file.sync()
}

/// Opens an image file and checks every byte of it.
fn check(files: &dyn Files, name: String, expected: Option<ImageId>) -> Result<Image, StorageError> {
    let mut file =
        files.open(&name).map_err(|e| StorageError::io_at("opening an image", files.path(&name), e))?;
    let checked = read_checked(&mut *file).and_then(|(id, meta, body)| match expected {
        Some(expected) if expected != id => {
            Err(invalid(format!("it holds entry {} of term {}", id.index, id.term)))
        }
        _ => Ok((id, meta, body)),
    });
    match checked {
        Ok((id, meta, body)) => Ok(Image { id, meta, body, name, file: Arc::new(Mutex::new(file)) }),
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            Err(StorageError::damaged(format!("image {}", files.path(&name).display()), e.to_string()))
        }
        Err(e) => Err(StorageError::io_at("reading an image", files.path(&name), e)),
    }
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

fn read_checked(file: &mut dyn FileReader) -> io::Result<(ImageId, Bytes, Body)> {
    let file_len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut head = [0; HEAD];
    file.read_exact(&mut head)?;
    if !head.starts_with(MAGIC) {
        return Err(invalid("it is no image"));
    }
    let (format, meta_len) = (u32_at(&head, 8), u32_at(&head, 28) as usize);
    if format != FORMAT {
        return Err(invalid(format!("image format {format} is unknown (this version reads {FORMAT})")));
    }
    if meta_len > MAX_META {
        return Err(invalid(format!("its meta part claims {meta_len} bytes")));
    }
    let id = ImageId { index: u64_at(&head, 12), term: u64_at(&head, 20) };
    let mut meta = vec![0; meta_len + 4];
    file.read_exact(&mut meta)?;
    let stored = u32_at(&meta, meta_len);
    meta.truncate(meta_len);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&meta);
    if crc.finalize() != stored {
        return Err(invalid("the checksum of its head does not fit"));
    }
    let offset = (HEAD + meta_len + 4) as u64;
    let len = file_len.checked_sub(offset + TRAILER as u64).ok_or_else(|| invalid("it is cut short"))?;
    let crc = checksum(file, len)?;
    let mut trailer = [0; TRAILER];
    file.read_exact(&mut trailer)?;
    if &trailer[20..] != END || u64_at(&trailer, 0) != len {
        return Err(invalid("it is cut short"));
    }
    if u32_at(&trailer, 16) != crc {
        return Err(invalid("the checksum of its body does not fit"));
    }
    Ok((id, Bytes::from(meta), Body { offset, len, file_len }))
}

fn checksum(file: &mut dyn FileReader, mut len: u64) -> io::Result<u32> {
    let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; BUFFER]);
    while len > 0 {
        let step = len.min(BUFFER as u64) as usize;
        file.read_exact(&mut buffer[..step])?;
        crc.update(&buffer[..step]);
        len -= step as u64;
    }
    Ok(crc.finalize())
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Runs work that blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let (reply, answer) = oneshot::channel();
    let run = move || {
        // The caller may have given up; the work is done all the same.
        let _ = reply.send(work());
    };
    spawn_thread(name, run).map_err(|e| StorageError::io("starting a storage thread", e))?;
    answer.await.map_err(|_| StorageError::damaged(name, "its thread panicked"))?
}
