//! A watch as a source of wake-ups: what is shown is read anew, not put together from changes.

use quorate_client::{Client, Watch, WatchEvent};
use quorate_wire::api::WatchRequest;

/// Tells when to look again.
pub(super) struct Feed {
    /// None once it is refused: who needs it then looks from time to time.
    watch: Option<Watch>,
    revision: u64,
    leader: String,
}

/// What a feed tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Something changed: views from before [`Feed::revision`] do not count.
    Change,
    /// Another manager leads: the words for it.
    Leader(String),
    /// Nothing more will be heard.
    Lost,
}

impl Feed {
    /// Of what `request` asks for. Nothing is asked before [`Feed::next`].
    pub(super) fn new(client: &Client, request: WatchRequest) -> Self {
        Self { watch: Some(client.watch(request)), revision: 0, leader: String::new() }
    }

    /// The newest revision that is known to have changed something.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether it will tell of changes.
    pub(super) fn lives(&self) -> bool {
        self.watch.is_some()
    }

    /// The next thing to know; never comes once it is lost. Safe to cancel.
    pub(super) async fn next(&mut self) -> Heard {
        let Some(watch) = &mut self.watch else { return std::future::pending().await };
        loop {
            match watch.next().await {
                Ok(WatchEvent::Snapshot { revision, .. } | WatchEvent::Changes { revision, .. }) => {
                    self.revision = self.revision.max(revision);
                    return Heard::Change;
                }
                Ok(WatchEvent::Restarted { .. }) => return Heard::Change,
                Ok(WatchEvent::Bookmark { meta, .. } | WatchEvent::Moved { meta, .. }) => {
                    if let Some(words) = note(&mut self.leader, &meta.leader) {
                        return Heard::Leader(words);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no watch");
                    self.watch = None;
                    return Heard::Lost;
                }
            }
        }
    }

    /// Notes who leads; the words for it where that is another one than before.
    pub(super) fn leads(&mut self, leader: &str) -> Option<String> {
        note(&mut self.leader, leader)
    }
}

fn note(known: &mut String, leader: &str) -> Option<String> {
    if leader.is_empty() || known == leader {
        return None;
    }
    let before = std::mem::replace(known, leader.to_owned());
    (!before.is_empty()).then(|| format!("leader {before} → {leader}, continuing"))
}
