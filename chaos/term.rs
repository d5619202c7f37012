//! What the harness shows: steps with ticks, and a sign of life for whatever takes longer than a second.

use std::cell::{Cell, RefCell};
use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use quorate_base::{Clock, format_duration};

const FRAMES: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠴', '⠦', '⠧', '⠇'];
/// Between two pictures of a running step on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Between two lines of a running step elsewhere.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Standard output, as a terminal or as a file.
#[derive(Debug)]
pub struct Term {
    clock: Clock,
    live: bool,
    colour: bool,
}

/// What a running step is at.
#[derive(Clone, Debug, Default)]
pub struct Note(Rc<RefCell<String>>);

impl Note {
    /// Replaces what is shown beside the step.
    pub fn set(&self, text: impl Into<String>) {
        self.0.replace(text.into());
    }

    fn text(&self) -> String {
        self.0.borrow().clone()
    }
}

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Good,
    Bad,
}

impl Term {
    /// The process's own standard output; colours and redrawing only on a terminal that has them.
    pub fn stdout() -> Self {
        let tty = io::stdout().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self { clock: Clock::system(), live: tty, colour: tty && env::var_os("NO_COLOR").is_none() }
    }

    /// A line.
    pub fn say(&self, text: &str) {
        put(&format!("{text}\n"));
    }

    /// A line that begins a part.
    pub fn heading(&self, text: &str) {
        self.say(&format!("\n{}", self.paint(Style::Bold, text)));
    }

    /// A line of detail below a step.
    pub fn detail(&self, text: &str) {
        self.say(&format!("    {}", self.paint(Style::Dim, text)));
    }

    /// Text as it came, below a step.
    pub fn quote(&self, text: &str) {
        text.lines().for_each(|line| self.say(&format!("    {line}")));
    }

    /// A command as a user would type it.
    pub fn command(&self, text: &str) {
        self.say(&format!("  {} {}", self.paint(Style::Dim, "$"), self.paint(Style::Bold, text)));
    }

    /// Something that holds.
    pub fn tick(&self, text: &str) {
        self.say(&format!("  {} {text}", self.paint(Style::Good, "✔")));
    }

    /// Something that does not hold.
    pub fn cross(&self, text: &str) {
        self.say(&format!("  {} {text}", self.paint(Style::Bad, "✘")));
    }

    /// Runs one step: shown while it runs, and with a tick or a cross and its time when it has ended. The step's own
    /// answer says how it is told.
    ///
    /// # Errors
    /// What the step gives up with.
    pub async fn step<T>(
        &self,
        title: &str,
        work: impl AsyncFnOnce(Note) -> Result<(T, String)>,
    ) -> Result<T> {
        let note = Note::default();
        let started = self.clock.monotonic();
        let ended = {
            let work = work(note.clone());
            let mut work = std::pin::pin!(work);
            let frame = Cell::new(0_usize);
            loop {
                let pause = if self.live { REDRAW } else { SIGN_OF_LIFE };
                tokio::select! {
                    biased;
                    ended = &mut work => break ended,
                    () = self.clock.sleep(pause) => {
                        frame.set(frame.get() + 1);
                        let elapsed = self.clock.monotonic().since(started);
                        self.alive(title, &note.text(), frame.get(), elapsed);
                    }
                }
            }
        };
        self.wipe();
        let took = self.paint(Style::Dim, &format!("({})", rounded(self.clock.monotonic().since(started))));
        match ended {
            Ok((value, told)) => {
                self.tick(&format!("{title}{}{told} {took}", if told.is_empty() { "" } else { ": " }));
                Ok(value)
            }
            Err(error) => {
                self.cross(&format!("{title} {took}"));
                Err(error)
            }
        }
    }

    fn alive(&self, title: &str, note: &str, frame: usize, elapsed: Duration) {
        let note = if note.is_empty() { String::new() } else { format!(" · {note}") };
        if self.live {
            let sign = FRAMES.get(frame % FRAMES.len()).copied().unwrap_or(' ');
            let line = format!("  {sign} {title}{note} {}", rounded(elapsed));
            put(&format!("\r\x1b[2K{}", cut(&line)));
        } else {
            put(&format!("  … {title}{note} {}\n", rounded(elapsed)));
        }
    }

    fn wipe(&self) {
        if self.live {
            put("\r\x1b[2K");
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One terminal line; a longer one would not be wiped whole.
fn cut(line: &str) -> String {
    line.chars().take(100).collect()
}

/// Tenths of a second, and below one second milliseconds.
fn rounded(span: Duration) -> String {
    let unit = if span < Duration::from_secs(1) { 1 } else { 100 };
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    format_duration(Duration::from_millis(millis / unit * unit))
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody reads any more (a closed pipe): the work goes on, its exit status still tells.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(rounded(Duration::from_micros(4_321)), "4ms");
        assert_eq!(rounded(Duration::from_millis(12_345)), "12s300ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_hands_out_what_its_work_made() {
        let term = Term { clock: Clock::system(), live: false, colour: false };
        let made = term
            .step("work", async |note| {
                note.set("half way");
                Clock::system().sleep(Duration::from_secs(3)).await;
                Ok((42, "done".to_owned()))
            })
            .await;
        assert_eq!(made.unwrap(), 42);
    }
}
