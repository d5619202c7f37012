//! Whether this manager can serve: one truth for gRPC health and for HTTP.

use std::time::Duration;

use quorate_base::tasks::{TaskGroup, TaskKind};
use quorate_raft::{Leadership, Node};
use quorate_wire::json::services;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::core::Core;

/// Health names besides the empty one.
pub const READ: &str = "quorate.read";
/// Serving on the leader alone.
pub const LEADER: &str = "quorate.leader";

/// What a manager is able to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// It belongs to a cluster and has applied its first entries.
    pub joined: bool,
    /// It knows a leader.
    pub has_leader: bool,
    /// It is the leader.
    pub is_leader: bool,
    /// It is about to stop.
    pub stopping: bool,
}

impl Readiness {
    /// Reads it off consensus.
    #[must_use]
    pub fn of(node: &Node, now: &Leadership, stopping: bool) -> Self {
        Self {
            joined: node.view().cluster().is_some(),
            has_leader: now.me || now.leader.is_some(),
            is_leader: now.me,
            stopping,
        }
    }

    /// Whether it can serve every call.
    #[must_use]
    pub fn ready(self) -> bool {
        self.joined && self.has_leader && !self.stopping
    }

    /// Why it cannot, in a few words.
    #[must_use]
    pub fn why_not(self) -> &'static str {
        match self {
            Self { stopping: true, .. } => "stopping",
            Self { joined: false, .. } => "not joined to a cluster yet",
            Self { has_leader: false, .. } => "no leader is known",
            Self { .. } => "ready",
        }
    }
}

/// Sets every name, also those of the services, which follow the empty one, to "not serving": before the port is bound.
pub async fn not_serving(reporter: &HealthReporter) {
    for name in ["", READ, LEADER].into_iter().chain(services()) {
        reporter.set_service_status(name, ServingStatus::NotServing).await;
    }
}

/// Keeps the reporter true.
pub fn follow(core: &Core, reporter: HealthReporter, group: &TaskGroup) {
    let node = core.node.clone();
    let stop = group.clone();
    group.spawn(TaskKind::critical("health").drains(), async move {
        let mut leadership = node.leadership();
        let mut applied = node.applied();
        loop {
            let stopping = stop.is_cancelled();
            let now = leadership.borrow_and_update().clone();
            applied.mark_unchanged();
            let readiness = Readiness::of(&node, &now, stopping);
            report(&reporter, readiness).await;
            if stopping {
                return Ok::<(), std::convert::Infallible>(());
            }
            // Only until it has joined does a new revision matter.
            let joining = async {
                if readiness.joined {
                    std::future::pending::<()>().await;
                }
                let _stopped = applied.changed().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                changed = leadership.changed() => if changed.is_err() { return Ok(()) },
                () = joining => {}
            }
        }
    });
}

async fn report(reporter: &HealthReporter, readiness: Readiness) {
    let status = |ok: bool| if ok { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in [""].into_iter().chain(services()) {
        reporter.set_service_status(name, status(readiness.ready())).await;
    }
    reporter.set_service_status(READ, status(readiness.joined && !readiness.stopping)).await;
    reporter.set_service_status(LEADER, status(readiness.is_leader && readiness.ready())).await;
}
