//! What is written about the metrics agrees with the table.

use std::collections::BTreeSet;

use quorate_telemetry::metrics::{ALL, Kind};

const README: &str = include_str!("../README.md");
const ALERTS: &str = include_str!("../../../config/alerts.yml");

/// The metrics that `text` names: words with our prefix.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("quorate_")).collect()
}

#[test]
fn the_readme_describes_each_metric_and_no_other() {
    for metric in ALL {
        let row = README.lines().find(|line| line.starts_with(&format!("| `{}` |", metric.name)));
        let row = row.unwrap_or_else(|| panic!("README.md has no row for {}", metric.name));
        assert!(row.ends_with(&format!("| {} |", metric.help)), "{row}\ndiffers from: {}", metric.help);
        for label in metric.labels {
            assert!(row.contains(&format!("`{label}`")), "{row}\nlacks the label {label}");
        }
    }
    let rows = README.lines().filter(|line| line.starts_with("| `quorate_")).count();
    assert_eq!(rows, ALL.len(), "README.md has rows of metrics that there are not");
}

#[test]
fn alerts_name_metrics_that_there_are() {
    let exported: BTreeSet<String> = ALL
        .iter()
        .flat_map(|metric| match metric.kind {
            Kind::Histogram => {
                ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", metric.name)).to_vec()
            }
            Kind::Counter | Kind::Gauge => vec![metric.name.to_owned()],
        })
        .collect();
    let alerts = named(ALERTS);
    assert!(!alerts.is_empty());
    for name in alerts {
        assert!(exported.contains(name), "config/alerts.yml names {name}, which is not exported");
    }
}
