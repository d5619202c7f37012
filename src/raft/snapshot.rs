//! Images between managers: chunks with a checksum each, read and written on
//! threads of their own.

use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use quorate_base::tasks::spawn_thread;
use quorate_storage::{Image, ImageStore, StorageError};
use quorate_wire::raft::SnapshotChunk;
use quorate_wire::raft::snapshot_chunk::Head;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Bytes of an image in one message.
const CHUNK: usize = 1 << 20;
/// Chunks that are read ahead of the network, or received ahead of the disk.
const AHEAD: usize = 2;
/// Rebuilding the state from an image takes longer than one chunk may.
const INSTALL_STALLS: u32 = 24;

/// The messages that carry an image, and a future that ends when they get stuck.
pub(crate) fn send(
    head: Head,
    image: Image,
    stall: Duration,
) -> (impl Stream<Item = SnapshotChunk> + Send + 'static, impl Future<Output = ()> + Send) {
    let (chunks, queue) = mpsc::channel(AHEAD);
    let progress = watch::Sender::new(0_u64);
    let mut seen = progress.subscribe();
    let read = move || {
        let first = SnapshotChunk { head: Some(head), ..SnapshotChunk::default() };
        let mut sent = chunks.blocking_send(first).is_ok();
        let mut offset = 0;
        while sent && offset < head.bytes {
            let data = match image.chunk(offset, CHUNK) {
                Ok(data) => data,
                Err(error) => return tracing::warn!(%error, "an image cannot be sent"),
            };
            let (crc, len) = (crc32fast::hash(&data), data.len() as u64);
            sent = chunks.blocking_send(SnapshotChunk { head: None, offset, data, crc }).is_ok();
            offset += len;
            progress.send_replace(offset);
        }
    };
    if let Err(error) = spawn_thread("quorate-image-send", read) {
        tracing::warn!(%error, "no thread to send an image");
    }
    let stalled = async move {
        while let Ok(Ok(())) = tokio::time::timeout(stall, seen.changed()).await {}
        if seen.has_changed().is_err() {
            // All is sent: the other side checks and installs it.
            tokio::time::sleep(stall * INSTALL_STALLS).await;
        }
    };
    (ReceiverStream::new(queue), stalled)
}

/// Receives an image, checks it, and stores it as the newest one.
pub(crate) async fn receive(
    images: ImageStore,
    mut chunks: Streaming<SnapshotChunk>,
    stall: Duration,
) -> Result<(Head, Image), Status> {
    let first = next(&mut chunks, stall).await?.and_then(|chunk| chunk.head);
    let Some(head) = first else { return Err(Status::invalid_argument("an image must begin with its head")) };
    let (parts, stored) = store(images)?;
    let mut received = 0;
    while let Some(chunk) = next(&mut chunks, stall).await? {
        let end = received + chunk.data.len() as u64;
        if chunk.offset != received || end > head.bytes || crc32fast::hash(&chunk.data) != chunk.crc {
            let place = format!("the part at {} of {} bytes", chunk.offset, head.bytes);
            return Err(Status::data_loss(format!(
                "{place} is out of place or damaged; {received} bytes are here"
            )));
        }
        received = end;
        if parts.send(Part::Data(chunk.data)).await.is_err() {
            break;
        }
    }
    if received == head.bytes {
        // A closed queue means that writing failed: the answer says how.
        let _ = parts.send(Part::End).await;
    }
    drop(parts);
    match stored.await {
        Ok(Ok(image)) => Ok((head, image)),
        Ok(Err(e)) if e.is_damage() => Err(Status::data_loss(e.to_string())),
        Ok(Err(e)) => Err(Status::resource_exhausted(e.to_string())),
        Err(_) => Err(Status::aborted(format!("the image ended after {received} of {} bytes", head.bytes))),
    }
}

enum Part {
    Data(Bytes),
    End,
}

type Stored = oneshot::Receiver<Result<Image, StorageError>>;

/// A thread that writes what it is sent. Without an end it leaves nothing behind.
fn store(images: ImageStore) -> Result<(mpsc::Sender<Part>, Stored), Status> {
    let (parts, mut queue) = mpsc::channel(AHEAD);
    let (reply, stored) = oneshot::channel();
    let write = move || {
        let result = images.receive().and_then(|mut receiver| {
            while let Some(part) = queue.blocking_recv() {
                match part {
                    Part::Data(data) => receiver.write(&data)?,
                    Part::End => return receiver.finish().map(Some),
                }
            }
            Ok(None)
        });
        if let Some(result) = result.transpose() {
            // The receiving call may have been dropped.
            let _ = reply.send(result);
        }
    };
    spawn_thread("quorate-image-receive", write)
        .map_err(|e| Status::resource_exhausted(format!("no thread to store an image: {e}")))?;
    Ok((parts, stored))
}

async fn next(
    chunks: &mut Streaming<SnapshotChunk>,
    stall: Duration,
) -> Result<Option<SnapshotChunk>, Status> {
    match tokio::time::timeout(stall, chunks.message()).await {
        Ok(chunk) => chunk,
        Err(_) => Err(Status::deadline_exceeded(format!("no part of the image came for {stall:?}"))),
    }
}
