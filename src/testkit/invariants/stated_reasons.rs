//! Every task that waits for a node has one soon, or says why not.

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("waiting tasks say why", "L3: every pending task is placed or has a stated reason")
};

fn check(scene: &Scene<'_>) -> Verdict {
    for task in scene.state.unplaced() {
        let stated = task.explanation.as_ref().is_some_and(|why| {
            let counted: u32 = why.reasons.iter().map(|r| r.nodes).sum();
            counted == why.total && why.total as usize == scene.state.nodes().count()
        });
        ensure(stated, || format!("{} waits without a true reason: {task:?}", task.id))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quorate_model::{Explanation, Filter, JobId, Reason};
    use quorate_state::Command;

    use super::*;
    use crate::invariants::bad::{Case, service};

    #[test]
    fn trips_without_a_reason_and_on_one_that_does_not_add_up() {
        let mut case = Case::new();
        case.lab.job(service(1)).unwrap();
        case.create(JobId(0), 0, 1);
        assert!(case.scene(INVARIANT.at_rest).unwrap_err().contains("t0 waits"));
        for (nodes, holds) in [(1, false), (2, true)] {
            let reasons = vec![Reason { filter: Filter::Cpu, nodes, detail: "x".into() }];
            let why = Arc::new(Explanation { total: 2, reasons });
            let task = case.lab.state.unplaced().next().unwrap().id;
            case.lab.done(Command::ExplainTasks { groups: vec![(why, vec![task])] }).unwrap();
            assert_eq!(case.scene(INVARIANT.at_rest).is_ok(), holds);
        }
    }
}
