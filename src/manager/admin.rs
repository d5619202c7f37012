//! Plain HTTP for probes and metrics: `/livez /readyz /leader /follower /metrics`.

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use quorate_base::tasks::TaskGroup;
use quorate_model::{JobKind, NodeStatus, TaskState};
use quorate_telemetry::{metrics, recorder};
use serde::Serialize;

use crate::{core::Core, health::Readiness};

/// What the handlers share.
#[derive(Clone)]
struct Admin {
    core: Core,
    metrics: recorder::Handle,
    group: TaskGroup,
}

/// The routes.
pub fn routes(core: Core, metrics: recorder::Handle, group: TaskGroup) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/leader", get(leader))
        .route("/follower", get(follower))
        .route("/metrics", get(export))
        .with_state(Admin { core, metrics, group })
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
    gauge(&admin.core);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], admin.metrics.render()).into_response()
}

/// Sets the gauges that are read off the state; only here, so nobody pays for them between scrapes.
fn gauge(core: &Core) {
    let now = core.node.leadership().borrow().clone();
    let status = core.node.status();
    metrics::raft_has_leader(now.me || now.leader.is_some());
    metrics::raft_is_leader(now.me);
    metrics::raft_term(now.term.0);
    if let Some(ago) = core.last_contact() {
        metrics::raft_last_contact(ago);
    }
    let log = core.node.log_stats();
    metrics::store_size("log", log.disk_bytes);
    let view = core.node.view();
    let last = status.last_log.map_or(0, |r| r.0);
    for member in status.members.iter().filter(|_| now.me) {
        let matched = member.matched.map_or(0, |r| r.0);
        metrics::raft_replication_lag(&member.name, last.saturating_sub(matched));
    }
    for state in TaskState::ALL {
        metrics::tasks(state.as_str(), view.tasks().filter(|t| t.status.counted_state() == state).count());
    }
    for status in [NodeStatus::Ready, NodeStatus::Down] {
        metrics::nodes(status.as_str(), view.nodes().filter(|n| n.status == status).count());
    }
    for kind in ["service", "batch"] {
        for status in ["active", "complete", "failed", "stopped", "purging"] {
            let count = view
                .jobs()
                .filter(|j| {
                    j.status.as_str() == status && j.spec().map(|s| JobKind::as_str(s.kind)) == Some(kind)
                })
                .count();
            metrics::jobs(kind, status, count);
        }
    }
}
