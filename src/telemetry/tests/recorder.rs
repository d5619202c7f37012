//! What `/metrics` shows.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_telemetry::metrics::{self, ALL, Kind};
use quorate_telemetry::recorder::{BUCKETS, install};

#[test]
fn names_follow_the_conventions_and_are_unique() {
    let names: BTreeSet<_> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len());
    for metric in ALL {
        let name = metric.name;
        assert!(name.starts_with("quorate_"), "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(metric.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
        assert!(metric.help.ends_with('.') && metric.help.trim() == metric.help, "{name}: {:?}", metric.help);
        assert!(
            metric
                .labels
                .iter()
                .all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        );
    }
}

#[test]
fn values_appear_with_help_labels_and_buckets_and_a_second_install_shares_them() {
    let handle = install().unwrap();
    metrics::raft_term(7);
    metrics::raft_is_leader(true);
    metrics::jobs("service", "running", 2);
    metrics::reads("stale", "ok", 3);
    metrics::reads("stale", "ok", 4);
    metrics::raft_proposals_failed("a \"quoted\" reason", 1);
    metrics::raft_commit_duration(Duration::from_micros(700));
    metrics::rpc_server_call_duration("JobService/ApplyJob", "OK", Duration::from_secs(31));
    metrics::build_info("0.1.0", "abc", true);

    let text = install().unwrap().render();
    let lines: BTreeSet<_> = text.lines().collect();
    for expected in [
        "# HELP quorate_raft_term Raft's current term.",
        "# TYPE quorate_raft_term gauge",
        "quorate_raft_term 7",
        "quorate_raft_is_leader 1",
        "quorate_jobs{type=\"service\",status=\"running\"} 2",
        "# TYPE quorate_reads_total counter",
        "quorate_reads_total{consistency=\"stale\",result=\"ok\"} 7",
        "quorate_raft_proposals_failed_total{reason=\"a \\\"quoted\\\" reason\"} 1",
        "# TYPE quorate_raft_commit_duration_seconds histogram",
        "quorate_raft_commit_duration_seconds_bucket{le=\"0.0005\"} 0",
        "quorate_raft_commit_duration_seconds_bucket{le=\"0.001\"} 1",
        "quorate_raft_commit_duration_seconds_count 1",
        "quorate_rpc_server_call_duration_seconds_bucket{rpc_method=\"JobService/ApplyJob\",rpc_response_status_code=\"OK\",le=\"30\"} 0",
        "quorate_rpc_server_call_duration_seconds_bucket{rpc_method=\"JobService/ApplyJob\",rpc_response_status_code=\"OK\",le=\"+Inf\"} 1",
        "quorate_build_info{version=\"0.1.0\",commit=\"abc\"} 1",
    ] {
        assert!(lines.contains(expected), "missing: {expected}\n{text}");
    }
    assert_eq!(handle.render().lines().collect::<BTreeSet<_>>(), lines);

    let fewer = handle.render_without(metrics::OF_THE_LEADER);
    assert!(!fewer.contains("quorate_jobs") && fewer.contains("quorate_raft_is_leader 1"), "{fewer}");
    let gone: Vec<_> = text.lines().filter(|line| !fewer.lines().any(|other| other == *line)).collect();
    assert!(gone.iter().all(|line| line.contains("quorate_jobs")) && gone.len() == 3, "{gone:?}");
}

#[test]
fn buckets_go_from_half_a_millisecond_to_thirty_seconds() {
    assert_eq!((BUCKETS.first(), BUCKETS.last()), (Some(&0.0005), Some(&30.0)));
    assert!(BUCKETS.is_sorted());
}
