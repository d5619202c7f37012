//! What the process logs: `/log-level` shows and changes the filter, `/logs` has the newest lines.

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    extract::{DefaultBodyLimit, Query, State as Shared},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use quorate_base::{
    tasks::{TaskGroup, TaskKind},
    time::{format_duration, parse_duration},
};
use quorate_telemetry::logging::{Loan, LogError, LogHandle};
use serde::Deserialize;
use tokio::sync::watch;
use tracing::{error, info};

/// Most bytes of a filter.
const MAX_FILTER: usize = 4 << 10;
/// The longest time for which a filter is lent.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How far back lines go, unless asked otherwise.
const RECENT: Duration = Duration::from_secs(600);

#[derive(Clone)]
struct Logs {
    log: LogHandle,
    loans: watch::Sender<Option<(Loan, Duration)>>,
}

/// The routes.
pub(super) fn routes(log: LogHandle, group: &TaskGroup) -> Router {
    let (loans, lent) = watch::channel(None);
    group.spawn(TaskKind::best_effort("log filter"), take_back(log.clone(), lent));
    Router::new()
        .route("/log-level", get(show).put(change))
        .route("/logs", get(lines))
        .layer(DefaultBodyLimit::max(MAX_FILTER))
        .with_state(Logs { log, loans })
}

/// Restores the filter when a loan is over; a later one takes the place of an earlier one.
async fn take_back(
    log: LogHandle,
    mut lent: watch::Receiver<Option<(Loan, Duration)>>,
) -> Result<(), Infallible> {
    let mut loan = None;
    loop {
        let over = async {
            match loan {
                Some((loan, span)) => {
                    tokio::time::sleep(span).await;
                    loan
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = lent.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                loan = *lent.borrow_and_update();
            }
            ended = over => {
                match log.restore(ended) {
                    Ok(Some(filter)) => info!(filter, "the log filter is what it was"),
                    Ok(None) => {}
                    Err(error) => error!(%error, "the log filter stays as it is"),
                }
                loan = None;
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct For {
    r#for: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Option<String>,
}

async fn show(Shared(logs): Shared<Logs>) -> Response {
    match logs.log.filter() {
        Ok(filter) => format!("{filter}\n").into_response(),
        Err(error) => failed(&error),
    }
}

async fn change(Shared(logs): Shared<Logs>, Query(query): Query<For>, filter: String) -> Response {
    let filter = filter.trim();
    let span = match query.r#for.as_deref().map(|text| span("for", text)).transpose() {
        Ok(span) => span,
        Err(why) => return (StatusCode::BAD_REQUEST, why).into_response(),
    };
    let changed = match span {
        None => logs.log.set_filter(filter),
        Some(span) => logs.log.lend_filter(filter).map(|loan| {
            logs.loans.send_replace(Some((loan, span)));
        }),
    };
    let during = span.map(|span| format!(" for {}", format_duration(span))).unwrap_or_default();
    match changed {
        Ok(()) => {
            info!(filter, during, "the log filter was changed");
            format!("{filter}{during}\n").into_response()
        }
        Err(error) => failed(&error),
    }
}

async fn lines(Shared(logs): Shared<Logs>, Query(query): Query<Since>) -> Response {
    match query.since.as_deref().map_or(Ok(RECENT), |text| span("since", text)) {
        Ok(span) => ([(header::CONTENT_TYPE, "application/x-ndjson")], logs.log.recent(span)).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}

/// A span of time of a query.
fn span(name: &str, text: &str) -> Result<Duration, String> {
    let refuse = |why: String| format!("{name}={text}: {why}\n");
    match parse_duration(text) {
        Ok(span) if span.is_zero() || span > LONGEST => {
            Err(refuse(format!("give a time up to {}, like 10m", format_duration(LONGEST))))
        }
        Ok(span) => Ok(span),
        Err(error) => Err(refuse(error.to_string())),
    }
}

fn failed(error: &LogError) -> Response {
    let status = match error {
        LogError::Filter { .. } => StatusCode::BAD_REQUEST,
        LogError::Format { .. } | LogError::AlreadySet { .. } | LogError::Reload { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    (status, format!("{error}\n")).into_response()
}
