//! The ledger's bytes: magic, length, checksum, then protobuf (unknown fields are skipped, numbers are never reused).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use prost::Message as _;
use quorate_base::Timestamp;
use quorate_model::{Epoch, TaskId};
use quorate_wire::agent;
use quorate_wire::agent::{AssignedTask, Report};
use thiserror::Error;

use super::{Contents, Held};
use crate::durable;
use crate::step::Record;

const MAGIC: &[u8; 8] = b"QRTLEDG1";
/// Magic, length (8 bytes) and CRC-32 (4 bytes), little-endian.
const HEADER: usize = 20;

/// Why a ledger cannot be used. The agent starts without and asks the managers and its runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the ledger {path} is damaged: {reason}")]
pub(crate) struct Damaged {
    /// The file.
    pub(crate) path: PathBuf,
    /// What is wrong with it.
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Image {
    #[prost(string, tag = "1")]
    cluster: String,
    #[prost(message, optional, tag = "2")]
    fence: Option<agent::Fence>,
    #[prost(string, repeated, tag = "3")]
    managers: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    tasks: Vec<Task>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Task {
    #[prost(message, optional, tag = "1")]
    assignment: Option<agent::Assignment>,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(message, optional, tag = "3")]
    status: Option<agent::TaskStatus>,
    /// Milliseconds since 1970.
    #[prost(uint64, optional, tag = "4")]
    retry_at: Option<u64>,
    /// Milliseconds since 1970.
    #[prost(uint64, repeated, tag = "5")]
    recent: Vec<u64>,
    #[prost(uint32, tag = "6")]
    restarts_done: u32,
}

/// The bytes of a whole file.
pub(super) fn encode(contents: &Contents) -> Vec<u8> {
    let image = Image {
        cluster: contents.cluster.to_string(),
        fence: Some(contents.fence),
        managers: contents.managers.clone(),
        tasks: contents.tasks.iter().map(|(id, held)| encode_task(*id, held)).collect(),
    };
    let mut bytes = vec![0; HEADER];
    image.encode_raw(&mut bytes);
    let body = bytes.len() - HEADER;
    let sum = crc32fast::hash(&bytes[HEADER..]);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&(body as u64).to_le_bytes());
    bytes[16..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn encode_task(id: TaskId, held: &Held) -> Task {
    Task {
        assignment: Some((&held.assigned).into()),
        epoch: held.epoch.0,
        status: Some((&Report { task: id, status: held.record.status.clone() }).into()),
        retry_at: held.record.retry_at.map(Timestamp::as_millis),
        recent: held.record.recent.iter().map(|at| at.as_millis()).collect(),
        restarts_done: held.record.restarts_done,
    }
}

/// Reads a file; an absent one is empty.
pub(super) fn read(path: &Path) -> Result<Contents, Damaged> {
    let read = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        Err(error) => Err(durable::text(&error)),
        Ok(bytes) => decode(&bytes),
    };
    read.map_err(|reason| Damaged { path: path.to_owned(), reason })
}

fn decode(bytes: &[u8]) -> Result<Contents, String> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return Err(format!("{} bytes are too few", bytes.len()));
    };
    if !header.starts_with(MAGIC) {
        return Err("it is no ledger".to_owned());
    }
    let length = header[8..16].try_into().map_or(0, u64::from_le_bytes);
    if length != body.len() as u64 {
        return Err(format!("it should hold {length} bytes and holds {}", body.len()));
    }
    if header[16..] != crc32fast::hash(body).to_le_bytes() {
        return Err("its checksum is wrong".to_owned());
    }
    let image = Image::decode(body).map_err(|error| error.to_string())?;
    let tasks = image.tasks.into_iter().map(decode_task).collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(Contents {
        cluster: Arc::from(image.cluster),
        fence: image.fence.unwrap_or_default(),
        managers: image.managers,
        tasks,
    })
}

fn decode_task(task: Task) -> Result<(TaskId, Held), String> {
    let assignment = task.assignment.ok_or("a task without an assignment")?;
    let assigned = AssignedTask::try_from(assignment).map_err(|error| error.to_string())?;
    let status = task.status.ok_or("a task without a status")?;
    let Report { task: id, status } = Report::try_from(status).map_err(|error| error.to_string())?;
    if assigned.workload.is_none() || id != assigned.id {
        return Err(format!("task {id} is incomplete"));
    }
    let record = Record {
        status,
        retry_at: task.retry_at.map(Timestamp::from_millis),
        recent: task.recent.into_iter().map(Timestamp::from_millis).collect(),
        restarts_done: task.restarts_done,
    };
    Ok((id, Held { assigned, epoch: Epoch(task.epoch), record }))
}
