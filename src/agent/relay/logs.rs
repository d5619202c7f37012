//! Logs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use quorate_base::Timestamp;
use quorate_model::{TaskEventKind, TaskId};
use quorate_wire::agent::{LogOrder, RelayLine, RelayLines, relay_request};
use quorate_wire::common::{moment, timestamp};
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::mpsc;

use super::{Ended, Gone, Relays, Speaker};
use crate::runtime::streams::{LogItem, LogLine, LogRead};
use crate::runtime::{Runtime, Work};

/// Lines that may wait between a runtime and the relay: 4 MiB at most, and far less usually.
const AHEAD: usize = 256;
/// Bytes of one message.
const MOST_BYTES: usize = 256 * 1024;
/// What a line weighs beside its data.
const LINE: usize = 64;
/// Bytes of the last lines that are kept for who asks for them alone.
const MOST_TAIL: usize = 8 << 20;
/// Between looks at a task that does not run at the moment: at first, and at last.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Which lines are wanted.
#[derive(Debug, Clone, Default)]
struct Filter {
    since: Option<Timestamp>,
    /// Of the run in between: after the one, and not after the other.
    run: Option<(Timestamp, Timestamp)>,
    without_stdout: bool,
    without_stderr: bool,
}

impl Filter {
    fn wants(&self, line: &LogLine) -> bool {
        let at = time(line);
        let other = if line.stderr { self.without_stderr } else { self.without_stdout };
        !other
            && self.since.is_none_or(|since| at >= since)
            && self.run.is_none_or(|(after, until)| at > after && at <= until)
    }
}

fn time(line: &LogLine) -> Timestamp {
    let seconds = u64::try_from(line.time.0).unwrap_or(0);
    let millis = u64::try_from(line.time.1).unwrap_or(0) / 1_000_000;
    Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(millis))
}

/// How a task stands to who reads its log.
enum Stand {
    /// It is forgotten.
    Gone,
    /// It ended for good.
    Over,
    /// It runs, or is yet to run.
    Alive,
}

/// One reading.
struct Reading<'a> {
    relays: &'a Relays,
    work: Work,
    runtime: Arc<dyn Runtime>,
    filter: Filter,
    read: LogRead,
    speaker: &'a Speaker,
}

impl Relays {
    pub(super) async fn logs(&self, order: LogOrder, speaker: &Speaker) -> Result<(), Ended> {
        let (work, runtime) = self.task(order.task_id)?;
        let since = order.since.as_ref().map(moment);
        let run = if order.previous { Some(self.previous(work.unit.task)?) } else { None };
        let (without_stdout, without_stderr) = (order.without_stdout, order.without_stderr);
        let filter = Filter { since, run, without_stdout, without_stderr };
        let from = since.max(run.map(|(after, _)| after));
        let since = from.map_or(0, |at| i64::try_from(at.as_millis() / 1_000).unwrap_or(i64::MAX));
        let read = LogRead { cursor: order.cursor, follow: false, since };
        let mut reading = Reading { relays: self, work, runtime, filter, read, speaker };
        // A run that is over is not followed.
        let follow = order.follow && !order.previous;
        if let Some(tail) = order.tail {
            let wait = follow && !reading.is_over();
            match reading.tail(usize::try_from(tail).unwrap_or(usize::MAX)).await {
                Err(Ended::Failed(error)) if wait && error.reason == Reason::LogNotFound => {}
                other => other?,
            }
        }
        match (follow, order.tail) {
            (true, _) => reading.follow().await,
            (false, None) => reading.pass(false).await.map(drop),
            (false, Some(_)) => Ok(()),
        }
    }

    fn stand(&self, task: TaskId) -> Stand {
        match self.core.ledger.read().tasks.get(&task) {
            None => Stand::Gone,
            Some(held) if held.record.status.state.is_terminal() => Stand::Over,
            Some(_) => Stand::Alive,
        }
    }

    /// When the run before the last restart in place began and ended. Nothing is written between an end that was seen
    /// and the next start, so the ends part the runs.
    fn previous(&self, task: TaskId) -> Result<(Timestamp, Timestamp), ApiError> {
        let none = || ApiError::new(Reason::LogNotFound, format!("task {task} was not restarted in place"));
        let contents = self.core.ledger.read();
        let status = contents.tasks.get(&task).map(|held| &held.record.status).ok_or_else(none)?;
        let ends: Vec<Timestamp> = status
            .events
            .iter()
            .filter(|event| {
                matches!(
                    event.kind,
                    TaskEventKind::Exited | TaskEventKind::Killed | TaskEventKind::OutOfMemory
                )
            })
            .map(|event| event.at)
            .collect();
        let mut ends = ends.into_iter().rev().skip(usize::from(status.state.is_terminal()));
        let until = ends.next().filter(|_| status.restarts > 0).ok_or_else(none)?;
        Ok((ends.next().unwrap_or(Timestamp::from_millis(0)), until))
    }
}

impl Reading<'_> {
    fn is_over(&self) -> bool {
        !matches!(self.relays.stand(self.work.unit.task), Stand::Alive)
    }

    /// Goes on until the task has ended and everything was sent, over restarts in place.
    async fn follow(&mut self) -> Result<(), Ended> {
        let (mut wait, mut told) = (LOOK.0, false);
        loop {
            // Asked before: what it wrote until its end is then read.
            let over = self.is_over();
            match self.pass(true).await {
                Ok(true) => wait = LOOK.0,
                Ok(false) => {}
                Err(Ended::Failed(error)) if error.reason == Reason::LogNotFound => {
                    if over {
                        // Removed meanwhile: nothing more can come.
                        return Ok(());
                    }
                    if !std::mem::replace(&mut told, true) {
                        let text = "not started yet".to_owned();
                        self.speaker.say(relay_request::Body::Notice(text)).await?;
                    }
                }
                Err(ended) => return Err(ended),
            }
            if over {
                return Ok(());
            }
            self.relays.core.clock.sleep(wait).await;
            wait = (wait * 2).min(LOOK.1);
        }
    }

    /// Passes on what the runtime gives. Whether there was anything.
    async fn pass(&mut self, follow: bool) -> Result<bool, Ended> {
        let read = LogRead { follow, ..self.read.clone() };
        let (sink, mut items) = mpsc::channel(AHEAD);
        let (speaker, filter, cursor) = (self.speaker, &self.filter, &mut self.read.cursor);
        let sending = async move {
            let mut any = false;
            while let Some(item) = items.recv().await {
                any = true;
                let mut batch = Batch::default();
                let mut next = Some(item);
                // What is there already goes along; nothing is waited for.
                while let Some(item) = next.take() {
                    match item {
                        LogItem::Line(line) => {
                            cursor.clone_from(&line.cursor);
                            if filter.wants(&line) {
                                batch.add(line);
                            }
                        }
                        LogItem::Notice(text) => {
                            batch.send(speaker).await?;
                            speaker.say(relay_request::Body::Notice(text)).await?;
                        }
                    }
                    if batch.is_full() {
                        batch.send(speaker).await?;
                    }
                    next = items.try_recv().ok();
                }
                batch.send(speaker).await?;
            }
            Ok::<bool, Gone>(any)
        };
        let reading = async {
            let read = self.runtime.logs(&self.work.unit, &read, &sink).await;
            drop(sink);
            read
        };
        let (read, sent) = tokio::join!(reading, sending);
        let any = sent?;
        read?;
        Ok(any)
    }

    /// The last `count` lines of what there is.
    async fn tail(&mut self, count: usize) -> Result<(), Ended> {
        let read = self.read.clone();
        let (sink, mut items) = mpsc::channel(AHEAD);
        let (filter, cursor) = (&self.filter, &mut self.read.cursor);
        let keeping = async move {
            let mut tail = Tail::new(count);
            while let Some(item) = items.recv().await {
                if let LogItem::Line(line) = item {
                    cursor.clone_from(&line.cursor);
                    if filter.wants(&line) {
                        tail.push(line);
                    }
                }
            }
            tail
        };
        let reading = async {
            let read = self.runtime.logs(&self.work.unit, &read, &sink).await;
            drop(sink);
            read
        };
        let (read, tail) = tokio::join!(reading, keeping);
        read?;
        if tail.cut {
            let text = format!("only the last {} lines fit", tail.lines);
            self.speaker.say(relay_request::Body::Notice(text)).await?;
        }
        let mut batch = Batch::default();
        for line in tail.kept {
            batch.add(line);
            if batch.is_full() {
                batch.send(self.speaker).await?;
            }
        }
        Ok(batch.send(self.speaker).await?)
    }
}

/// Lines of one message.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<RelayLine>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, line: LogLine) {
        self.bytes += weight(&line);
        let mut at = timestamp(time(&line));
        let LogLine { time: (_, nanos), stderr, data, unfinished, cursor } = line;
        // Finer than what the product counts in.
        at.nanos = nanos;
        self.lines.push(RelayLine { time: Some(at), stderr, data, unfinished, cursor });
    }

    /// Whether another line may be too much.
    const fn is_full(&self) -> bool {
        self.bytes + crate::runtime::streams::MOST_PIECE + 2 * LINE > MOST_BYTES
    }

    async fn send(&mut self, speaker: &Speaker) -> Result<(), Gone> {
        let Self { lines, .. } = std::mem::take(self);
        if lines.is_empty() {
            return Ok(());
        }
        speaker.say(relay_request::Body::Lines(RelayLines { lines })).await
    }
}

fn weight(line: &LogLine) -> usize {
    line.data.len() + LINE
}

/// The last lines, bounded in number and bytes.
#[derive(Debug)]
struct Tail {
    kept: VecDeque<LogLine>,
    most: usize,
    /// Whole lines among them, and the one that is being written.
    lines: usize,
    bytes: usize,
    /// Whether fewer lines are kept than were asked for, for lack of room.
    cut: bool,
}

impl Tail {
    const fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, lines: 0, bytes: 0, cut: false }
    }

    fn push(&mut self, line: LogLine) {
        self.bytes += weight(&line);
        self.lines += usize::from(self.kept.back().is_none_or(|last| !last.unfinished));
        self.kept.push_back(line);
        while self.lines > self.most || self.bytes > MOST_TAIL {
            self.cut = self.lines <= self.most || (self.cut && self.bytes > MOST_TAIL);
            self.drop_line();
        }
    }

    fn drop_line(&mut self) {
        while let Some(line) = self.kept.pop_front() {
            self.bytes -= weight(&line);
            if !line.unfinished {
                break;
            }
        }
        self.lines = self.lines.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(text: &str, unfinished: bool) -> LogLine {
        let data = text.as_bytes().to_vec().into();
        LogLine { time: (1, 0), stderr: false, data, unfinished, cursor: String::new() }
    }

    proptest! {
        #[test]
        fn a_tail_is_the_last_lines(pieces in prop::collection::vec(any::<bool>(), 0..30), most in 0_usize..10) {
            let mut tail = Tail::new(most);
            let (mut lines, mut open): (Vec<Vec<usize>>, bool) = (Vec::new(), false);
            for (index, unfinished) in pieces.into_iter().enumerate() {
                tail.push(line(&index.to_string(), unfinished));
                match lines.last_mut() {
                    Some(last) if open => last.push(index),
                    _ => lines.push(vec![index]),
                }
                open = unfinished;
            }
            let kept: Vec<usize> = tail.kept.iter().map(|l| std::str::from_utf8(&l.data).unwrap().parse().unwrap()).collect();
            // A line that goes on is cut with its beginning; with none at all wanted nothing is kept.
            let expected: Vec<usize> = lines[lines.len().saturating_sub(most)..].concat();
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn a_tail_that_is_too_large_says_so() {
        let mut tail = Tail::new(10_000);
        for _ in 0..10_000 {
            tail.push(line(&"x".repeat(1_024), false));
        }
        assert!(tail.cut && tail.bytes <= MOST_TAIL && tail.lines < 10_000);
    }
}
