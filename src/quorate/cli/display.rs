//! Where progress is shown: on standard error, redrawn, line by line, as JSON, or not at all.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use quorate_base::Mono;
use serde_json::json;

use super::args::Progress;
use super::context::{Context, say};
use crate::render::progress::{self, Moment};
use crate::render::style::dumb;

/// A terminal is redrawn at most this often.
const REDRAWS: Duration = Duration::from_millis(100);
/// A terminal's clock moves on at least this often.
const TICK: Duration = Duration::from_secs(1);

/// Where progress is shown.
pub(super) enum Display {
    /// Redrawn in place.
    Terminal(Picture),
    /// A line per change.
    Log { before: String, json: bool },
    /// Nowhere.
    Quiet,
}

/// A picture on a terminal.
#[derive(Default)]
pub(super) struct Picture {
    /// Lines that stand.
    lines: usize,
    /// What they show, and since when.
    shown: Option<(Vec<String>, Mono)>,
}

impl Display {
    /// As the flags and standard error want it.
    pub(super) fn new(context: &Context) -> Self {
        let terminal = || io::stderr().is_terminal() && !dumb();
        match context.global.progress {
            Progress::None => Self::Quiet,
            Progress::Auto if context.global.quiet || context.json() => Self::Quiet,
            Progress::Tty => Self::Terminal(Picture::default()),
            Progress::Auto if terminal() => Self::Terminal(Picture::default()),
            Progress::Json => Self::Log { before: String::new(), json: true },
            Progress::Auto | Progress::Plain => Self::Log { before: String::new(), json: false },
        }
    }

    /// Shows a moment; how long to wait at most before it must be shown again.
    pub(super) fn show(
        &mut self,
        context: &Context,
        moment: &Moment,
        verifying: bool,
        elapsed: Duration,
    ) -> Duration {
        match self {
            Self::Quiet => Duration::MAX,
            Self::Log { before, json } => {
                let line = if *json {
                    progress::document(moment, verifying).to_string()
                } else {
                    progress::line(moment)
                };
                if *before != line {
                    say(&stamped(context, &line, *json));
                    *before = line;
                }
                Duration::MAX
            }
            Self::Terminal(picture) => {
                let frame = progress::frame(moment, verifying, elapsed, context.now());
                picture.draw(frame, context.clock.monotonic())
            }
        }
    }

    /// Says something in a line of its own, above the picture.
    pub(super) fn note(&mut self, context: &Context, text: &str) {
        match self {
            Self::Quiet => {}
            Self::Log { json: true, .. } => {
                say(&stamped(context, &json!({ "note": text }).to_string(), true))
            }
            Self::Log { .. } => say(&stamped(context, text, false)),
            Self::Terminal(picture) => picture.above(&context.global.style().dim(text)),
        }
    }

    /// Leaves the last picture standing.
    pub(super) fn close(&mut self) {
        *self = Self::Quiet;
    }
}

/// A line with the time in front, or in the document.
fn stamped(context: &Context, line: &str, json: bool) -> String {
    let now = context.now();
    match line.strip_prefix('{').filter(|_| json) {
        Some(rest) => format!("{{\"time\":\"{now}\",{rest}"),
        None => format!("{now} {line}"),
    }
}

impl Picture {
    /// Draws what changed, not too often; how long until it wants to be asked again.
    fn draw(&mut self, frame: Vec<String>, now: Mono) -> Duration {
        let waits = match &self.shown {
            Some((old, at)) => {
                let least = if *old == frame { TICK } else { REDRAWS };
                least.saturating_sub(now.since(*at))
            }
            None => Duration::ZERO,
        };
        if waits.is_zero() {
            self.lines = redraw(self.lines, &frame);
            self.shown = Some((frame, now));
            return TICK;
        }
        waits
    }

    /// Puts a line above it.
    fn above(&mut self, text: &str) {
        let frame = self.shown.as_ref().map(|(frame, _)| frame.clone()).unwrap_or_default();
        let with: Vec<String> = [text.to_owned()].into_iter().chain(frame.iter().cloned()).collect();
        redraw(self.lines, &with);
        self.lines = frame.len();
    }
}

/// Draws over the `drawn` lines above; how many lines stand now. Lines wider than the terminal are cut by it: a wrapped
/// one would be drawn over wrongly.
pub(super) fn redraw(drawn: usize, frame: &[String]) -> usize {
    let mut out = String::from("\x1b[?7l");
    if drawn > 0 {
        out.push_str(&format!("\x1b[{drawn}A"));
    }
    for line in frame {
        out.push_str(&format!("\r{line}\x1b[K\n"));
    }
    out.push_str("\x1b[J\x1b[?7h");
    let _ = io::stderr().write_all(out.as_bytes());
    frame.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_base::{Clock, Timestamp};

    #[test]
    fn a_terminal_is_redrawn_ten_times_a_second_at_most_and_its_clock_moves_on() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let mut picture = Picture::default();
        let mut draw = |text: &str| picture.draw(vec![text.to_owned()], clock.monotonic());
        assert_eq!(draw("a"), TICK);
        assert!(clock.advance(Duration::from_millis(30)));
        assert_eq!(draw("b"), Duration::from_millis(70));
        assert!(clock.advance(Duration::from_millis(70)));
        assert_eq!(draw("b"), TICK);
        assert!(clock.advance(Duration::from_millis(400)));
        assert_eq!(draw("b"), Duration::from_millis(600));
    }
}
