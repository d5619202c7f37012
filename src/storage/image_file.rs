//! The format of an image file: writing one, checking one.
//!
//! ```text
//! head     magic · format · index · term · meta length · meta · crc32 of the head
//! body     one zstd frame
//! trailer  body length · length before compression · crc32 of the body · magic
//! ```
//! All numbers are little-endian.

use std::io::{self, SeekFrom, Write};

use bytes::Bytes;

use crate::StorageError;
use crate::files::{FileReader, FileWriter, Files};
use crate::image::ImageId;

const MAGIC: &[u8; 8] = b"QRTIMAGE";
const END: &[u8; 4] = b"QEND";
const FORMAT: u32 = 1;
const HEAD: usize = 8 + 4 + 8 + 8 + 4;
const TRAILER: usize = 8 + 8 + 4 + 4;
/// Largest meta part, in bytes.
const MAX_META: usize = 1 << 20;
/// Dirty pages are written back in steps of this size: one sync of a large
/// image at its end would stall the log's flushes.
pub(crate) const SYNC_EVERY: u64 = 8 << 20;
/// Bytes read or written at once.
pub(crate) const BUFFER: usize = 256 << 10;
const LEVEL: i32 = 1;

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

pub(crate) fn fill(
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

/// A file that checks out.
pub(crate) struct Checked {
    pub(crate) id: ImageId,
    pub(crate) meta: Bytes,
    pub(crate) body: Body,
    pub(crate) file: Box<dyn FileReader>,
}

/// Where the body lies in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) file_len: u64,
}

/// Opens an image file and checks every byte of it.
pub(crate) fn check(
    files: &dyn Files,
    name: &str,
    expected: Option<ImageId>,
) -> Result<Checked, StorageError> {
    let mut file =
        files.open(name).map_err(|e| StorageError::io_at("opening an image", files.path(name), e))?;
    let checked = read_checked(&mut *file).and_then(|(id, meta, body)| match expected {
        Some(expected) if expected != id => {
            Err(invalid(format!("it holds entry {} of term {}", id.index, id.term)))
        }
        _ => Ok((id, meta, body)),
    });
    match checked {
        Ok((id, meta, body)) => Ok(Checked { id, meta, body, file }),
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            Err(StorageError::damaged(format!("image {}", files.path(name).display()), e.to_string()))
        }
        Err(e) => Err(StorageError::io_at("reading an image", files.path(name), e)),
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
