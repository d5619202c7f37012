//! Tasks and what runs them, before and after a fault that concerns no agent.

use std::collections::BTreeMap;

use crate::check::{Rule, Violation};

/// A running task as the managers tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFact {
    /// Its id.
    pub id: String,
    /// Its job and slot, for people.
    pub label: String,
    /// Its node.
    pub node: String,
    /// What runs it: container id, or pid and start time.
    pub instance: String,
    /// Restarts in place.
    pub restarts: u32,
    /// Whether it runs and is meant to.
    pub running: bool,
}

/// What the operating system or the engine says of one instance: unequal when it was started anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceFact {
    /// It runs since then, in the teller's own unit.
    RunsSince(String),
    /// It does not run.
    Gone,
}

/// Tasks that ran before still run, on the same node, as the same instance.
pub fn untouched(before: &[TaskFact], after: &[TaskFact]) -> Vec<Violation> {
    let now: BTreeMap<&str, &TaskFact> = after.iter().map(|task| (task.id.as_str(), task)).collect();
    let mut found = Vec::new();
    for was in before.iter().filter(|task| task.running) {
        let mut report = |text: String| {
            let detail = format!("task {} ({}) {text}", was.id, was.label);
            found.push(Violation { rule: Rule::TasksUntouched, detail });
        };
        let Some(is) = now.get(was.id.as_str()) else {
            report(format!("ran on {} and is gone", was.node));
            continue;
        };
        if is.node != was.node {
            report(format!("moved from {} to {}", was.node, is.node));
        }
        if is.instance != was.instance {
            report(format!("ran as {} and is now {}", was.instance, is.instance));
        }
        if is.restarts != was.restarts {
            report(format!("was restarted {} times", is.restarts.saturating_sub(was.restarts)));
        }
        if !is.running {
            report("does not run any more".to_owned());
        }
    }
    found
}

/// What ran before still runs, without a new start, by the word of the engine or the operating system.
pub fn same_instances(
    before: &BTreeMap<String, InstanceFact>,
    after: &BTreeMap<String, InstanceFact>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (instance, was) in before {
        let is = after.get(instance).unwrap_or(&InstanceFact::Gone);
        if was != is {
            let detail = format!("{instance}: {was:?} before, {is:?} after");
            found.push(Violation { rule: Rule::InstancesUntouched, detail });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str) -> TaskFact {
        TaskFact {
            id: id.to_owned(),
            label: "web[0]".to_owned(),
            node: "n1".to_owned(),
            instance: "abc".to_owned(),
            restarts: 0,
            running: true,
        }
    }

    fn details(before: &[TaskFact], after: &[TaskFact]) -> Vec<String> {
        untouched(before, after).into_iter().map(|violation| violation.detail).collect()
    }

    #[test]
    fn tasks_that_run_on_and_new_ones_are_no_violation() {
        assert_eq!(details(&[task("t1")], &[task("t1"), task("t2")]), Vec::<String>::new());
    }

    #[test]
    fn a_task_that_did_not_run_before_proves_nothing() {
        let waiting = TaskFact { running: false, ..task("t1") };
        assert_eq!(details(&[waiting], &[]), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_touch_is_found() {
        let moved = TaskFact { node: "n2".to_owned(), ..task("t1") };
        assert_eq!(details(&[task("t1")], &[moved]), ["task t1 (web[0]) moved from n1 to n2"]);
        let anew = TaskFact { instance: "def".to_owned(), ..task("t1") };
        assert_eq!(details(&[task("t1")], &[anew]), ["task t1 (web[0]) ran as abc and is now def"]);
        let restarted = TaskFact { restarts: 2, ..task("t1") };
        assert_eq!(details(&[task("t1")], &[restarted]), ["task t1 (web[0]) was restarted 2 times"]);
        let ended = TaskFact { running: false, ..task("t1") };
        assert_eq!(details(&[task("t1")], &[ended]), ["task t1 (web[0]) does not run any more"]);
        assert_eq!(details(&[task("t1")], &[]), ["task t1 (web[0]) ran on n1 and is gone"]);
    }

    #[test]
    fn a_container_that_was_started_anew_or_is_gone_is_found() {
        let since = |text: &str| InstanceFact::RunsSince(text.to_owned());
        let before = BTreeMap::from([("a".to_owned(), since("1")), ("b".to_owned(), since("1"))]);
        assert_eq!(same_instances(&before, &before), []);
        let after = BTreeMap::from([("a".to_owned(), since("2"))]);
        let found: Vec<String> =
            same_instances(&before, &after).into_iter().map(|violation| violation.detail).collect();
        assert_eq!(
            found,
            ["a: RunsSince(\"1\") before, RunsSince(\"2\") after", "b: RunsSince(\"1\") before, Gone after"]
        );
    }
}
