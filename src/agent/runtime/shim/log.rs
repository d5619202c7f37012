//! An output file of bounded size, with a bounded number of predecessors.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// `stdout.log`, with `stdout.log.1` as the newest of its predecessors.
#[derive(Debug)]
pub(super) struct RotatingLog {
    path: PathBuf,
    most_bytes: u64,
    files: u32,
    open: Option<(File, u64)>,
}

impl RotatingLog {
    /// At most `files` files of about `most_bytes` each, at least one.
    pub(super) const fn new(path: PathBuf, most_bytes: u64, files: u32) -> Self {
        Self { path, most_bytes, files, open: None }
    }

    /// Appends, or drops what cannot be written: a full disk must not stall the process that writes.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if self.try_append(bytes).is_err() {
            self.open = None;
        }
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        if size > 0 && size.saturating_add(bytes.len() as u64) > self.most_bytes {
            drop(file);
            self.rotate()?;
            (file, size) = open(&self.path)?;
        }
        file.write_all(bytes)?;
        self.open = Some((file, size.saturating_add(bytes.len() as u64)));
        Ok(())
    }

    fn rotate(&self) -> io::Result<()> {
        if self.files <= 1 {
            return fs::remove_file(&self.path);
        }
        let numbered = |number: u32| match number {
            0 => self.path.clone(),
            _ => PathBuf::from(format!("{}.{number}", self.path.display())),
        };
        for number in (0..self.files - 1).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_count_are_bounded_and_the_newest_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut log = RotatingLog::new(path.clone(), 100, 3);
        for line in 0..1_000 {
            log.append(format!("line {line:04}\n").as_bytes());
        }
        let text = |suffix: &str| fs::read_to_string(format!("{}{suffix}", path.display())).unwrap();
        assert!(text("").ends_with("line 0999\n"));
        let all = [text(".2"), text(".1"), text("")].concat();
        assert!(all.len() > 200 && all.len() <= 300, "{}", all.len());
        assert_eq!(all.lines().last(), Some("line 0999"));
        assert!(all.lines().is_sorted());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn goes_on_after_a_restart_and_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("stdout.log");
        let mut log = RotatingLog::new(path.clone(), 100, 1);
        log.append(b"lost\n");
        fs::create_dir(folder.path().join("deep")).unwrap();
        log.append(b"one\n");
        RotatingLog::new(path.clone(), 100, 1).append(b"two\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn one_file_alone_starts_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        let mut log = RotatingLog::new(path.clone(), 5, 1);
        log.append(b"1234\n");
        log.append(b"5678\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "5678\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
