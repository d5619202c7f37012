//! Text lines for systemd's journal, which takes a line's priority from `<N>` at its beginning.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Whether standard error leads to the journal: `JOURNAL_STREAM` names its device and inode. What a service starts
/// inherits the variable, also where it writes elsewhere.
pub(super) fn is_connected() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|stderr| names(&named, stderr.dev(), stderr.ino()))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    let Some((dev, ino)) = stream.split_once(':') else { return false };
    dev.parse() == Ok(device) && ino.parse() == Ok(inode)
}

/// Puts the priority before what `inner` writes, if `on`.
pub(super) struct Prioritised<F> {
    pub(super) inner: F,
    pub(super) on: bool,
}

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.on {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        self.inner.format_event(context, writer, event)
    }
}

/// The priority of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use quorate_base::sync::lock;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(on: bool) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .event_format(Prioritised { inner: tracing_subscriber::fmt::format().without_time(), on })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "x", "a");
            tracing::warn!(target: "x", "b");
            tracing::info!(target: "x", "c");
            tracing::debug!(target: "x", "d");
        });
        String::from_utf8(lock(&sink.0).clone()).unwrap()
    }

    #[test]
    fn lines_begin_with_their_priority_for_the_journal_alone() {
        assert_eq!(written(true), "<3>ERROR x: a\n<4> WARN x: b\n<6> INFO x: c\n<7>DEBUG x: d\n");
        assert_eq!(written(false), "ERROR x: a\n WARN x: b\n INFO x: c\nDEBUG x: d\n");
    }

    #[test]
    fn the_variable_names_device_and_inode() {
        assert!(names("8:12345", 8, 12345));
        for other in ["8:12346", "9:12345", "8", "", "8:12345:1", "x:12345"] {
            assert!(!names(other, 8, 12345), "{other}");
        }
    }
}
