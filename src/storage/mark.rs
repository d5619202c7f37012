//! The file behind [`Mark`]: two slots written in turn, so that one of them is
//! whole after a torn write.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::medium::Mark;

/// Sequence, end, votes, crc32 of these.
const SLOT: usize = 28;
/// Slots lie in blocks of their own: a block is written whole or not at all.
const STRIDE: u64 = 4096;

#[derive(Debug)]
pub(crate) struct MarkFile {
    file: File,
    sequence: u64,
    mark: Mark,
}

impl MarkFile {
    pub(crate) fn open(path: &Path) -> io::Result<MarkFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut newest = (0, Mark::default());
        for slot in 0..2 {
            let mut bytes = [0; SLOT];
            match file.read_exact_at(&mut bytes, slot * STRIDE) {
                Ok(()) => newest = decode(&bytes).filter(|(s, _)| *s > newest.0).unwrap_or(newest),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(e) => return Err(e),
            }
        }
        Ok(MarkFile { file, sequence: newest.0, mark: newest.1 })
    }

    pub(crate) fn get(&self) -> Mark {
        self.mark
    }

    pub(crate) fn set(&mut self, mark: Mark, durable: bool) -> io::Result<()> {
        if mark != self.mark {
            self.sequence += 1;
            self.mark = mark;
            self.file.write_all_at(&encode(self.sequence, mark), self.sequence % 2 * STRIDE)?;
        }
        if durable { self.file.sync_data() } else { Ok(()) }
    }
}

fn encode(sequence: u64, mark: Mark) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(&sequence.to_le_bytes());
    out[8..16].copy_from_slice(&mark.end.to_le_bytes());
    out[16..24].copy_from_slice(&mark.votes.to_le_bytes());
    let crc = crc32fast::hash(&out[..24]);
    out[24..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8; SLOT]) -> Option<(u64, Mark)> {
    let number = |at: usize| bytes[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
    let crc = bytes[24..].first_chunk().map(|b| u32::from_le_bytes(*b))?;
    let mark = Mark { end: number(8)?, votes: number(16)? };
    (crc == crc32fast::hash(&bytes[..24])).then_some((number(0)?, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_slot_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        let mut file = MarkFile::open(&path).unwrap();
        assert_eq!(file.get(), Mark::default());
        for end in 1..=5 {
            file.set(Mark { end, votes: 9 }, end == 3).unwrap();
        }
        assert_eq!(MarkFile::open(&path).unwrap().get(), Mark { end: 5, votes: 9 });
        file.file.write_all_at(b"torn", file.sequence % 2 * STRIDE + 8).unwrap();
        assert_eq!(MarkFile::open(&path).unwrap().get(), Mark { end: 4, votes: 9 });
    }
}
