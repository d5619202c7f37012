//! The header of a data directory: whose it is.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use quorate_base::ClusterId;
use quorate_base::sync::lock;

use crate::StorageError;
use crate::files::{Files, replace};

/// The header's file name.
pub(crate) const HEADER: &str = "header";

/// The version of the directory's layout that this build reads and writes.
pub const DATA_VERSION: u32 = 1;

/// Who a data directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Version of the directory's layout.
    pub version: u32,
    /// The manager's configured name.
    pub node: String,
    /// The Raft id, drawn when the store was made. Never used for another store.
    pub raft_id: u64,
    /// The cluster, once this manager has joined or formed one.
    pub cluster: Option<ClusterId>,
    /// The cluster's epoch, raised by disaster recovery.
    pub epoch: u64,
    /// Whether the log store was created. From then on a missing one is damage:
    /// it may have held votes.
    pub(crate) ready: bool,
}

impl Header {
    fn encode(&self) -> String {
        let cluster = self.cluster.map_or_else(|| "-".to_owned(), |c| c.to_string());
        let mut text = format!(
            "quorate-data {}\nnode {}\nraft-id {:016x}\ncluster {cluster}\nepoch {}\nstore {}\n",
            self.version,
            self.node,
            self.raft_id,
            self.epoch,
            if self.ready { "ready" } else { "new" },
        );
        let crc = crc32fast::hash(text.as_bytes());
        // Writing to a string can't fail.
        let _ = writeln!(text, "crc32 {crc:08x}");
        text
    }

    /// Reads a header; the error says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| format!("it is not text: {e}"))?;
        let (body, crc) = text.rsplit_once("crc32 ").ok_or("its checksum is missing")?;
        if format!("{:08x}", crc32fast::hash(body.as_bytes())) != crc.trim() {
            return Err("its checksum does not fit".to_owned());
        }
        let mut lines = body.lines();
        let mut field = |name: &'static str| {
            let line = lines.next().and_then(|l| l.split_once(' '));
            line.filter(|(n, _)| *n == name).map(|(_, v)| v).ok_or(format!("its line {name:?} is missing"))
        };
        let number = |name: &str, text: &str, radix| {
            u64::from_str_radix(text, radix).map_err(|e| format!("its {name} {text:?} is no number: {e}"))
        };
        let version = number("version", field("quorate-data")?, 10)? as u32;
        let node = field("node")?.to_owned();
        let raft_id = number("raft-id", field("raft-id")?, 16)?;
        let cluster = match field("cluster")? {
            "-" => None,
            id => Some(id.parse().map_err(|e| format!("its cluster is invalid: {e}"))?),
        };
        let epoch = number("epoch", field("epoch")?, 10)?;
        let ready = field("store")? == "ready";
        Ok(Header { version, node, raft_id, cluster, epoch, ready })
    }
}

/// The header and its durable file. A cheap handle.
#[derive(Debug, Clone)]
pub struct HeaderStore {
    files: Arc<dyn Files>,
    header: Arc<Mutex<Header>>,
}

impl HeaderStore {
    pub(crate) fn new(files: Arc<dyn Files>, header: Header) -> HeaderStore {
        HeaderStore { files, header: Arc::new(Mutex::new(header)) }
    }

    /// The header as stored.
    pub fn get(&self) -> Header {
        lock(&self.header).clone()
    }

    /// The cluster, once known.
    pub fn cluster(&self) -> Option<ClusterId> {
        lock(&self.header).cluster
    }

    /// Notes, durably, the cluster that this manager belongs to. Blocks. Epoch 0
    /// says that the cluster is still being formed, and binds to nothing.
    ///
    /// # Errors
    /// If the header names another cluster, or writing fails.
    pub fn join_cluster(&self, cluster: ClusterId, epoch: u64) -> Result<(), StorageError> {
        let current = self.get();
        if current.cluster == Some(cluster) && current.epoch == epoch {
            return Ok(());
        }
        if let Some(other) = current.cluster.filter(|c| *c != cluster && current.epoch != 0) {
            let path = self.files.path(HEADER).display().to_string();
            return Err(StorageError::damaged(path, format!("it belongs to cluster {other}, not {cluster}")));
        }
        self.write(Header { cluster: Some(cluster), epoch, ..current })
    }

    pub(crate) fn write(&self, header: Header) -> Result<(), StorageError> {
        let mut current = lock(&self.header);
        replace(&*self.files, HEADER, header.encode().as_bytes())
            .map_err(|e| StorageError::io_at("writing the header", self.files.path(HEADER), e))?;
        *current = header;
        Ok(())
    }
}

/// Reads the header of a folder; `None` if it has none.
pub(crate) fn read(files: &dyn Files) -> io::Result<Option<Vec<u8>>> {
    let mut file = match files.open(HEADER) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let cluster = Some(ClusterId::from_u128(7));
        Header { version: 1, node: "m 1".to_owned(), raft_id: u64::MAX, cluster, epoch: 3, ready: true }
    }

    #[test]
    fn a_header_reads_back() {
        for cluster in [None, header().cluster] {
            let h = Header { cluster, ..header() };
            assert_eq!(Header::decode(h.encode().as_bytes()).unwrap(), h);
        }
    }

    #[test]
    fn damage_is_named() {
        let text = header().encode();
        let changed = text.replace("epoch 3", "epoch 4");
        assert_eq!(Header::decode(changed.as_bytes()).unwrap_err(), "its checksum does not fit");
        assert_eq!(Header::decode(&text.as_bytes()[..20]).unwrap_err(), "its checksum is missing");
        assert!(Header::decode(&[0xff, 0xfe]).unwrap_err().starts_with("it is not text"));
    }
}
