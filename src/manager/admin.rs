//! Plain HTTP for probes, metrics and logs: `/livez /readyz /leader /follower /metrics /log-level /logs`.

mod gauges;
mod logs;

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use quorate_base::tasks::TaskGroup;
use quorate_telemetry::{logging::LogHandle, metrics, recorder};
use serde::Serialize;

use crate::{core::Core, health::Readiness};

/// What the handlers share.
#[derive(Clone)]
struct Admin {
    core: Core,
    metrics: recorder::Handle,
    group: TaskGroup,
}

/// The routes; those of logs where this process logs by `log`.
pub fn routes(core: Core, metrics: recorder::Handle, log: Option<LogHandle>, group: TaskGroup) -> Router {
    let logs = log.map_or_else(Router::new, |log| logs::routes(log, &group));
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/leader", get(leader))
        .route("/follower", get(follower))
        .route("/metrics", get(export))
        .with_state(Admin { core, metrics, group })
        .merge(logs)
}

/// The detail that a probe may ask for.
#[derive(Serialize)]
struct Detail {
    ok: bool,
    reason: String,
    manager: String,
    leader: String,
    term: u64,
    applied_revision: u64,
}

impl Admin {
    fn readiness(&self) -> Readiness {
        let now = self.core.node.leadership().borrow().clone();
        Readiness::of(&self.core.node, &now, self.group.is_cancelled())
    }

    /// 200 or 503, as one line, or as JSON when the caller accepts that.
    fn answer(&self, headers: &HeaderMap, ok: bool, reason: &str) -> Response {
        let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let wants_json = headers
            .get(header::ACCEPT)
            .and_then(|v| v.to_str().ok())
            .is_some_and(|accept| accept.contains("application/json"));
        if !wants_json {
            return (status, format!("{reason}\n")).into_response();
        }
        let meta = self.core.meta(&self.core.node.view());
        let detail = Detail {
            ok,
            reason: reason.to_owned(),
            manager: meta.manager,
            leader: meta.leader,
            term: meta.term,
            applied_revision: meta.applied_revision,
        };
        (status, Json(detail)).into_response()
    }
}

async fn livez(Shared(admin): Shared<Admin>, headers: HeaderMap) -> Response {
    admin.answer(&headers, true, "alive")
}

async fn readyz(Shared(admin): Shared<Admin>, headers: HeaderMap) -> Response {
    let readiness = admin.readiness();
    admin.answer(&headers, readiness.ready(), readiness.why_not())
}

async fn leader(Shared(admin): Shared<Admin>, headers: HeaderMap) -> Response {
    let leads = admin.readiness().is_leader;
    admin.answer(&headers, leads, if leads { "leader" } else { "not the leader" })
}

async fn follower(Shared(admin): Shared<Admin>, headers: HeaderMap) -> Response {
    let readiness = admin.readiness();
    let follows = readiness.ready() && !readiness.is_leader;
    admin.answer(&headers, follows, if follows { "follower" } else { "not a follower" })
}

async fn export(Shared(admin): Shared<Admin>) -> Response {
    let leads = gauges::set(&admin.core);
    let text =
        if leads { admin.metrics.render() } else { admin.metrics.render_without(metrics::OF_THE_LEADER) };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
