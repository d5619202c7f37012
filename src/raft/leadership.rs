//! Publishes who leads.

use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::metrics::RaftServerMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use tokio::sync::{Notify, watch};

use crate::core::Core;
use crate::error::FatalError;
use crate::status::{Leadership, Metrics};
use crate::types::TypeConfig;

/// Publishes who leads, and the death of the core.
pub(crate) async fn watch(core: &Core) -> Result<(), FatalError> {
    let figures = Figures { changes: core.raft.server_metrics(), answers: core.raft.metrics() };
    follow(figures, |metrics| core.judge_leadership(metrics), &core.heard_again, &core.leadership).await;
    core.leadership.send_modify(|l| *l = Leadership { leader: None, me: false, ..l.clone() });
    match core.metrics().running_state {
        Ok(()) | Err(Fatal::Stopped) => Ok(()),
        Err(e) => {
            let error = FatalError::Core(e.to_string());
            core.fail(error.clone());
            Err(error)
        }
    }
}

/// What openraft publishes, at two times.
struct Figures {
    /// These change only with what matters here, and end with the core.
    changes: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    /// Everything, a little later, and with each answer of a member.
    answers: WatchReceiverOf<TypeConfig, Metrics>,
}

/// Publishes what `judge` makes of the figures, whenever that may be something else; ends with the figures.
async fn follow(
    figures: Figures,
    judge: impl Fn(&Metrics) -> (Leadership, Option<Duration>),
    heard_again: &Notify,
    published: &watch::Sender<Leadership>,
) {
    let Figures { mut changes, mut answers } = figures;
    loop {
        let change = changes.borrow_and_update().clone();
        let metrics = answers.borrow_and_update().clone();
        let (leadership, left) = judge(&metrics);
        // openraft publishes the full figures after the change itself: these may be from before it, and nothing else
        // would wake this loop for the rest of the term.
        let behind = change.vote != metrics.vote
            || change.state != metrics.state
            || change.current_leader != metrics.current_leader
            || change.membership_config != metrics.membership_config;
        // A leader that lost its quorum may find it again in the same term.
        let lost = metrics.state == ServerState::Leader && !leadership.me;
        published.send_if_modified(|l| {
            let changed = *l != leadership;
            *l = leadership;
            changed
        });
        let silent = async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            answered = answers.changed(), if lost || behind => if answered.is_err() { return },
            () = heard_again.notified() => {}
            () = silent => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use openraft::async_runtime::watch::WatchSender;
    use openraft::type_config::TypeConfigExt;

    use super::*;
    use crate::status;

    /// The part that openraft publishes first.
    fn change(m: &Metrics) -> RaftServerMetrics<TypeConfig> {
        RaftServerMetrics {
            id: m.id,
            vote: m.vote,
            state: m.state,
            current_leader: m.current_leader,
            membership_config: m.membership_config.clone(),
            committed_membership_config: m.committed_membership_config.clone(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_learns_that_it_leads_when_the_full_figures_come_after_the_change() {
        let before = Metrics::new_initial(1);
        let mut elected = Metrics { state: ServerState::Leader, current_leader: Some(1), ..before.clone() };
        elected.vote.committed = true;
        let (first, changes) = TypeConfig::watch_channel(change(&before));
        let (then, answers) = TypeConfig::watch_channel(before);
        let (published, mut seen) = watch::channel(Leadership::default());
        let looks = watch::Sender::new(0);
        let judge = |metrics: &Metrics| {
            looks.send_modify(|n| *n += 1);
            (status::leadership(metrics), None)
        };
        let heard_again = Notify::new();
        let following = follow(Figures { changes, answers }, judge, &heard_again, &published);
        let election = async {
            let mut looked = looks.subscribe();
            looked.wait_for(|n| *n == 1).await.unwrap();
            first.send(change(&elected)).unwrap();
            // It looks at once, and finds the figures of before.
            looked.wait_for(|n| *n == 2).await.unwrap();
            then.send(elected.clone()).unwrap();
            // Time is paused: without anything to wake the loop this bound is over at once.
            tokio::time::timeout(Duration::from_secs(60), seen.wait_for(|l| l.me)).await.map(drop)
        };
        tokio::select! {
            biased;
            () = following => panic!("it ended though the core lives"),
            learned = election => learned.expect("the leader never learned that it leads"),
        }
    }
}
