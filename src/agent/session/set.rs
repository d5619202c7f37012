//! The chain of assignment sets of one session: complete first, then changes that must fit.

use std::collections::BTreeMap;

use quorate_model::{TaskId, TaskState};
use quorate_wire::agent::{AssignedTask, Assignment, AssignmentSet, Wanted, member_hash};

use crate::worker::{Changes, Unreadable};

/// What the leader has said in this session, as far as later words build on it.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// Number of the set; `None` before the complete one.
    number: Option<u64>,
    members: BTreeMap<TaskId, Wanted>,
    hash: u64,
}

impl Set {
    /// Hash over the set, as the leader counts it.
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Takes a message over. After an error the set is not to be used any more.
    ///
    /// # Errors
    /// What does not fit, in words: the caller asks for the complete set.
    pub(super) fn take(&mut self, message: AssignmentSet, complete: bool) -> Result<Changes, String> {
        if complete {
            (self.members, self.hash) = (BTreeMap::new(), 0);
        } else if self.number != Some(message.applies_to) {
            let have = self.number.map_or("none".to_owned(), |number| number.to_string());
            return Err(format!(
                "a change of set {} arrived, but the set at hand is {have}",
                message.applies_to
            ));
        }
        let mut changes =
            Changes { fence: message.fence.unwrap_or_default(), complete, ..Changes::default() };
        for assignment in message.assignments {
            self.assign(assignment, &mut changes)?;
        }
        for id in message.removals.into_iter().map(TaskId) {
            if let Some(wanted) = self.members.remove(&id) {
                self.hash = self.hash.wrapping_sub(member_hash(id, wanted));
            }
            changes.removals.push(id);
        }
        if self.hash != message.set_hash {
            return Err(format!(
                "set {} does not have the contents that the leader means",
                message.results_in
            ));
        }
        self.number = Some(message.results_in);
        Ok(changes)
    }

    fn assign(&mut self, assignment: Assignment, changes: &mut Changes) -> Result<(), String> {
        let (id, observed_seq) = (TaskId(assignment.task_id), assignment.observed_seq);
        let number = assignment.desired_state;
        let desired = u16::try_from(number).ok().and_then(TaskState::from_number);
        let desired =
            desired.ok_or_else(|| format!("task {id} is desired in state {number}: upgrade this agent"))?;
        let wanted = Wanted { desired, restarts_asked: assignment.restarts_asked };
        if let Some(old) = self.members.insert(id, wanted) {
            self.hash = self.hash.wrapping_sub(member_hash(id, old));
        }
        self.hash = self.hash.wrapping_add(member_hash(id, wanted));
        match AssignedTask::try_from(assignment) {
            Ok(assigned) => changes.assigned.push(assigned),
            Err(invalid) => {
                let reason = format!("this agent cannot read the task: {invalid}");
                changes.unreadable.push(Unreadable { task: id, observed_seq, reason });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quorate_wire::agent::set_hash;

    fn assignment(id: u64, desired: TaskState) -> Assignment {
        Assignment {
            task_id: id,
            namespace: "default".to_owned(),
            job: "web".to_owned(),
            desired_state: desired.number().into(),
            ..Assignment::default()
        }
    }

    fn wanted(desired: TaskState) -> Wanted {
        Wanted { desired, restarts_asked: 0 }
    }

    fn message(applies_to: u64, tasks: &[u64], removals: &[u64], after: &[u64]) -> AssignmentSet {
        AssignmentSet {
            applies_to,
            results_in: applies_to + 1,
            assignments: tasks.iter().map(|id| assignment(*id, TaskState::Running)).collect(),
            removals: removals.to_vec(),
            set_hash: set_hash(after.iter().map(|id| (TaskId(*id), wanted(TaskState::Running)))),
            ..AssignmentSet::default()
        }
    }

    #[test]
    fn changes_chain_onto_a_complete_set() {
        let mut set = Set::default();
        let complete = set.take(message(0, &[1, 2], &[], &[1, 2]), true).unwrap();
        assert!(complete.complete && complete.assigned.len() == 2);
        let change = set.take(message(1, &[3], &[1], &[2, 3]), false).unwrap();
        assert_eq!((change.complete, change.removals), (false, vec![TaskId(1)]));
        assert_eq!(set.number, Some(2));
    }

    #[test]
    fn what_does_not_chain_is_a_gap() {
        let mut set = Set::default();
        let before = set.take(message(0, &[1], &[], &[1]), false).unwrap_err();
        assert_eq!(before, "a change of set 0 arrived, but the set at hand is none");
        set.take(message(0, &[1], &[], &[1]), true).unwrap();
        let skipped = set.take(message(2, &[2], &[], &[1, 2]), false).unwrap_err();
        assert_eq!(skipped, "a change of set 2 arrived, but the set at hand is 1");
        let other = set.take(message(1, &[2], &[], &[1, 2, 3]), false).unwrap_err();
        assert!(other.contains("does not have the contents"), "{other}");
    }

    #[test]
    fn one_unreadable_task_does_not_take_the_others_along() {
        let mut set = Set::default();
        let mut both = message(0, &[1, 2], &[], &[1, 2]);
        both.assignments[0].job = "No Name".to_owned();
        let changes = set.take(both, true).unwrap();
        assert_eq!((changes.assigned.len(), changes.unreadable.len()), (1, 1));
        assert!(changes.unreadable[0].reason.contains("No Name"), "{:?}", changes.unreadable);
        let mut unknown = message(1, &[3], &[], &[1, 2, 3]);
        unknown.assignments[0].desired_state = 9_999;
        assert!(set.take(unknown, false).unwrap_err().contains("upgrade this agent"));
    }

    proptest! {
        #[test]
        fn the_running_hash_is_that_of_the_whole_set(
            moves in prop::collection::vec((0_u64..8, 0_usize..4), 1..40),
        ) {
            let states = [TaskState::Ready, TaskState::Running, TaskState::Shutdown];
            let (mut set, mut model) = (Set::default(), BTreeMap::new());
            set.take(AssignmentSet { results_in: 1, ..AssignmentSet::default() }, true).unwrap();
            for (number, (id, what)) in (1_u64..).zip(moves) {
                let mut change = AssignmentSet { applies_to: number, results_in: number + 1, ..AssignmentSet::default() };
                match states.get(what) {
                    Some(desired) => {
                        model.insert(TaskId(id), wanted(*desired));
                        change.assignments.push(assignment(id, *desired));
                    }
                    None => {
                        model.remove(&TaskId(id));
                        change.removals.push(id);
                    }
                }
                change.set_hash = set_hash(model.clone());
                prop_assert!(set.take(change, false).is_ok());
            }
        }
    }
}
