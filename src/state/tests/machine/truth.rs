//! What must be true of any state, recounted from its records alone.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::Resources;
use quorate_state::{Builder, Meta, Record, State};

/// The records without what every entry moves: position and time.
pub(crate) fn records(state: &State) -> Vec<Record> {
    state
        .records()
        .map(|record| match record {
            Record::Meta(meta) => {
                Record::Meta(Meta { applied: Default::default(), now: Default::default(), ..meta })
            }
            other => other,
        })
        .collect()
}

/// Builds the state again from its image.
pub(crate) fn rebuilt(state: &State) -> State {
    let mut builder = Builder::default();
    state.records().for_each(|record| builder.push(record).unwrap());
    builder.finish().unwrap()
}

/// Compares every index with a recount of the tables.
pub(crate) fn check_indexes(state: &State) {
    for job in state.jobs() {
        let by_slot: BTreeSet<_> =
            state.tasks().filter(|t| t.job == job.id).map(|t| (t.slot, t.id)).collect();
        let indexed: Vec<_> = state.tasks_of(job.id).map(|t| (t.slot, t.id)).collect();
        assert_eq!(indexed, by_slot.iter().copied().collect::<Vec<_>>(), "tasks of {}", job.key());
        for slot in by_slot.iter().map(|(slot, _)| *slot) {
            let of_slot: Vec<_> = state.tasks_of_slot(job.id, slot).map(|t| (t.slot, t.id)).collect();
            assert_eq!(of_slot, by_slot.iter().filter(|(s, _)| *s == slot).copied().collect::<Vec<_>>());
        }
        assert_eq!(state.job_named(&job.namespace, &job.name), Some(job));
    }
    let names: Vec<_> =
        state.jobs_by_name(None, None).map(|j| (j.namespace.clone(), j.name.clone())).collect();
    assert_eq!(names.len(), state.jobs().count());
    assert!(names.is_sorted());
    for (at, (namespace, name)) in names.iter().enumerate() {
        let rest = state.jobs_by_name(None, Some((namespace.clone(), name.clone())));
        assert_eq!(rest.count(), names.len() - at - 1, "a page goes on behind its last");
        let own = names.iter().filter(|(ns, _)| ns == namespace).count();
        assert_eq!(state.jobs_by_name(Some(namespace), None).count(), own);
    }
    let unplaced: Vec<_> = state.tasks().filter(|t| t.is_unplaced()).map(|t| t.id).collect();
    assert_eq!(state.unplaced().map(|t| t.id).collect::<Vec<_>>(), unplaced);
    assert_eq!(state.unplaced_count(), unplaced.len());
    assert_eq!(state.task_count(), state.tasks().count());
    check_accounts(state);
}

fn check_accounts(state: &State) {
    let mut accounts: BTreeMap<_, (Resources, u32)> = BTreeMap::new();
    for task in state.tasks().filter(|t| t.holds_resources()) {
        let account = accounts.entry(task.node.unwrap()).or_default();
        account.0 = account.0.plus(state.spec_of(task).unwrap().reserve());
        account.1 += 1;
    }
    for node in state.nodes() {
        let (reserved, living) = accounts.get(&node.id).copied().unwrap_or_default();
        assert_eq!(
            (state.usage(node.id), state.living(node.id)),
            (reserved, living),
            "account of {}",
            node.name
        );
        let here: Vec<_> = state.tasks().filter(|t| t.node == Some(node.id)).map(|t| t.id).collect();
        assert_eq!(state.tasks_on(node.id).map(|t| t.id).collect::<Vec<_>>(), here);
        assert_eq!(state.node_named(&node.name), Some(node));
    }
}
