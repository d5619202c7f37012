//! Small texts: ages, shares, words of enumerations.

use std::time::Duration;

use quorate_base::Timestamp;
use quorate_wire::common::moment;

use super::table::{Cell, Key};

/// What stands where there is nothing to say.
pub(crate) const NONE: &str = "–";

/// How long ago, in the largest unit or two: `41s`, `12m`, `5h12m`, `3d4h`.
pub(crate) fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m"),
        () if days == 0 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{}h", hours % 24),
    }
}

/// How long ago a moment was.
pub(crate) fn since<T>(moment: Option<&T>, now: Timestamp, read: impl Fn(&T) -> Timestamp) -> String {
    moment.map_or_else(|| NONE.to_owned(), |moment| age(now.since(read(moment))))
}

/// How long ago a moment was, as a cell that is compared by the time itself.
pub(crate) fn ago(then: Option<&pbjson_types::Timestamp>, now: Timestamp) -> Cell {
    let text = since(then, now, moment);
    Cell::from(text).by(Key::Number(then.map_or(u64::MAX, |then| now.since(moment(then)).as_secs())))
}

/// A span of the API; negative ones count as zero.
pub(crate) fn span(duration: &pbjson_types::Duration) -> Duration {
    let seconds = u64::try_from(duration.seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(duration.nanos).unwrap_or(0).min(999_999_999))
}

/// A short span with a fitting unit: `2.1ms`, `38ms`, `1.2s`.
pub(crate) fn short(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1e3;
    if millis < 10.0 {
        format!("{millis:.1}ms")
    } else if millis < 1_000.0 {
        format!("{millis:.0}ms")
    } else {
        format!("{:.1}s", millis / 1e3)
    }
}

/// `TASK_STATE_RUNNING` → `running`
pub(crate) fn word(value: &str, prefix: &str) -> String {
    value.strip_prefix(prefix).unwrap_or(value).trim_start_matches('_').to_lowercase()
}

/// `web` in the default namespace, `shop/web` elsewhere.
pub(crate) fn job_name(namespace: &str, job: &str) -> String {
    if namespace == "default" || namespace.is_empty() { job.to_owned() } else { format!("{namespace}/{job}") }
}

/// What is not empty, else [`NONE`].
pub(crate) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// `text` in at most `width` characters.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// `parts` with `joint` between them, on several lines where one of `width` characters is too short; further lines are
/// indented.
pub(crate) fn flow<'a>(
    parts: impl IntoIterator<Item = &'a str>,
    joint: &str,
    indent: &str,
    width: Option<usize>,
) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for part in parts {
        let length = part.chars().count();
        if column == 0 {
            column = length;
        } else if width.is_some_and(|width| column + joint.chars().count() + length > width) {
            out.push_str(&format!("{}\n{indent}", joint.trim_end()));
            column = indent.chars().count() + length;
        } else {
            out.push_str(joint);
            column += joint.chars().count() + length;
        }
        out.push_str(part);
    }
    out
}

/// Part of a whole in percent; nothing of nothing is nothing.
pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (18_720, "5h12m"),
            (86_400, "1d0h"),
            (273_600, "3d4h"),
        ];
        for (seconds, expected) in table {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
        for (micros, expected) in [(2_100, "2.1ms"), (38_000, "38ms"), (1_240_000, "1.2s"), (0, "0.0ms")] {
            assert_eq!(short(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn long_texts_are_shortened_and_sentences_flow_over_lines() {
        assert_eq!(
            (shortened("abcdef", 6), shortened("abcdef", 5), shortened("ab cd", 4)),
            ("abcdef".into(), "abcd…".into(), "ab…".into())
        );
        assert_eq!(flow(["ab", "cd", "ef"], " · ", "  ", None), "ab · cd · ef");
        assert_eq!(flow(["ab", "cd", "ef"], " · ", "  ", Some(8)), "ab · cd ·\n  ef");
        assert_eq!(flow("no quorum: 1".split(' '), " ", "  ", Some(10)), "no quorum:\n  1");
    }

    #[test]
    fn words_come_from_the_names_of_the_api() {
        assert_eq!(word("TASK_STATE_RUNNING", "TASK_STATE"), "running");
        assert_eq!(word("MANAGER_STATE_LEADER", "MANAGER_STATE"), "leader");
        assert_eq!((percent(62, 80), percent(1, 0), percent(u64::MAX, u64::MAX)), (77, 0, 100));
    }
}
