//! The output of a process: one file of bounded size for both streams, with a bounded number of predecessors.
//!
//! Each file begins with `@<base>`, the count of bytes in all files before it, so that a position in the output stays
//! one number for ever, whatever was rotated away. Each line is `<milliseconds since 1970> <stream> <data>`, the stream
//! being `o` or `e`, or `O` or `E` when the line goes on in the next record of that stream.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use quorate_base::Timestamp;

use crate::runtime::streams::MOST_PIECE;

/// Name of the file that is being written.
pub(crate) const OUTPUT: &str = "output.log";

/// `output.log`, with `output.log.1` as the newest of its predecessors.
#[derive(Debug)]
pub(super) struct RotatingLog {
    path: PathBuf,
    most_bytes: u64,
    files: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    base: u64,
    size: u64,
}

/// The path of the file that was rotated `number` times.
pub(crate) fn numbered(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => path.to_owned(),
        _ => PathBuf::from(format!("{}.{number}", path.display())),
    }
}

/// What a file's first line says of the bytes before it.
pub(crate) fn base_of(file: &File) -> Option<u64> {
    let mut first = String::new();
    // Bounded: what is no head is not read as one.
    BufReader::new(io::Read::take(file, 64)).read_line(&mut first).ok()?;
    first.strip_prefix('@')?.strip_suffix('\n')?.parse().ok()
}

/// A record as it is written.
pub(super) fn record(at: Timestamp, stderr: bool, data: &[u8], unfinished: bool) -> Vec<u8> {
    let stream = match (stderr, unfinished) {
        (false, false) => 'o',
        (true, false) => 'e',
        (false, true) => 'O',
        (true, true) => 'E',
    };
    let mut record = format!("{} {stream} ", at.as_millis()).into_bytes();
    record.extend_from_slice(data);
    record.push(b'\n');
    record
}

/// Cuts a stream into lines, and lines that are too long into pieces.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Takes bytes and gives what is whole: a piece, and whether its line goes on.
    pub(super) fn take(&mut self, bytes: &[u8], mut give: impl FnMut(&[u8], bool)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(part);
            if self.0.last() == Some(&b'\n') {
                self.0.pop();
                while self.0.len() > MOST_PIECE {
                    give(&self.0[..MOST_PIECE], true);
                    self.0.drain(..MOST_PIECE);
                }
                give(&self.0, false);
                self.0.clear();
            }
            while self.0.len() > MOST_PIECE {
                give(&self.0[..MOST_PIECE], true);
                self.0.drain(..MOST_PIECE);
            }
        }
    }

    /// Gives the last line, if it was not ended.
    pub(super) fn finish(&mut self, mut give: impl FnMut(&[u8], bool)) {
        if !self.0.is_empty() {
            give(&self.0, false);
            self.0.clear();
        }
    }
}

impl RotatingLog {
    /// At most `files` files of about `most_bytes` each, at least one.
    pub(super) const fn new(path: PathBuf, most_bytes: u64, files: u32) -> Self {
        Self { path, most_bytes, files, open: None }
    }

    /// Appends, or drops what cannot be written: a full disk must not stall the process that writes.
    pub(super) fn append(&mut self, record: &[u8]) {
        if self.try_append(record).is_err() {
            self.open = None;
        }
    }

    fn try_append(&mut self, record: &[u8]) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.reopen()?,
        };
        let head = head(open.base).len() as u64;
        if open.size > head && open.size.saturating_add(record.len() as u64) > self.most_bytes {
            let base = open.base.saturating_add(open.size);
            drop(open);
            self.rotate()?;
            open = create(&self.path, base)?;
        }
        open.file.write_all(record)?;
        open.size = open.size.saturating_add(record.len() as u64);
        self.open = Some(open);
        Ok(())
    }

    /// Goes on where an earlier run, or a failed write, left off.
    fn reopen(&self) -> io::Result<Open> {
        let end = |path: &Path| -> io::Result<Option<(u64, u64)>> {
            match File::open(path) {
                Ok(file) => Ok(Some((base_of(&file).unwrap_or(0), file.metadata()?.len()))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        match end(&self.path)? {
            Some((base, size)) if size > 0 => {
                let mut file = OpenOptions::new().append(true).open(&self.path)?;
                // A write that failed in the middle leaves half a record: the next one must not join it.
                let torn = !fs::read(&self.path)?.ends_with(b"\n");
                if torn {
                    file.write_all(b"\n")?;
                }
                Ok(Open { file, base, size: size + u64::from(torn) })
            }
            _ => {
                let before = end(&numbered(&self.path, 1))?;
                create(&self.path, before.map_or(0, |(base, size)| base.saturating_add(size)))
            }
        }
    }

    fn rotate(&self) -> io::Result<()> {
        if self.files <= 1 {
            return fs::remove_file(&self.path);
        }
        for number in (0..self.files - 1).rev() {
            match fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn head(base: u64) -> String {
    format!("@{base}\n")
}

fn create(path: &Path, base: u64) -> io::Result<Open> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let head = head(base);
    file.write_all(head.as_bytes())?;
    Ok(Open { file, base, size: head.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log(folder: &Path, most: u64, files: u32) -> RotatingLog {
        RotatingLog::new(folder.join(OUTPUT), most, files)
    }

    fn base(path: &Path) -> u64 {
        base_of(&File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn size_and_count_are_bounded_and_positions_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 100, 3);
        for line in 0..1_000 {
            log.append(format!("line {line:04}\n").as_bytes());
        }
        let path = |number| numbered(&folder.path().join(OUTPUT), number);
        let size = |number| fs::metadata(path(number)).unwrap().len();
        assert!(fs::read_to_string(path(0)).unwrap().ends_with("line 0999\n"));
        assert!((0..3).all(|number| size(number) <= 100));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        for number in [1, 2] {
            assert_eq!(base(&path(number)) + size(number), base(&path(number - 1)));
        }
    }

    #[test]
    fn goes_on_after_a_restart_and_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("deep");
        let mut first = log(&deep, 100, 1);
        first.append(b"lost\n");
        fs::create_dir(&deep).unwrap();
        first.append(b"one\n");
        log(&deep, 100, 1).append(b"two\n");
        assert_eq!(fs::read_to_string(deep.join(OUTPUT)).unwrap(), "@0\none\ntwo\n");
        fs::write(deep.join(OUTPUT), "@0\none\ntw").unwrap();
        log(&deep, 100, 1).append(b"three\n");
        assert_eq!(fs::read_to_string(deep.join(OUTPUT)).unwrap(), "@0\none\ntw\nthree\n");
    }

    #[test]
    fn one_file_alone_starts_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 8, 1);
        log.append(b"1234\n");
        log.append(b"5678\n");
        assert_eq!(fs::read_to_string(folder.path().join(OUTPUT)).unwrap(), "@8\n5678\n");
    }

    proptest! {
        #[test]
        fn lines_are_the_same_wherever_reads_are_cut(
            text in "([a-c]{0,9}\n){0,6}[a-c]{0,5}", cut in 1_usize..9, long in 0_usize..40_000,
        ) {
            let text = format!("{}{text}", "x".repeat(long));
            let (mut lines, mut pieces) = (Lines::default(), Vec::new());
            let mut give = |data: &[u8], unfinished: bool| {
                pieces.push((String::from_utf8(data.to_vec()).unwrap(), unfinished));
            };
            for part in text.as_bytes().chunks(cut * 1_000) {
                lines.take(part, &mut give);
            }
            lines.finish(&mut give);
            prop_assert!(pieces.iter().all(|(piece, _)| piece.len() <= MOST_PIECE));
            let joined: String =
                pieces.iter().map(|(piece, unfinished)| format!("{piece}{}", if *unfinished { "" } else { "\n" })).collect();
            let expected = if text.is_empty() || text.ends_with('\n') { text } else { format!("{text}\n") };
            prop_assert_eq!(joined, expected);
        }
    }
}
