//! Numbers for people.

use std::time::Duration;

/// Measured spans.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<Duration>);

impl Spans {
    /// Adds one.
    pub fn push(&mut self, span: Duration) {
        let at = self.0.partition_point(|other| *other <= span);
        self.0.insert(at, span);
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest one that at least `percent` of all do not exceed (nearest rank); zero when there are none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).or_else(|| self.0.last()).copied().unwrap_or_default()
    }

    /// `p50 … · p99 … · max … (N rounds)`.
    pub fn summary(&self) -> String {
        format!(
            "p50 {} · p99 {} · max {} ({} rounds)",
            millis(self.percentile(50)),
            millis(self.percentile(99)),
            millis(self.percentile(100)),
            self.len()
        )
    }
}

impl FromIterator<Duration> for Spans {
    fn from_iter<I: IntoIterator<Item = Duration>>(spans: I) -> Self {
        let mut all: Vec<Duration> = spans.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }
}

/// Milliseconds: one decimal below ten, none above.
pub fn millis(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1_000.0;
    if millis < 10.0 { format!("{millis:.1} ms") } else { format!("{millis:.0} ms") }
}

/// Lines of columns, each as wide as its widest cell, two spaces between; the last column is not padded.
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..rows.iter().map(Vec::len).max().unwrap_or_default()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let spans: Spans = (1..=20).rev().map(Duration::from_millis).collect();
        assert_eq!(spans.percentile(50), Duration::from_millis(10));
        assert_eq!(spans.percentile(99), Duration::from_millis(20));
        assert_eq!(spans.percentile(100), Duration::from_millis(20));
        assert_eq!(Spans::default().percentile(50), Duration::ZERO);
        assert_eq!(spans.summary(), "p50 10 ms · p99 20 ms · max 20 ms (20 rounds)");
    }

    #[test]
    fn short_spans_keep_a_decimal() {
        assert_eq!(millis(Duration::from_micros(1_540)), "1.5 ms");
        assert_eq!(millis(Duration::from_micros(480_600)), "481 ms");
    }

    #[test]
    fn columns_line_up_by_characters() {
        let rows = [vec!["é".to_owned(), "x".to_owned()], vec!["long".to_owned(), "y".to_owned()]];
        assert_eq!(columns(&rows), ["é     x", "long  y"]);
    }
}
