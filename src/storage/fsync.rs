//! Making files and folders durable.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes the names in a folder durable (after a creation, rename or removal).
pub(crate) fn folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes every file below `dir`, the folders, and the name of `dir` durable.
pub(crate) fn tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            tree(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    folder(dir)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => folder(parent),
        _ => Ok(()),
    }
}
