//! Logging is set up once per process, so it has a test binary of its own.

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

    assert!(matches!(handle.set_filter("logging=loud"), Err(LogError::Filter { .. })));
    assert!(tracing::enabled!(Level::DEBUG), "the old filter stays");
    assert!(matches!(init(config("info")), Err(LogError::AlreadySet { .. })));
}
