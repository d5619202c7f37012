//! What runs against what is wanted, once every fault is mended: nothing is missing, and nothing runs that nobody wants.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::tasks::TaskFact;
use crate::check::{Rule, Violation};

/// A batch job in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchFact {
    /// Its name.
    pub name: String,
    /// Successful runs that it asks for.
    pub completions: usize,
    /// Successful runs, by the managers.
    pub told: usize,
    /// Successful runs, by what the runs themselves left behind.
    pub real: usize,
}

/// Compares the tasks that the managers want and call running with the instances that really run.
pub fn check(tasks: &[TaskFact], running: &BTreeSet<String>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wanted: BTreeMap<&str, &TaskFact> = BTreeMap::new();
    for task in tasks {
        let label = format!("task {} ({}) on {}", task.id, task.label, task.node);
        if !task.running {
            found.push(violation(
                Rule::NoStatusLost,
                format!("{label} does not run, and nothing is wrong with it"),
            ));
        } else if let Some(other) = wanted.insert(&task.instance, task) {
            let detail = format!("{label} and task {} are both {}", other.id, task.instance);
            found.push(violation(Rule::NoGhost, detail));
        } else if !running.contains(&task.instance) {
            let detail = format!("{label} counts as running as {}, which does not run", task.instance);
            found.push(violation(Rule::NoStatusLost, detail));
        }
    }
    for instance in running.iter().filter(|instance| !wanted.contains_key(instance.as_str())) {
        found.push(violation(Rule::NoGhost, format!("{instance} runs, and no task is it")));
    }
    found
}

/// Every run that the managers call successful was, and none that was needed is missing.
pub fn check_batches(batches: &[BatchFact]) -> Vec<Violation> {
    let mut found = Vec::new();
    for BatchFact { name, completions, told, real } in batches {
        if told < completions {
            let detail =
                format!("batch {name} has {told} of {completions} runs after the end, and {real} were made");
            found.push(violation(Rule::NoStatusLost, detail));
        }
        if told > real {
            let detail = format!("batch {name} counts {told} runs, and {real} were made");
            found.push(violation(Rule::NothingUnasked, detail));
        }
    }
    found
}

fn violation(rule: Rule, detail: String) -> Violation {
    Violation { rule, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, instance: &str) -> TaskFact {
        TaskFact {
            id: id.to_owned(),
            label: "web[0]".to_owned(),
            node: "n1".to_owned(),
            instance: instance.to_owned(),
            restarts: 0,
            running: true,
        }
    }

    fn rules(tasks: &[TaskFact], running: &[&str]) -> Vec<Rule> {
        let running = running.iter().map(|instance| (*instance).to_owned()).collect();
        check(tasks, &running).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn equal_sets_are_no_violation() {
        assert_eq!(rules(&[task("t1", "a"), task("t2", "b")], &["a", "b"]), []);
    }

    #[test]
    fn a_ghost_is_found() {
        assert_eq!(rules(&[task("t1", "a")], &["a", "b"]), [Rule::NoGhost]);
        let waiting = TaskFact { running: false, ..task("t1", "a") };
        assert_eq!(rules(&[waiting], &["a"]), [Rule::NoStatusLost, Rule::NoGhost]);
    }

    #[test]
    fn a_lost_end_is_found() {
        assert_eq!(rules(&[task("t1", "a"), task("t2", "b")], &["a"]), [Rule::NoStatusLost]);
    }

    #[test]
    fn two_tasks_in_one_instance_are_found() {
        assert_eq!(rules(&[task("t1", "a"), task("t2", "a")], &["a"]), [Rule::NoGhost]);
    }

    #[test]
    fn runs_of_a_batch_that_are_lost_or_made_up_are_found() {
        let batch = |told, real| BatchFact { name: "b".to_owned(), completions: 3, told, real };
        let rules = |batch| -> Vec<Rule> { check_batches(&[batch]).into_iter().map(|v| v.rule).collect() };
        assert_eq!(rules(batch(3, 3)), []);
        assert_eq!(rules(batch(3, 5)), [], "a run on a lost node may have been made again");
        assert_eq!(rules(batch(2, 3)), [Rule::NoStatusLost]);
        assert_eq!(rules(batch(3, 2)), [Rule::NothingUnasked]);
    }
}
