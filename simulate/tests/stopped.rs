//! Lives that are stopped in the middle of what they do, overtaken, and come back: they find themselves fenced, and nothing they do shows (I-7).

#![expect(clippy::print_stdout, reason = "how much was run is worth seeing")]

use cutwater_simulate::campaign::{Campaign, Kind};
use cutwater_simulate::{Case, End};

#[test]
fn a_hundred_seeds_of_stopped_lives_show_readers_exactly_what_they_must() {
    let campaign = Campaign::new().expect("the job runs").of(Kind::Stopped);
    let sums = campaign.range(0..120, 2);
    for (case, story) in &sums.failed {
        println!("{case}\n{story}\n");
    }
    println!("{} cases, {} lives, {} fenced; struck at {:?}", sums.cases(), sums.lives, sums.fenced, sums.struck);
    assert!(sums.failed.is_empty(), "{} of {} cases failed", sums.failed.len(), sums.cases());
    assert!(sums.fenced > 40, "lives are overtaken and told so: {}", sums.fenced);
}

#[test]
fn a_case_with_a_stopped_life_is_the_same_world_each_time() {
    let campaign = Campaign::new().expect("the job runs");
    for seed in 0..12 {
        let case = Case::of(seed).and("group.commit-sent", 1, End::Stop).and("manifest.durable", 1, End::Stop);
        let (first, second) = (campaign.one(&case), campaign.one(&case));
        assert_eq!(first, second, "seed {seed}, case {case}");
        let one = first.expect("good");
        // The second one isn't stopped if it finds nothing left to do.
        assert!(one.lives >= 2 && one.fenced + 1 == one.lives, "seed {seed}: {one:?}");
    }
}
