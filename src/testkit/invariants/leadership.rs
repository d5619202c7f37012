//! Once everything is whole there is a leader.

use super::{Invariant, Scene, Verdict, ensure};

pub(super) const INVARIANT: Invariant = Invariant {
    at_rest: Some(check),
    ..Invariant::new("there is a leader at rest", "L1: a leader within bounded time once faults are off")
};

fn check(scene: &Scene<'_>) -> Verdict {
    ensure(scene.leader.is_some(), || "nobody leads".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::bad::Case;

    #[test]
    fn trips_without_a_leader() {
        let mut case = Case::new();
        assert_eq!(case.scene(INVARIANT.at_rest), Ok(()));
        case.leader = None;
        assert_eq!(case.scene(INVARIANT.at_rest), Err("nobody leads".to_owned()));
    }
}
