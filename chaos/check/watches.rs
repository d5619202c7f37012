//! What several watchers saw of the same objects: the same changes, in the order of their revisions, none missing and
//! none twice, so that each can rebuild what a list says in the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Rule, Violation};

/// Content by object: equal exactly when the objects are.
pub type Objects = BTreeMap<String, String>;

/// How an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is new.
    Created,
    /// It is not what it was.
    Updated,
    /// It is gone.
    Deleted,
}

/// One change, as a watcher saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The revision that made it.
    pub revision: u64,
    /// How the object changed.
    pub kind: Kind,
    /// Which object.
    pub key: String,
    /// What it is since; what it was, when it is gone.
    pub content: String,
}

/// All that one watcher saw, over as many streams as it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The watcher's name.
    pub name: String,
    /// Revision of its snapshot.
    pub since: u64,
    /// Its snapshot.
    pub snapshot: Objects,
    /// Every change after it.
    pub events: Vec<Event>,
}

/// Judges all watchers, each of which saw everything up to the list's revision.
pub fn check(watchers: &[Watched], list: &Objects) -> Vec<Violation> {
    let mut found = Vec::new();
    let longest = watchers.iter().min_by_key(|watched| watched.since);
    for watched in watchers {
        let (state, wrong) = rebuild(watched);
        found.extend(wrong);
        found.extend(differences(&watched.name, "the list in the end", &state, list));
        if let Some(longest) = longest {
            found.extend(same(longest, watched));
        }
    }
    found
}

/// The state after all changes, and every change that does not follow from what was there.
fn rebuild(watched: &Watched) -> (Objects, Vec<Violation>) {
    let (mut state, mut found) = (watched.snapshot.clone(), Vec::new());
    let (mut last, mut changed) = (watched.since, BTreeSet::new());
    for event in &watched.events {
        let Event { revision, kind, key, content } = event;
        let mut report = |text: &str| {
            found.push(violation(format!("{}: {key} {kind:?} at revision {revision} {text}", watched.name)));
        };
        if *revision > last {
            (last, changed) = (*revision, BTreeSet::new());
        } else if *revision < last || *revision == watched.since {
            report(&format!("came after revision {last}"));
        }
        // One revision may change an object several times, but not twice to the same.
        if !changed.insert(event) {
            report("came twice");
        }
        let was = if *kind == Kind::Deleted {
            state.remove(key)
        } else {
            state.insert(key.clone(), content.clone())
        };
        match (kind, was) {
            (Kind::Created, Some(_)) => report("was there already"),
            (Kind::Updated | Kind::Deleted, None) => report("was not there"),
            _ => {}
        }
    }
    (state, found)
}

/// One watcher against the one that began first: the same changes since its own begin, on the same state.
fn same(longest: &Watched, watched: &Watched) -> Vec<Violation> {
    let expected = longest.events.iter().filter(|event| event.revision > watched.since);
    let before = longest.events.iter().filter(|event| event.revision <= watched.since).cloned().collect();
    let (state, _) = rebuild(&Watched { events: before, ..longest.clone() });
    let then = format!("what {} had then", longest.name);
    let mut found: Vec<_> =
        differences(&watched.name, &then, &watched.snapshot, &state).into_iter().collect();
    let mut seen = watched.events.iter();
    // The first difference says all: what follows is shifted.
    for expected in expected {
        let got = seen.next();
        if got != Some(expected) {
            found.push(violation(format!(
                "{} saw {} where {} saw {}",
                watched.name,
                told(got),
                longest.name,
                told(Some(expected))
            )));
            return found;
        }
    }
    if let Some(more) = seen.next() {
        found.push(violation(format!(
            "{} saw {}, and {} did not",
            watched.name,
            told(Some(more)),
            longest.name
        )));
    }
    found
}

fn told(event: Option<&Event>) -> String {
    event.map_or_else(
        || "nothing more".to_owned(),
        |e| format!("{} {:?} at revision {} as {}", e.key, e.kind, e.revision, e.content),
    )
}

/// At most one violation: the first object that differs, and how many do.
fn differences(name: &str, other: &str, left: &Objects, right: &Objects) -> Option<Violation> {
    let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let mut wrong = keys.into_iter().filter(|key| left.get(*key) != right.get(*key));
    let first = wrong.next()?;
    let at =
        |objects: &Objects| objects.get(first).map_or_else(|| "is missing".to_owned(), |c| format!("is {c}"));
    Some(violation(format!(
        "{name}: {first} {} and {} in {other}; {} more differ",
        at(left),
        at(right),
        wrong.count()
    )))
}

fn violation(detail: String) -> Violation {
    Violation { rule: Rule::WatchesAreWhole, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, kind: Kind, key: &str, content: &str) -> Event {
        Event { revision, kind, key: key.to_owned(), content: content.to_owned() }
    }

    fn objects(pairs: &[(&str, &str)]) -> Objects {
        pairs.iter().map(|(key, content)| ((*key).to_owned(), (*content).to_owned())).collect()
    }

    /// A watcher from the begin, and one that came at revision 3.
    fn right() -> (Vec<Watched>, Objects) {
        let events = vec![
            event(1, Kind::Created, "a", "1"),
            event(2, Kind::Created, "b", "1"),
            event(2, Kind::Created, "c", "1"),
            event(3, Kind::Updated, "a", "2"),
            event(4, Kind::Deleted, "b", "1"),
            event(6, Kind::Updated, "a", "3"),
            event(7, Kind::Created, "b", "2"),
        ];
        let late = events.iter().filter(|e| e.revision > 3).cloned().collect();
        let first = Watched { name: "w1".to_owned(), events, ..Watched::default() };
        let snapshot = objects(&[("a", "2"), ("b", "1"), ("c", "1")]);
        let second = Watched { name: "w2".to_owned(), since: 3, snapshot, events: late };
        (vec![first, second], objects(&[("a", "3"), ("b", "2"), ("c", "1")]))
    }

    fn wrong(plant: impl FnOnce(&mut [Watched], &mut Objects)) -> Vec<String> {
        let (mut watchers, mut list) = right();
        plant(&mut watchers, &mut list);
        check(&watchers, &list).into_iter().map(|violation| violation.detail).collect()
    }

    #[test]
    fn watchers_that_agree_with_each_other_and_the_list_are_right() {
        assert_eq!(wrong(|_, _| {}), Vec::<String>::new());
    }

    #[test]
    fn each_change_that_is_left_out_of_either_is_found() {
        for (watcher, events) in [(0, 7), (1, 3)] {
            for gap in 0..events {
                let found = wrong(|watchers, _| drop(watchers[watcher].events.remove(gap)));
                assert!(!found.is_empty(), "change {gap} of watcher {watcher} is missing");
            }
        }
    }

    #[test]
    fn each_change_that_comes_twice_is_found() {
        for (watcher, events) in [(0, 7), (1, 3)] {
            for twice in 0..events {
                let found = wrong(|watchers, _| {
                    let again = watchers[watcher].events[twice].clone();
                    watchers[watcher].events.insert(twice + 1, again);
                });
                assert!(found.iter().any(|text| text.ends_with("came twice")), "{found:?}");
            }
        }
    }

    #[test]
    fn each_two_revisions_in_the_wrong_order_are_found() {
        for at in (0..6).filter(|at| *at != 1) {
            let found = wrong(|watchers, _| watchers[0].events.swap(at, at + 1));
            assert!(found.iter().any(|text| text.contains("came after revision")), "{at}: {found:?}");
        }
        // Within one revision both have to tell the same order.
        let shown = |watchers: &mut [Watched], _: &mut Objects| {
            (watchers[1].since, watchers[1].snapshot) = (0, Objects::new());
            watchers[1].events = watchers[0].events.clone();
            watchers[1].events.swap(1, 2);
        };
        assert_eq!(wrong(shown).len(), 1);
    }

    #[test]
    fn a_change_of_the_snapshots_own_revision_is_found() {
        let found = wrong(|watchers, _| {
            watchers[1].events.insert(0, event(3, Kind::Updated, "a", "2"));
        });
        assert!(found.iter().any(|text| text.ends_with("came after revision 3")), "{found:?}");
    }

    #[test]
    fn a_gap_that_all_watchers_share_is_found_by_the_list() {
        let found = wrong(|watchers, _| {
            for watched in watchers {
                watched.events.retain(|event| event.revision != 6);
            }
        });
        assert_eq!(found[0], "w1: a is 2 and is 3 in the list in the end; 0 more differ");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_wrong_snapshot_is_found() {
        let found = wrong(|watchers, _| drop(watchers[1].snapshot.remove("c")));
        assert!(
            found.iter().any(|text| text.contains("c is missing and is 1 in what w1 had then")),
            "{found:?}"
        );
    }
}
