//! The campaign's job under a few hundred seeds: nothing is lost, repeated or torn, and each seed is the same world each time.

#![expect(clippy::print_stdout, reason = "how much was run is worth seeing")]

use std::collections::BTreeSet;

use cutwater_simulate::campaign::Campaign;

#[test]
fn three_hundred_seeds_show_readers_exactly_what_they_must() {
    let campaign = Campaign::new().expect("the job runs");
    let sums = campaign.range(0..300, 2);
    for (case, story) in &sums.failed {
        println!("{case}\n{story}\n");
    }
    println!("{} cases, {} lives, {} turns; struck at {:?}", sums.cases(), sums.lives, sums.turns, sums.struck);
    assert!(sums.failed.is_empty(), "{} of {} cases failed", sums.failed.len(), sums.cases());
    assert_eq!(sums.good, 300);
    assert!(sums.declined > 15, "checkpoints are declined on the way: {}", sums.declined);
    assert!(sums.lives > 500, "seeds strike: {} lives", sums.lives);
}

#[test]
fn the_same_seed_is_the_same_world_and_another_seed_is_another() {
    let campaign = Campaign::new().expect("the job runs");
    let mut traces = BTreeSet::new();
    for seed in 1_000..1_030 {
        let case = campaign.case(seed);
        let (first, second) = (campaign.one(&case), campaign.one(&case));
        assert_eq!(first, second, "seed {seed}, case {case}");
        traces.insert(first.expect("good").trace);
    }
    assert_eq!(traces.len(), 30, "every seed has a trace of its own");
}
