//! Merging the logs of several tasks: by time where everything was written already, as it comes where it is followed.

use std::collections::VecDeque;

use quorate_wire::api as pb;
use tokio::sync::mpsc;

use crate::api::output::{Gone, Output};

/// Most bytes of one answer, roughly.
const MOST_BYTES: usize = 256 << 10;
/// What a line costs besides its bytes.
const PER_LINE: usize = 128;

/// What a source gives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Lines, oldest first.
    Lines(Vec<pb::LogLine>),
    /// A word for the reader.
    Notice(pb::LogNotice),
}

/// Answers in the making.
#[derive(Default)]
struct Batch {
    answer: pb::ReadLogsResponse,
    bytes: usize,
}

impl Batch {
    fn line(&mut self, line: pb::LogLine) {
        self.bytes += line.data.len() + PER_LINE;
        self.answer.lines.push(line);
    }

    fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    /// Sends what there is.
    async fn flush(&mut self, output: &mut Output<pb::ReadLogsResponse>) -> Result<(), Gone> {
        self.bytes = 0;
        let answer = std::mem::take(&mut self.answer);
        if answer.lines.is_empty() && answer.notices.is_empty() {
            return Ok(());
        }
        output.send(answer).await
    }
}

/// Merges sources that end by themselves: lines come in the order of their times, ties in the order of the sources.
/// Waits for every source, so none of them runs ahead by more than its channel holds.
///
/// # Errors
/// [`Gone`] when the reader is.
pub(super) async fn by_time(
    mut sources: Vec<mpsc::Receiver<Piece>>,
    output: &mut Output<pb::ReadLogsResponse>,
) -> Result<(), Gone> {
    let mut heads: Vec<VecDeque<pb::LogLine>> = sources.iter().map(|_| VecDeque::new()).collect();
    let mut open = vec![true; sources.len()];
    let mut batch = Batch::default();
    loop {
        for ((source, head), open) in sources.iter_mut().zip(&mut heads).zip(&mut open) {
            while *open && head.is_empty() {
                let piece = match source.try_recv() {
                    Ok(piece) => Some(piece),
                    Err(_) => {
                        // It makes us wait: what is ready goes out first.
                        batch.flush(output).await?;
                        source.recv().await
                    }
                };
                match piece {
                    Some(Piece::Lines(lines)) => head.extend(lines),
                    Some(Piece::Notice(notice)) => batch.answer.notices.push(notice),
                    None => *open = false,
                }
            }
        }
        let next = heads.iter().enumerate().filter_map(|(i, head)| Some((time(head.front()?), i))).min();
        let Some((_, first)) = next else { return batch.flush(output).await };
        if let Some(line) = heads.get_mut(first).and_then(VecDeque::pop_front) {
            batch.line(line);
        }
        if batch.is_full() {
            batch.flush(output).await?;
        }
    }
}

/// Sends what one source gave, with whatever is ready besides, sorted by time within the message.
///
/// # Errors
/// [`Gone`] when the reader is.
pub(super) async fn as_it_comes(
    first: Piece,
    ready: &mut mpsc::Receiver<Piece>,
    output: &mut Output<pb::ReadLogsResponse>,
) -> Result<(), Gone> {
    let mut batch = Batch::default();
    let mut next = Some(first);
    while let Some(piece) = next {
        match piece {
            Piece::Lines(lines) => lines.into_iter().for_each(|line| batch.line(line)),
            Piece::Notice(notice) => batch.answer.notices.push(notice),
        }
        next = if batch.is_full() { None } else { ready.try_recv().ok() };
    }
    // Stable: the lines of one task keep their order.
    batch.answer.lines.sort_by_key(time);
    batch.flush(output).await
}

fn time(line: &pb::LogLine) -> (i64, i32) {
    line.time.as_ref().map_or((0, 0), |at| (at.seconds, at.nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use proptest::prelude::*;
    use quorate_base::time::Timestamp;
    use quorate_wire::common::timestamp;

    fn line(task: usize, seconds: i64) -> pb::LogLine {
        pb::LogLine {
            task: format!("t{task}"),
            time: Some(timestamp(Timestamp::from_millis(seconds.unsigned_abs() * 1000))),
            ..pb::LogLine::default()
        }
    }

    /// What a reader gets of sources with these times each.
    async fn merged(times: Vec<Vec<i64>>) -> Vec<(i64, String)> {
        let (mut senders, mut sources) = (Vec::new(), Vec::new());
        for times in &times {
            let (send, source) = mpsc::channel(times.len().max(1));
            for at in times {
                send.try_send(Piece::Lines(vec![line(senders.len(), *at)])).unwrap();
            }
            senders.push(send);
            sources.push(source);
        }
        drop(senders);
        let (mut output, answers) = Output::new(std::time::Duration::from_secs(60));
        let work = async move {
            by_time(sources, &mut output).await.unwrap();
            output.end(None);
        };
        let ((), answers) = futures::join!(work, answers.collect::<Vec<_>>());
        let lines = answers.into_iter().flat_map(|answer| answer.unwrap().lines);
        lines.map(|line| (time(&line).0, line.task)).collect()
    }

    proptest! {
        #[test]
        fn lines_come_by_time_and_none_is_lost(
            mut times in prop::collection::vec(prop::collection::vec(0_i64..50, 0..20), 0..5),
        ) {
            times.iter_mut().for_each(|times| times.sort_unstable());
            let mut wanted: Vec<(i64, String)> = times
                .iter()
                .enumerate()
                .flat_map(|(i, times)| times.iter().map(move |at| (*at, format!("t{i}"))))
                .collect();
            wanted.sort();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            prop_assert_eq!(runtime.block_on(merged(times)), wanted);
        }
    }

    #[tokio::test]
    async fn what_is_ready_does_not_wait_for_a_source_that_is_silent() {
        let (fast, first) = mpsc::channel(4);
        let (slow, second) = mpsc::channel::<Piece>(4);
        slow.send(Piece::Lines(vec![line(1, 2)])).await.unwrap();
        fast.send(Piece::Lines(vec![line(0, 1)])).await.unwrap();
        let (mut output, mut answers) = Output::new(std::time::Duration::from_secs(60));
        let work = by_time(vec![first, second], &mut output);
        tokio::pin!(work);
        let got = tokio::select! {
            _ = &mut work => panic!("a source is open"),
            answer = answers.next() => answer.unwrap().unwrap(),
        };
        assert_eq!(got.lines, [line(0, 1)]);
        drop((fast, slow));
        work.await.unwrap();
    }

    #[tokio::test]
    async fn followed_lines_are_sorted_within_a_message_and_bounded() {
        let (send, mut ready) = mpsc::channel(64);
        let big = |at| pb::LogLine { data: vec![b'x'; MOST_BYTES / 4].into(), ..line(1, at) };
        for at in [9, 7, 8, 6, 5] {
            send.send(Piece::Lines(vec![big(at)])).await.unwrap();
        }
        let (mut output, mut answers) = Output::new(std::time::Duration::from_secs(60));
        let first = Piece::Lines(vec![line(0, 8)]);
        as_it_comes(first, &mut ready, &mut output).await.unwrap();
        let got = answers.next().await.unwrap().unwrap();
        let times: Vec<i64> = got.lines.iter().map(|l| time(l).0).collect();
        assert_eq!(times, [6, 7, 8, 8, 9], "the message is full after four large ones");
        assert_eq!(ready.len(), 1);
    }
}
