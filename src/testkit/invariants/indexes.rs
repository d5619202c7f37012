//! Every index equals a recount of its table.

use std::collections::BTreeMap;

use quorate_model::{Resources, TaskId};
use quorate_state::State;

use super::{Invariant, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    step: Some(|step| check(step.after, step.after)),
    ..Invariant::new("indexes are true", "C4: what readers find by an index is what the tables hold")
};

/// Compares the indexes of one state with the tables of another, which are the same outside of tests.
fn check(indexes: &State, tables: &State) -> Verdict {
    let unplaced: Vec<TaskId> = tables.tasks().filter(|t| t.is_unplaced()).map(|t| t.id).collect();
    let indexed: Vec<TaskId> = indexes.unplaced().map(|t| t.id).collect();
    ensure(indexed == unplaced, || format!("unplaced: {indexed:?} for {unplaced:?}"))?;
    let (mut of_job, mut on_node) = (BTreeMap::new(), BTreeMap::<_, Vec<TaskId>>::new());
    let mut accounts: BTreeMap<_, (Resources, u32)> = BTreeMap::new();
    for task in tables.tasks() {
        *of_job.entry(task.job).or_insert(0) += 1;
        let Some(node) = task.node else { continue };
        on_node.entry(node).or_default().push(task.id);
        if let (true, Some(spec)) = (task.holds_resources(), tables.spec_of(task)) {
            let account = accounts.entry(node).or_default();
            *account = (account.0.plus(spec.reserve()), account.1 + 1);
        }
    }
    for job in tables.jobs() {
        let (found, counted) = (indexes.tasks_of(job.id).count(), of_job.get(&job.id).copied().unwrap_or(0));
        ensure(found == counted, || format!("{} has {found} tasks for {counted}", job.key()))?;
        let named = indexes.job_named(&job.namespace, &job.name).map(|j| j.id);
        ensure(named == Some(job.id), || format!("{} is found as {named:?}", job.key()))?;
    }
    for node in tables.nodes() {
        let account = (indexes.usage(node.id), indexes.living(node.id));
        let counted = accounts.get(&node.id).copied().unwrap_or_default();
        ensure(account == counted, || format!("{} accounts for {account:?} for {counted:?}", node.name))?;
        let found: Vec<TaskId> = indexes.tasks_on(node.id).map(|t| t.id).collect();
        let here = on_node.remove(&node.id).unwrap_or_default();
        ensure(found == here, || format!("{} has {found:?} for {here:?}", node.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate_model::{JobId, TaskState};
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_an_index_that_missed_a_change() {
        let mut case = Case::running();
        let old = case.lab.state.clone();
        assert_eq!(check(&old, &old), Ok(()));
        case.lab.report(TaskId(0), TaskState::Failed).unwrap();
        assert!(check(&old, &case.lab.state).unwrap_err().contains("accounts for"));
        let ended = case.lab.state.clone();
        case.create(JobId(0), 0, 1);
        assert!(check(&ended, &case.lab.state).unwrap_err().contains("unplaced"));
        case.lab.done(Command::RemoveTasks { tasks: vec![TaskId(0)] }).unwrap();
        assert!(check(&ended, &case.lab.state).is_err());
    }
}
