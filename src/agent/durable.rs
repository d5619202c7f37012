//! Files that a power cut leaves whole: old or new, never half.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces `path` by `bytes`: temporary file, fsync, rename, fsync of the folder.
///
/// # Errors
/// The operating system's, with nothing replaced; the temporary file is gone again.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // What is left of it may be what fills the disk.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// An error of the operating system without its number: "No such file or directory".
pub(crate) fn text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_and_leaves_nothing_else_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("ledger");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("old"), b"old").unwrap();
        replace(&target, b"new").unwrap_err();
        assert_eq!(fs::read(target.join("old")).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_reads_like_a_sentence() {
        assert_eq!(text(&io::Error::from_raw_os_error(2)), "No such file or directory");
    }
}
