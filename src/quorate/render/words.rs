//! Small texts: ages, shares, words of enumerations.

use std::time::Duration;

use quorate_base::Timestamp;

/// What stands where there is nothing to say.
pub(super) const NONE: &str = "–";

/// How long ago, in the largest unit or two: `41s`, `12m`, `5h12m`, `3d4h`.
pub(super) fn age(span: Duration) -> String {
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
pub(super) fn since<T>(moment: Option<&T>, now: Timestamp, read: impl Fn(&T) -> Timestamp) -> String {
    moment.map_or_else(|| NONE.to_owned(), |moment| age(now.since(read(moment))))
}

/// A short span with a fitting unit: `2.1ms`, `38ms`, `1.2s`.
pub(super) fn short(span: Duration) -> String {
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
pub(super) fn word(value: &str, prefix: &str) -> String {
    value.strip_prefix(prefix).unwrap_or(value).trim_start_matches('_').to_lowercase()
}

/// `web` in the default namespace, `shop/web` elsewhere.
pub(super) fn job_name(namespace: &str, job: &str) -> String {
    if namespace == "default" || namespace.is_empty() { job.to_owned() } else { format!("{namespace}/{job}") }
}

/// What is not empty, else [`NONE`].
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// Part of a whole in percent; nothing of nothing is nothing.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
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
    fn words_come_from_the_names_of_the_api() {
        assert_eq!(word("TASK_STATE_RUNNING", "TASK_STATE"), "running");
        assert_eq!(word("MANAGER_STATE_LEADER", "MANAGER_STATE"), "leader");
        assert_eq!((percent(62, 80), percent(1, 0), percent(u64::MAX, u64::MAX)), (77, 0, 100));
    }
}
