//! Reads what the shims write: see `shim/log.rs` for the form of the files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use prost::bytes::Bytes;
use quorate_wire::status::ApiError;
use tokio::sync::mpsc;

use super::{ProcessRuntime, look};
use crate::runtime::Unit;
use crate::runtime::shim::log::{OUTPUT, base_of, numbered};
use crate::runtime::streams::{LogItem, LogLine, LogRead, MOST_PIECE, bad_cursor, failed, no_log};
use crate::step::{Fault, Seen};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const CHUNK: u64 = 256 * 1024;
/// The longest record; what is longer was not written by a shim, and is cut.
const MOST_RECORD: usize = MOST_PIECE + 64;

/// What was found at a position.
#[derive(Debug, Default)]
struct Chunk {
    lines: Vec<LogLine>,
    /// The position behind them.
    next: u64,
    /// Bytes that were rotated away before they could be read.
    lost: bool,
    /// Whether there is an output file at all.
    exists: bool,
}

impl ProcessRuntime {
    pub(super) async fn read_logs(
        &self,
        unit: &Unit,
        read: &LogRead,
        sink: &mpsc::Sender<LogItem>,
    ) -> Result<(), ApiError> {
        let folder = self.folders.of(unit);
        if folder.unit().map_err(|fault| failed(&fault))?.as_ref() != Some(unit) {
            return Err(no_log(unit));
        }
        let mut at = match read.cursor.as_str() {
            "" => None,
            cursor => Some(parse(cursor).ok_or_else(|| bad_cursor(cursor))?),
        };
        loop {
            // First, so that nothing that is written before the end is missed.
            let runs = !matches!(look(&folder), Ok(Seen::Created | Seen::Exited(_) | Seen::Absent));
            loop {
                let path = folder.path().join(OUTPUT);
                let chunk = tokio::task::spawn_blocking(move || chunk(&path, at)).await;
                let chunk = chunk.unwrap_or_else(|error| Err(io::Error::other(error)));
                let chunk = chunk.map_err(|error| {
                    failed(&Fault::transient(format!("cannot read the output of {unit}: {error}")))
                })?;
                let stands = at == Some(chunk.next) || !chunk.exists;
                at = chunk.exists.then_some(chunk.next).or(at);
                let lost = chunk.lost.then(|| LogItem::Notice("older lines were rotated away".to_owned()));
                for item in lost.into_iter().chain(chunk.lines.into_iter().map(LogItem::Line)) {
                    if sink.send(item).await.is_err() {
                        return Ok(());
                    }
                }
                if stands {
                    break;
                }
            }
            if !read.follow || !runs {
                return Ok(());
            }
            self.clock.sleep(LOOK).await;
        }
    }
}

fn parse(cursor: &str) -> Option<u64> {
    cursor.strip_prefix('p')?.parse().ok()
}

/// Reads on from a position; from the oldest byte without one.
fn chunk(path: &Path, at: Option<u64>) -> io::Result<Chunk> {
    let files = files(path)?;
    let Some(oldest) = files.keys().next().copied() else { return Ok(Chunk::default()) };
    let here =
        at.and_then(|at| files.range(..=at).next_back().filter(|(base, (_, size))| at <= *base + size));
    let lost = at.is_some() && here.is_none();
    let (mut base, mut start) = here.map_or((oldest, oldest), |(base, _)| (*base, at.unwrap_or(*base)));
    if let Some((_, size)) = files.get(&base)
        && start == base + size
        && let Some(next) = files.range(base + 1..).next()
    {
        (base, start) = (*next.0, *next.0);
    }
    let Some((file, size)) = files.get(&base) else { return Ok(Chunk::default()) };
    let is_last = files.range(base + 1..).next().is_none();
    let mut bytes = Vec::new();
    let mut file = file;
    file.seek(SeekFrom::Start(start - base))?;
    file.take(CHUNK.min(base + size - start)).read_to_end(&mut bytes)?;
    let whole = start + bytes.len() as u64 == base + size && !is_last;
    let modified = file.metadata()?.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = modified.unwrap_or_default().as_millis();
    let (mut lines, mut next) = (Vec::new(), start);
    for record in bytes.split_inclusive(|byte| *byte == b'\n') {
        let ended = record.ends_with(b"\n");
        if !ended && !whole && record.len() < MOST_RECORD {
            break;
        }
        let first = next == base;
        next += record.len() as u64;
        let text = record.strip_suffix(b"\n").unwrap_or(record);
        if !(first && text.starts_with(b"@")) {
            lines.extend(pieces(text, u64::try_from(modified).unwrap_or(u64::MAX), next));
        }
    }
    Ok(Chunk { lines, next, lost, exists: true })
}

/// The files by their bases, each with its size. From the newest on: a file that is rotated meanwhile is met twice, and
/// none is passed over.
fn files(path: &Path) -> io::Result<BTreeMap<u64, (File, u64)>> {
    let mut files = BTreeMap::new();
    for number in 0.. {
        match File::open(numbered(path, number)) {
            Ok(file) => {
                let size = file.metadata()?.len();
                // One that is just being made has no head yet.
                if size > 0 {
                    files.insert(base_of(&file).unwrap_or(0), (file, size));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && number == 0 => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// The record as a line. What has no head gets the file's time. Bytes that no shim wrote may be too many for one piece.
fn pieces(record: &[u8], modified: u64, next: u64) -> Vec<LogLine> {
    let (millis, stderr, unfinished, data) = head(record).unwrap_or((modified, false, false, record));
    let time = (
        i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
        i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000,
    );
    let count = data.len().div_ceil(MOST_PIECE).max(1);
    let piece = |index: usize| {
        let end = data.len().min((index + 1) * MOST_PIECE);
        LogLine {
            time,
            stderr,
            data: Bytes::copy_from_slice(&data[index * MOST_PIECE..end]),
            unfinished: unfinished || index + 1 < count,
            cursor: format!("p{next}"),
        }
    };
    (0..count).map(piece).collect()
}

fn head(record: &[u8]) -> Option<(u64, bool, bool, &[u8])> {
    let mut parts = record.splitn(3, |byte| *byte == b' ');
    let millis = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let (stderr, unfinished) = match parts.next()? {
        b"o" => (false, false),
        b"e" => (true, false),
        b"O" => (false, true),
        b"E" => (true, true),
        _ => return None,
    };
    Some((millis, stderr, unfinished, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All from a position on.
    fn rest(path: &Path, mut at: Option<u64>) -> Vec<LogLine> {
        let mut all = Vec::new();
        loop {
            let chunk = chunk(path, at).unwrap();
            all.extend(chunk.lines);
            if at.replace(chunk.next) == Some(chunk.next) {
                return all;
            }
        }
    }

    fn write(path: &Path, sizes: &[usize]) -> Vec<String> {
        let (mut base, mut all) = (0, Vec::new());
        for (index, size) in sizes.iter().enumerate() {
            let number = u32::try_from(sizes.len() - 1 - index).unwrap();
            let mut text = format!("@{base}\n");
            for line in 0..*size {
                all.push(format!("line {index}.{line}"));
                text.push_str(&format!("{} o {}\n", 1_000 + line, all.last().unwrap()));
            }
            std::fs::write(numbered(path, number), &text).unwrap();
            base += text.len();
        }
        all
    }

    proptest! {
        #[test]
        fn reading_on_from_any_line_repeats_and_loses_nothing(sizes in prop::collection::vec(0_usize..6, 1..5)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(OUTPUT);
            let written = write(&path, &sizes);
            let text = |lines: &[LogLine]| {
                lines.iter().map(|line| String::from_utf8(line.data.to_vec()).unwrap()).collect::<Vec<_>>()
            };
            let all = rest(&path, None);
            prop_assert_eq!(text(&all), written);
            for (index, line) in all.iter().enumerate() {
                prop_assert_eq!(rest(&path, parse(&line.cursor)), &all[index + 1..]);
            }
        }
    }

    #[test]
    fn what_was_rotated_away_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OUTPUT);
        std::fs::write(&path, "@1000\n5 e x\n").unwrap();
        let read = chunk(&path, Some(10)).unwrap();
        assert!(read.lost);
        assert_eq!((read.lines[0].stderr, read.lines[0].time, read.next), (true, (0, 5_000_000), 1_012));
        assert!(!chunk(&path, Some(1_012)).unwrap().lost);
    }

    #[test]
    fn half_a_record_waits_and_a_line_without_head_has_the_files_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OUTPUT);
        std::fs::write(&path, "@0\nold text\n7 o ha").unwrap();
        let lines = rest(&path, None);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].data.as_ref(), b"old text");
        assert!(lines[0].time.0 > 1_500_000_000);
    }
}
