//! Logs as the engine keeps them.
//!
//! The engine reads on from a second of time, not from an entry. So a position is a second, and a count of entries that
//! come when it is read from then on: the entries of one file always come in the same order. The last entry's time is
//! kept with it, so that a log that was rotated meanwhile is noticed.

use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptionsBuilder;
use futures::StreamExt as _;
use prost::bytes::Bytes;
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::mpsc;

use super::DockerRuntime;
use super::fault::{Trouble, is_status};
use super::look::instant;
use crate::runtime::Unit;
use crate::runtime::streams::{LogItem, LogLine, LogRead, MOST_PIECE, bad_cursor, failed, no_log};

const SECOND: u64 = 1_000_000_000;

/// A position: behind an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cursor {
    /// The second from which entries are counted.
    from: u64,
    /// Entries since then.
    count: u64,
    /// When the last of them was written, in nanoseconds since 1970.
    last: u64,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('d')?.splitn(3, '.').map(|part| part.parse().ok());
        Some(Self { from: parts.next()??, count: parts.next()??, last: parts.next()?? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}.{}.{}", self.from, self.count, self.last)
    }
}

/// Counts entries, from a second that stays near to them: or else a long log would be read anew at every step.
#[derive(Debug, Default)]
struct Count {
    at: Cursor,
    /// The next second to count from, and the entries since then. No entry before was so late.
    next: Option<(u64, u64)>,
}

impl Count {
    /// Entry by entry, in the engine's order.
    fn pass(&mut self, time: u64) -> Cursor {
        self.at.count += 1;
        self.at.last = time;
        let (from, count) = self.next.get_or_insert((time / SECOND + 1, 0));
        if *count > 0 || time >= *from * SECOND {
            *count += 1;
        }
        // Two streams may be out of order by an instant; a second is far more.
        if *count > 0 && time >= (*from + 1) * SECOND {
            (self.at.from, self.at.count) = (*from, *count);
            self.next = None;
        }
        self.at
    }
}

/// How a read ended.
enum Read {
    Done,
    /// The position was not found.
    Lost,
}

impl DockerRuntime {
    pub(super) async fn read_logs(
        &self,
        unit: &Unit,
        read: &LogRead,
        sink: &mpsc::Sender<LogItem>,
    ) -> Result<(), ApiError> {
        let after = match read.cursor.as_str() {
            "" => Cursor { from: u64::try_from(read.since).unwrap_or(0), ..Cursor::default() },
            cursor => Cursor::parse(cursor).ok_or_else(|| bad_cursor(cursor))?,
        };
        if let Read::Lost = self.read_after(unit, after, read.follow, true, sink).await? {
            let notice = LogItem::Notice("older lines were rotated away".to_owned());
            if sink.send(notice).await.is_ok() {
                self.read_after(unit, after, read.follow, false, sink).await?;
            }
        }
        Ok(())
    }

    /// Passes over what `after` counts, or, when the count fits no more, what is not later than its last entry.
    async fn read_after(
        &self,
        unit: &Unit,
        after: Cursor,
        follow: bool,
        counted: bool,
        sink: &mpsc::Sender<LogItem>,
    ) -> Result<Read, ApiError> {
        let engine = self.engine().await.map_err(|fault| failed(&fault))?;
        let options = LogsOptionsBuilder::new()
            .follow(follow)
            .stdout(true)
            .stderr(true)
            .timestamps(true)
            .since(i32::try_from(after.from).unwrap_or(i32::MAX))
            .build();
        let mut entries = engine.logs(&unit.to_string(), Some(options));
        let mut count = Count { at: Cursor { from: after.from, ..Cursor::default() }, next: None };
        let mut passed = 0;
        loop {
            let entry = tokio::select! {
                entry = entries.next() => entry,
                // A follower of a silent log would not notice that nobody listens.
                () = sink.closed() => return Ok(Read::Done),
            };
            let entry = match entry {
                Some(Ok(entry)) => entry,
                None if counted && passed < after.count => return Ok(Read::Lost),
                None => return Ok(Read::Done),
                Some(Err(error)) => return Err(trouble(unit, &error)),
            };
            let Some((time, stderr, data, unfinished)) = parts(entry) else { continue };
            let cursor = count.pass(time);
            passed += 1;
            match seen(passed, after, counted, time) {
                Seen::Before => continue,
                Seen::Other => return Ok(Read::Lost),
                Seen::New => {}
            }
            for line in pieces(time, stderr, &data, unfinished, cursor) {
                if sink.send(LogItem::Line(line)).await.is_err() {
                    return Ok(Read::Done);
                }
            }
        }
    }
}

/// What an entry is to a reader that goes on after a position.
enum Seen {
    Before,
    New,
    /// The position counts another entry here.
    Other,
}

/// The entry's number is counted from the position's second on.
const fn seen(number: u64, after: Cursor, counted: bool, time: u64) -> Seen {
    match counted {
        true if number > after.count => Seen::New,
        true if number == after.count && time != after.last => Seen::Other,
        false if time > after.last => Seen::New,
        _ => Seen::Before,
    }
}

/// An entry: when, where, what, and whether its line goes on.
fn parts(entry: LogOutput) -> Option<(u64, bool, Bytes, bool)> {
    let (stderr, message) = match entry {
        LogOutput::StdErr { message } => (true, message),
        LogOutput::StdOut { message } | LogOutput::Console { message } => (false, message),
        LogOutput::StdIn { .. } => return None,
    };
    let blank = message.iter().position(|byte| *byte == b' ')?;
    let (seconds, nanos) = instant(std::str::from_utf8(&message[..blank]).ok()?)?;
    let time = seconds.checked_mul(SECOND)?.checked_add(u64::from(nanos))?;
    let data = message.slice(blank + 1..);
    let ended = data.last() == Some(&b'\n');
    let data = if ended { data.slice(..data.len() - 1) } else { data };
    Some((time, stderr, data, !ended))
}

fn pieces(time: u64, stderr: bool, data: &Bytes, unfinished: bool, cursor: Cursor) -> Vec<LogLine> {
    let count = data.len().div_ceil(MOST_PIECE).max(1);
    let piece = |index: usize| LogLine {
        time: (i64::try_from(time / SECOND).unwrap_or(i64::MAX), i32::try_from(time % SECOND).unwrap_or(0)),
        stderr,
        data: data.slice(index * MOST_PIECE..data.len().min((index + 1) * MOST_PIECE)),
        unfinished: unfinished || index + 1 < count,
        cursor: cursor.to_string(),
    };
    (0..count).map(piece).collect()
}

fn trouble(unit: &Unit, error: &bollard::errors::Error) -> ApiError {
    if is_status(error, 404) {
        return no_log(unit);
    }
    let fault = Trouble::Inspect.fault(error);
    if fault.message.contains("does not support reading") {
        let text = "the engine's logging driver keeps nothing that can be read: choose json-file or local";
        return ApiError::new(Reason::LogNotFound, text);
    }
    failed(&fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the engine gives from a second on.
    fn engine(times: &[u64], from: u64) -> impl Iterator<Item = (usize, u64)> {
        times.iter().copied().enumerate().skip_while(move |(_, time)| *time < from * SECOND)
    }

    fn read(times: &[u64], after: Cursor) -> Option<Vec<(usize, Cursor)>> {
        let mut count = Count { at: Cursor { from: after.from, ..Cursor::default() }, next: None };
        let mut given = Vec::new();
        for (number, (index, time)) in (1..).zip(engine(times, after.from)) {
            let cursor = count.pass(time);
            match seen(number, after, true, time) {
                Seen::New => given.push((index, cursor)),
                Seen::Before => {}
                Seen::Other => return None,
            }
        }
        Some(given)
    }

    proptest! {
        #[test]
        fn reading_on_from_any_entry_repeats_and_loses_nothing(steps in prop::collection::vec(0_u64..1_500, 0..60)) {
            // Entries of an instant may be out of order, and many are written at the same one.
            let mut now = 1_000 * SECOND;
            let times: Vec<u64> = steps.iter().map(|step| {
                now += (step / 10) * 20_000_000;
                now - (step % 10) * 1_000
            }).collect();
            let all = read(&times, Cursor::default()).unwrap();
            prop_assert_eq!(all.len(), times.len());
            for (index, cursor) in &all {
                let cursor = Cursor::parse(&cursor.to_string()).unwrap();
                let rest: Vec<usize> = read(&times, cursor).unwrap().into_iter().map(|(at, _)| at).collect();
                prop_assert_eq!(rest, (index + 1..times.len()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_rotated_log_is_noticed() {
        let times: Vec<u64> = (0..50).map(|index| 1_000 * SECOND + index).collect();
        let cursor = read(&times, Cursor::default()).unwrap()[30].1;
        assert!(read(&times[10..], cursor).is_none());
    }

    #[test]
    fn entries_are_read() {
        let entry =
            |text: &str| parts(LogOutput::StdErr { message: Bytes::copy_from_slice(text.as_bytes()) });
        let (time, stderr, data, unfinished) = entry("1970-01-01T00:00:01.000000002Z a b\n").unwrap();
        assert_eq!((time, stderr, data.as_ref(), unfinished), (SECOND + 2, true, b"a b".as_slice(), false));
        assert!(entry("1970-01-01T00:00:01Z half").unwrap().3);
        assert!(entry("no time").is_none());
    }
}
