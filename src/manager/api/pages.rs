//! Pages of one list: all of them show the state of the first.
//!
//! The manager that gave the first page keeps its snapshot for a short while, which costs little since snapshots share
//! what did not change. Another manager passes the call on to it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use quorate_base::{sync::lock, time::Mono};
use quorate_model::{Invalid, Revision};
use quorate_state::State;
use quorate_wire::{
    api::Page,
    common::ReadOptions,
    status::{ApiError, Reason},
};

use crate::{api::invalid, core::Core};

/// Most snapshots that are kept.
const MOST_KEPT: usize = 64;
/// How long a snapshot is kept after its last page.
const KEEP: Duration = Duration::from_secs(60);

/// The snapshots of lists that are not read to their end; a clone shares them.
#[derive(Clone)]
pub(crate) struct Pages {
    core: Core,
    kept: Arc<Mutex<Kept>>,
}

/// Snapshots, the least recently used first; with whether a second page was asked for. Lists that nobody goes on with
/// are the first to go: who reads first pages alone must not end everybody's lists.
#[derive(Default)]
struct Kept(VecDeque<(Mono, State, bool)>);

impl Kept {
    fn keep(&mut self, now: Mono, view: &State, continued: bool) {
        let before = self.take(now, view.applied().index);
        let continued = continued || before.is_some_and(|(_, continued)| continued);
        if self.0.len() >= MOST_KEPT {
            let idle = self.0.iter().position(|(_, _, continued)| !continued);
            self.0.remove(idle.unwrap_or(0));
        }
        self.0.push_back((now, view.clone(), continued));
    }

    /// Takes the snapshot of a revision out; what is too old goes.
    fn take(&mut self, now: Mono, revision: Revision) -> Option<(State, bool)> {
        self.0.retain(|(used, _, _)| now.since(*used) < KEEP);
        let at = self.0.iter().position(|(_, view, _)| view.applied().index == revision)?;
        self.0.remove(at).map(|(_, view, continued)| (view, continued))
    }
}

impl Pages {
    /// Without any list.
    pub(crate) fn new(core: Core) -> Self {
        Self { core, kept: Arc::default() }
    }

    /// What the page is cut from: for the first one a view as fresh as the caller wishes, for the others the same.
    ///
    /// # Errors
    /// Those of [`Core::view`], and [`Reason::PageTokenExpired`].
    pub(crate) async fn view(&self, page: &Page, read: Option<&ReadOptions>) -> Result<State, ApiError> {
        let Some(after) = &page.after else { return self.core.view(read).await };
        let now = self.core.clock.monotonic();
        let mut kept = lock(&self.kept);
        let (view, _) = kept.take(now, after.revision).ok_or_else(|| expired(&after.manager))?;
        // The same page may be asked for again.
        kept.keep(now, &view, true);
        Ok(view)
    }

    /// One page of `items` of the view, with the token for the next; empty at the end.
    pub(crate) fn cut<T>(
        &self,
        view: &State,
        items: impl Iterator<Item = T>,
        page: &Page,
        key: impl Fn(&T) -> String,
    ) -> (Vec<T>, String) {
        let mut taken: Vec<T> = items.take(page.size + 1).collect();
        if taken.len() <= page.size {
            return (taken, String::new());
        }
        taken.truncate(page.size);
        lock(&self.kept).keep(self.core.clock.monotonic(), view, false);
        let token = |last| page.token(self.core.name.as_str(), view.applied().index, &key(last));
        let token = taken.last().map(token).unwrap_or_default();
        (taken, token)
    }
}

/// The error of a list that is not kept any more.
pub(crate) fn expired(manager: &str) -> ApiError {
    let text = format!("manager {manager} does not keep the list of this page token any more");
    ApiError::new(Reason::PageTokenExpired, text).with("manager", manager)
}

/// The values of an enumeration that a list is cut down to; none = all.
pub(crate) fn choices<E: TryFrom<i32> + Copy + PartialEq>(
    path: &str,
    sent: &[i32],
    unset: E,
) -> Result<Vec<E>, ApiError> {
    let mut wanted: Vec<E> = Vec::new();
    for (i, number) in sent.iter().enumerate() {
        let known = E::try_from(*number).ok().filter(|one| *one != unset);
        let why = || invalid(Invalid::new(format!("{path}[{i}]"), format!("{number} is unknown")));
        let one = known.ok_or_else(why)?;
        if !wanted.contains(&one) {
            wanted.push(one);
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use quorate_base::time::Clock;
    use quorate_model::Term;
    use quorate_state::Position;

    use super::*;

    fn at(revision: u64) -> State {
        let mut state = State::new();
        state.advance(Position { term: Term(1), index: Revision(revision) });
        state
    }

    #[test]
    fn snapshots_are_bounded_by_number_and_age() {
        let mut kept = Kept::default();
        let start = Clock::system().monotonic();
        for revision in 0..70 {
            kept.keep(start, &at(revision), false);
            kept.keep(start, &at(revision), false);
        }
        assert_eq!(kept.0.len(), MOST_KEPT, "one revision is kept once");
        assert!(kept.take(start, Revision(5)).is_none(), "the oldest went");
        let late = start.saturating_add(KEEP / 2);
        let (again, _) = kept.take(late, Revision(6)).unwrap();
        kept.keep(late, &again, true);
        let end = start.saturating_add(KEEP);
        assert!(kept.take(end, Revision(69)).is_none(), "its time is over");
        assert_eq!(kept.take(end, Revision(6)).unwrap().0.applied().index, Revision(6), "it was used since");
        assert!(kept.0.is_empty());
    }

    #[test]
    fn lists_that_are_read_on_outlive_first_pages() {
        let mut kept = Kept::default();
        let now = Clock::system().monotonic();
        kept.keep(now, &at(1), true);
        for revision in 2..200 {
            kept.keep(now, &at(revision), false);
        }
        assert!(kept.take(now, Revision(1)).is_some());
        assert!(kept.take(now, Revision(199)).is_some());
    }
}
