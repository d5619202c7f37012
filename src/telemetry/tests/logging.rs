//! Logging is set up once per process, so it has a test binary of its own.

use std::time::Duration;

use quorate_telemetry::logging::{Format, Identity, LogConfig, LogError, init};
use tracing::Level;

#[test]
fn the_filter_changes_at_run_time_and_a_second_init_is_refused() {
    let config = |filter: &str| LogConfig {
        filter: filter.to_owned(),
        format: Format::Json,
        identity: Identity::Manager("m1".to_owned()),
    };
    assert!(matches!(init(config("inof")), Err(LogError::Filter { .. })));
    let handle = init(config("warn")).unwrap();
    assert!(!tracing::enabled!(Level::DEBUG) && tracing::enabled!(Level::WARN));

    handle.set_filter("debug").unwrap();
    assert!(tracing::enabled!(Level::DEBUG));
    assert_eq!(handle.filter().unwrap(), "debug");

    let first = handle.lend_filter("trace").unwrap();
    let second = handle.lend_filter("error").unwrap();
    assert_eq!(handle.restore(first).unwrap(), None, "another one was lent since");
    assert_eq!(handle.filter().unwrap(), "error");
    assert_eq!(handle.restore(second).unwrap().as_deref(), Some("debug"));
    assert_eq!(handle.filter().unwrap(), "debug");

    tracing::info_span!("write", request_id = "r1").in_scope(|| tracing::info!("kept"));
    let line = handle.recent(Duration::from_secs(3600));
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["msg"], &line["request_id"], &line["manager"]),
        (&"kept".into(), &"r1".into(), &"m1".into())
    );

    assert!(matches!(handle.set_filter("logging=loud"), Err(LogError::Filter { .. })));
    assert!(tracing::enabled!(Level::DEBUG), "the old filter stays");
    assert!(matches!(init(config("info")), Err(LogError::AlreadySet { .. })));
}
