//! The few file operations that images and the header need, so that the memory
//! disk can stand in for a folder.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::fsync;

/// A file being written.
pub(crate) trait FileWriter: Write + Send {
    /// Returns once everything written is on the device.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file being read.
pub(crate) trait FileReader: Read + Seek + Send {}

impl<T: Read + Seek + Send> FileReader for T {}

/// One flat folder. Names become durable with [`Files::sync_names`].
pub(crate) trait Files: Debug + Send + Sync {
    fn list(&self) -> io::Result<Vec<String>>;
    fn create(&self, name: &str) -> io::Result<Box<dyn FileWriter>>;
    fn open(&self, name: &str) -> io::Result<Box<dyn FileReader>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn sync_names(&self) -> io::Result<()>;
    /// How a file is called in messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// A folder on disk.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Uses `dir`, creating it (durably) if it is missing.
    pub(crate) fn create(dir: &Path) -> io::Result<Folder> {
        if !dir.is_dir() {
            fs::create_dir_all(dir)?;
            fsync::folder(dir)?;
            if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                fsync::folder(parent)?;
            }
        }
        Ok(Folder(dir.to_owned()))
    }
}

impl FileWriter for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Files for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn FileWriter>> {
        Ok(Box::new(File::create(self.0.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FileReader>> {
        Ok(Box::new(File::open(self.0.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        fsync::folder(&self.0)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Replaces `name` so that after a power cut either the old or the new content
/// is there, never a mixture.
pub(crate) fn replace(files: &dyn Files, name: &str, content: &[u8]) -> io::Result<()> {
    let tmp = format!("{name}.tmp");
    let mut file = files.create(&tmp)?;
    file.write_all(content)?;
    file.sync()?;
    drop(file);
    files.rename(&tmp, name)?;
    files.sync_names()
}
