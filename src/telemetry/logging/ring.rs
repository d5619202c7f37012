//! The newest log lines, kept in memory for whoever asks the process for them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use quorate_base::sync::lock;
use quorate_base::time::{Clock, Timestamp};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that are kept.
const CAPACITY: usize = 4 << 20;

/// A bounded store of lines: the oldest make room for the newest. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    clock: Clock,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug)]
struct Lines {
    capacity: usize,
    bytes: usize,
    kept: VecDeque<(Timestamp, Box<str>)>,
}

impl Ring {
    pub(super) fn new(clock: Clock) -> Self {
        Self::with_capacity(clock, CAPACITY)
    }

    fn with_capacity(clock: Clock, capacity: usize) -> Self {
        let lines = Lines { capacity, bytes: 0, kept: VecDeque::new() };
        Self { clock, lines: Arc::new(Mutex::new(lines)) }
    }

    /// The lines written at `from` or later, oldest first, each with its end of line.
    pub(super) fn since(&self, from: Timestamp) -> String {
        let lines = lock(&self.lines);
        // Not by search: a clock that was set back leaves them out of order.
        lines.kept.iter().filter(|(at, _)| *at >= from).map(|(_, line)| &**line).collect()
    }

    fn push(&self, line: &str) {
        let at = self.clock.now();
        let mut lines = lock(&self.lines);
        lines.bytes += line.len();
        lines.kept.push_back((at, line.into()));
        while lines.bytes > lines.capacity {
            let Some((_, oldest)) = lines.kept.pop_front() else { break };
            lines.bytes -= oldest.len();
        }
    }
}

/// Each write is one line.
impl io::Write for Ring {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Ring {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_lines_make_room_and_readers_choose_how_far_back() {
        let clock = Clock::manual(Timestamp::from_millis(1_000));
        let mut ring = Ring::with_capacity(clock.clone(), 12);
        for line in ["one\n", "two\n", "six\n"] {
            ring.write_all(line.as_bytes()).unwrap();
            clock.advance(Duration::from_secs(1));
        }
        let all = Timestamp::from_millis(0);
        assert_eq!(ring.since(all), "one\ntwo\nsix\n");
        assert_eq!(ring.since(Timestamp::from_millis(2_000)), "two\nsix\n");
        assert_eq!(ring.since(Timestamp::from_millis(3_001)), "");

        ring.write_all(b"eleven\n").unwrap();
        assert_eq!(ring.since(all), "six\neleven\n");
        ring.write_all(b"larger than all of it\n").unwrap();
        assert_eq!(ring.since(all), "", "a line that does not fit is not kept");
        ring.write_all(b"ten\n").unwrap();
        assert_eq!(ring.since(all), "ten\n");
    }
}
