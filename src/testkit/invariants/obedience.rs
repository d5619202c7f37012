//! An agent that has obeyed a leader never obeys an older one, nor older words of the same.

use super::{Invariant, Scene, Verdict};

pub(super) const INVARIANT: Invariant = Invariant {
    always: Some(check),
    at_rest: Some(check),
    ..Invariant::new("agents refuse older words", "O2: an agent refuses any fence lower than it has seen")
};

fn check(scene: &Scene<'_>) -> Verdict {
    scene.journal.disobedience.clone().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use quorate_model::Term;

    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_on_an_older_term_and_on_an_older_number() {
        for older in [(Term(2), 9), (Term(3), 4)] {
            let mut case = Case::new();
            case.journal.obeys("n1", (Term(3), 5));
            case.journal.obeys("n2", older);
            assert_eq!(case.scene(INVARIANT.always), Ok(()), "another agent");
            case.journal.obeys("n1", older);
            assert!(case.scene(INVARIANT.always).unwrap_err().contains("n1 obeys"));
        }
    }
}
