//! What a life that was cut off has left under temporary names goes with the next open that succeeds, and nothing else does.

mod log_support;

use std::path::{Path, PathBuf};

use cutwater_partition_log::{Isolation, Log};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{DIR, batch, open, read};

fn base() -> PathBuf {
    Path::new(DIR).join("base")
}

fn names(sim: &SimPlatform) -> Vec<String> {
    let listed = sim.platform().files.read_dir(&base()).expect("listed");
    let mut names: Vec<String> = listed.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Appends until the log has made images of its state a few times, or the power is off.
fn live(sim: &SimPlatform) -> usize {
    let Ok(log) = open(sim) else { return 0 };
    let Ok(topic) = log.create_topic("t", 1) else { return 0 };
    let Ok(producer) = log.producer() else { return 0 };
    for n in 0..60 {
        let done = producer.append(topic, 0, &mut batch(&[format!("{n}-{}", "v".repeat(900))]));
        if done.and_then(|ticket| ticket.wait()).is_err() {
            return n;
        }
    }
    60
}

fn values(log: &Log) -> usize {
    log.topic("t").map_or(0, |topic| read(log, topic.id, 0, Isolation::ReadUncommitted).len())
}

#[test]
fn a_writer_that_was_cut_off_leaves_a_file_that_the_next_open_removes_and_no_crash_of_that_harms() {
    let sim = SimPlatform::new(3);
    // The first is that of the creation.
    sim.power_off_at("log.base-image-written", 2);
    let acknowledged = live(&sim);
    assert!(acknowledged > 0 && acknowledged < 60, "{acknowledged}");
    let left = sim.restart(LossPolicy::NoneLost);
    let before = names(&left);
    assert!(before.iter().any(|name| name.ends_with(".tmp")), "{before:?}");
    // Cut off where it is removed, and behind that.
    left.power_off_at("log.leftover-removed", 1);
    drop(open(&left));
    for policy in [LossPolicy::NoneLost, LossPolicy::AllLost] {
        let again = left.restart(policy);
        let log = open(&again).expect("it opens");
        assert!(values(&log) >= acknowledged, "{policy:?}");
        let images: Vec<String> = before.iter().filter(|name| !name.ends_with(".tmp")).cloned().collect();
        assert_eq!(names(&again), images, "{policy:?}: what isn't temporary stays");
    }
}

#[test]
fn a_log_that_refuses_to_open_touches_nothing() {
    let sim = SimPlatform::new(3);
    sim.power_off_at("log.base-image-written", 2);
    live(&sim);
    let left = sim.restart(LossPolicy::NoneLost);
    left.platform().files.publish_bytes(&base().join("a stranger's"), b"").expect("written");
    let before = names(&left);
    assert!(open(&left).is_err(), "a name that isn't its own");
    assert_eq!(names(&left), before);
}
