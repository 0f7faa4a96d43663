//! A disk that is full for a while, wherever it fills up: the job waits, goes on by itself, and its output is exact (decision 0070).

#![expect(clippy::print_stdout, reason = "how much was run is worth seeing")]

use cutwater_simulate::campaign::{Campaign, Kind};
use cutwater_simulate::{Case, End};

#[test]
fn a_hundred_seeds_of_full_disks_show_readers_exactly_what_they_must() {
    let campaign = Campaign::new().expect("the job runs").of(Kind::Full);
    let sums = campaign.range(0..120, 2);
    for (case, story) in &sums.failed {
        println!("{case}\n{story}\n");
    }
    println!("{} cases, {} lives, {} pauses; struck at {:?}", sums.cases(), sums.lives, sums.pauses, sums.struck);
    assert!(sums.failed.is_empty(), "{} of {} cases failed", sums.failed.len(), sums.cases());
    assert!(sums.pauses > 20, "jobs wait for room: {}", sums.pauses);
}

#[test]
fn a_disk_that_is_full_at_a_point_pauses_the_job_and_the_next_strike_still_ends_the_life() {
    let campaign = Campaign::new().expect("the job runs");
    let mut pauses = 0;
    for seed in 0..12 {
        let full = Case::of(seed).and("coordinator.all-reported", 1, End::Full);
        let case = if seed % 3 == 0 { full.and("recovery.recommitted", 1, End::Kill) } else { full };
        let (first, second) = (campaign.one(&case), campaign.one(&case));
        assert_eq!(first, second, "seed {seed}, case {case}");
        pauses += first.expect("good").pauses;
    }
    assert!(pauses >= 6, "{pauses}");
}
