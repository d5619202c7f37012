//! How long until a write is acknowledged again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quorate_base::time::Mono;
use quorate_base::{Clock, RequestIds, TaskGroup, TaskKind};
use tokio::sync::{Semaphore, mpsc};

use crate::api::{Ack, Api};
use crate::history::{Begun, End, History, Op};
use crate::workload::{NAMESPACE, On, idle_service};

/// Between two writes to one manager.
const EVERY: Duration = Duration::from_millis(4);
/// Deadline of one write.
const TRY: Duration = Duration::from_secs(2);
/// Most writes under way at one manager: a hanging one must not hide that the next would be taken.
const UNDER_WAY: usize = 32;

/// The first write that was acknowledged.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Time from the fault to the acknowledgement.
    pub after: Duration,
    /// Who acknowledged it, and where in the log it is.
    pub ack: Ack,
}

/// What a prober needs.
#[derive(Debug)]
pub struct Prober<'a> {
    /// The managers that live.
    pub survivors: &'a [Api],
    /// Every write is recorded: each is checked in the end like any other.
    pub history: &'a Arc<History>,
    /// Where request ids come from.
    pub ids: &'a Arc<RequestIds>,
    /// What the calls run under.
    pub group: &'a TaskGroup,
}

impl Prober<'_> {
    /// Writes to each survivor every few milliseconds, all begun after `fault`, until one write is acknowledged.
    ///
    /// # Errors
    /// When none is within `limit`.
    pub async fn next_acknowledged(&self, label: &str, fault: Mono, limit: Duration) -> Result<Recovery> {
        let group = self.group.child("prober");
        let (told, mut first) = mpsc::channel(1);
        for api in self.survivors {
            let stream =
                self.stream(api.clone(), format!("probe-{label}-{}", api.name), told.clone(), &group);
            group.spawn(TaskKind::best_effort("stream"), stream);
        }
        drop(told);
        let heard = tokio::time::timeout(limit, first.recv()).await;
        first.close();
        // The streams end; what is under way comes to its end, so that each outcome is known.
        group.shutdown(TRY + Duration::from_secs(1)).await;
        let missing = || format!("no write was acknowledged within {} s after the fault", limit.as_secs());
        let (ack, at): (Ack, Mono) = heard.ok().flatten().with_context(missing)?;
        Ok(Recovery { after: at.since(fault), ack })
    }

    fn stream(
        &self,
        api: Api,
        prefix: String,
        told: mpsc::Sender<(Ack, Mono)>,
        group: &TaskGroup,
    ) -> impl Future<Output = Result<(), std::convert::Infallible>> + Send + 'static {
        let (history, ids, group) = (Arc::clone(self.history), Arc::clone(self.ids), group.clone());
        async move {
            let (clock, room) = (Clock::system(), Arc::new(Semaphore::new(UNDER_WAY)));
            for number in 0_u64.. {
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
                let (api, told) = (api.clone(), told.clone());
                let (history, id) = (Arc::clone(&history), ids.generate());
                let name = format!("{prefix}-{number}");
                group.spawn(TaskKind::best_effort("write").drains(), async move {
                    let begun = Begun::now(&history, &prober_name(&api), Op::Create, &name, id.clone());
                    let spec = idle_service(NAMESPACE, &name, On::Fake, 0);
                    let answer = api.create(spec, &id, TRY).await;
                    let at = Clock::system().monotonic();
                    begun.end(&history, End::of(&api, &answer));
                    if let Ok(ack) = answer {
                        // Full or closed: another write was first.
                        drop(told.try_send((ack, at)));
                    }
                    drop(permit);
                    Ok::<(), std::convert::Infallible>(())
                });
                clock.sleep(EVERY).await;
            }
            Ok(())
        }
    }
}

fn prober_name(api: &Api) -> String {
    format!("probe-{}", api.name)
}
