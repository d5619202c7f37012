//! Thousands of simulated clusters; see `quorate_testkit::world`.

#![cfg(test)]

use quorate_testkit::{seeds, world};

/// Seeds per test, eight tests, so that all cores share the work; `QUORATE_SEEDS` sets another number.
const SEEDS: u64 = 256;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn share(number: u64) {
    let count = setting("QUORATE_SEEDS", SEEDS);
    let batch = seeds::run(number * count, count).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{} seeds, {} entries, {} events", batch.seeds, batch.entries, batch.events);
    for (count, what) in batch.counters.lines() {
        println!("{count:>9}  {what}");
    }
    assert_eq!(batch.counters.missing(), Vec::<&str>::new(), "situations that no seed has reached");
}

macro_rules! shares {
    ($($name:ident: $number:literal,)+) => {
        $(#[test] fn $name() { share($number) })+
    };
}

shares! {
    seeds_of_share_0_keep_every_invariant: 0,
    seeds_of_share_1_keep_every_invariant: 1,
    seeds_of_share_2_keep_every_invariant: 2,
    seeds_of_share_3_keep_every_invariant: 3,
    seeds_of_share_4_keep_every_invariant: 4,
    seeds_of_share_5_keep_every_invariant: 5,
    seeds_of_share_6_keep_every_invariant: 6,
    seeds_of_share_7_keep_every_invariant: 7,
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 0..8 {
        let (first, second) = (world::run(seed).unwrap(), world::run(seed).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(world::run(0).unwrap().trace, world::run(1).unwrap().trace);
}

/// Repeats the seed of `QUORATE_SEED`, or seed 0, and tells its story.
#[test]
fn one_seed() {
    let seed = setting("QUORATE_SEED", 0);
    let (story, result) = world::tell(seed);
    story.iter().for_each(|line| println!("{line}"));
    let summary = result.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(Ok(summary), world::run(seed), "telling it changes nothing");
}
