//! Which manager to dial next.

use quorate_base::Rng;

/// Walks over all managers that were ever named, in an order of this agent's own, the presumed leader first.
#[derive(Debug)]
pub(super) struct Targets {
    rng: Rng,
    preferred: Option<String>,
    /// What is left of the present round, the next one last.
    round: Vec<String>,
}

impl Targets {
    pub(super) const fn new(rng: Rng) -> Self {
        Self { rng, preferred: None, round: Vec::new() }
    }

    /// `address` was lost: dial it after all others.
    pub(super) fn lost(&mut self, address: String, learned: &[String], seeds: &[String]) {
        self.round = self.shuffled(learned, seeds);
        self.round.retain(|other| *other != address);
        self.round.insert(0, address);
    }

    /// Dial `address` next, once.
    pub(super) fn prefer(&mut self, address: String) {
        self.preferred = Some(address);
    }

    /// The next address. `learned` came from the managers; `seeds`, from the configuration, stay for ever: they are the
    /// last resort when all that was learned is outdated.
    pub(super) fn next(&mut self, learned: &[String], seeds: &[String]) -> String {
        if let Some(address) = self.preferred.take() {
            return address;
        }
        if self.round.is_empty() {
            self.round = self.shuffled(learned, seeds);
        }
        self.round.pop().unwrap_or_default()
    }

    fn shuffled(&mut self, learned: &[String], seeds: &[String]) -> Vec<String> {
        let mut all: Vec<String> = learned.iter().chain(seeds).cloned().collect();
        all.sort();
        all.dedup();
        self.rng.shuffle(&mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_manager_is_tried_in_each_round_seeds_included() {
        let mut targets = Targets::new(Rng::seeded(3));
        let (learned, seeds) = (list(&["a", "b"]), list(&["b", "seed"]));
        for _ in 0..5 {
            let round: BTreeSet<_> = (0..3).map(|_| targets.next(&learned, &seeds)).collect();
            assert_eq!(round.into_iter().collect::<Vec<_>>(), ["a", "b", "seed"]);
        }
    }

    #[test]
    fn a_preferred_one_comes_first_and_once() {
        let mut targets = Targets::new(Rng::seeded(3));
        targets.prefer("leader".to_owned());
        assert_eq!(targets.next(&[], &list(&["seed"])), "leader");
        assert_eq!(targets.next(&[], &list(&["seed"])), "seed");
    }

    #[test]
    fn the_one_that_was_lost_is_tried_last() {
        let managers = list(&["a", "b", "c"]);
        for seed in 0..10 {
            let mut targets = Targets::new(Rng::seeded(seed));
            targets.lost("b".to_owned(), &managers, &[]);
            let round: Vec<_> = (0..3).map(|_| targets.next(&managers, &[])).collect();
            assert_eq!(round[2], "b");
        }
    }

    #[test]
    fn agents_walk_in_different_orders() {
        let managers = list(&["a", "b", "c", "d", "e"]);
        let walk = |seed| {
            let mut targets = Targets::new(Rng::seeded(seed));
            (0..5).map(|_| targets.next(&managers, &[])).collect::<Vec<_>>()
        };
        assert!((1..20).any(|seed| walk(seed) != walk(0)));
    }
}
