//! A topic and the settings that it is made with come with one write: whatever else is on its way, and wherever a crash strikes, there are both or
//! neither.

mod log_support;

use cutwater_partition_log::{Log, TopicError, TopicId, TxnName};
use cutwater_testkit::{LossPolicy, SimPlatform};
use log_support::{OWNER, Settings, batch, open};

fn settings() -> Settings {
    [("cleanup.policy".to_string(), "compact".to_string()), ("note".to_string(), "n".repeat(1_500))].into()
}

/// Queues `fill` bytes, or a little more, that nobody waits for, and makes the topic behind them.
fn live(sim: &SimPlatform, fill: usize) -> Result<(), Box<dyn std::error::Error>> {
    let log = open(sim)?;
    let plain = log.create_topic("plain", 1)?;
    let owner = log.claim(&OWNER, 1)?;
    let mut txn = owner.begin(TxnName { checkpoint: 1, sink: "s".to_string(), writer: 0 })?;
    let mut queued = 0;
    while queued < fill {
        let value = "v".repeat((fill - queued).min(400));
        txn.append(plain, 0, &mut batch(&[value]))?;
        queued += 500;
    }
    log.create_topic_with("table", 2, &settings())?;
    Ok(())
}

fn is_whole(log: &Log, story: &str) -> bool {
    let found = log.topic("table");
    let expected = if found.is_some() { settings() } else { Settings::new() };
    assert_eq!(log.topic_settings("table"), expected, "{story}");
    if let Some(topic) = &found {
        assert!(topic.partitions == 2 && log.cleanup(topic.id).compact, "{story}");
    }
    found.is_some()
}

#[test]
fn a_crash_leaves_a_topic_with_its_settings_or_no_topic_however_full_the_write_is() {
    let (mut there, mut absent) = (0, 0);
    // A write holds 8192 bytes: somewhere in here the topic alone would fit into the one before its settings.
    for fill in (0..9_000).step_by(450) {
        let whole = SimPlatform::new(5);
        live(&whole, fill).expect("a sound disk");
        let frames = whole.crashes().reached().get("log.frame-written").copied().unwrap_or(0);
        for nth in 1..=frames {
            for policy in [LossPolicy::AllLost, LossPolicy::NoneLost] {
                let sim = SimPlatform::new(5);
                sim.power_off_at("log.frame-written", nth);
                // The last frames may be those of the end.
                let acknowledged = live(&sim, fill).is_ok();
                let story = format!("{fill} bytes before it, power cut behind frame {nth} of {frames}, {policy:?}");
                let log = open(&sim.restart(policy)).unwrap_or_else(|e| panic!("{story}: {e}"));
                let is_there = is_whole(&log, &story);
                assert!(is_there || !acknowledged, "{story}");
                if is_there { there += 1 } else { absent += 1 }
            }
        }
        for point in ["log.topic-created", "log.settings-written"] {
            let sim = SimPlatform::new(5);
            // The first topic has no settings.
            sim.power_off_at(point, if point == "log.topic-created" { 2 } else { 1 });
            // What is durable may still be answered.
            drop(live(&sim, fill));
            assert!(sim.crashes().missing(&[point]).is_empty(), "{point} is reached");
            let log = open(&sim.restart(LossPolicy::AllLost)).expect("it recovers");
            assert!(is_whole(&log, point), "its write was synced at {point}");
        }
    }
    assert!(there > 20 && absent > 20, "crashes before and behind it: {there}, {absent}");
}

#[test]
fn settings_that_cannot_be_leave_no_topic() {
    let sim = SimPlatform::new(5);
    let log = open(&sim).expect("a fresh log");
    let wrong = [("retention.ms".to_string(), "soon".to_string())].into();
    assert!(matches!(log.create_topic_with("t", 1, &wrong), Err(TopicError::Setting { .. })));
    let long = [("note".to_string(), "n".repeat(4_096))].into();
    assert!(matches!(log.create_topic_with("t", 1, &long), Err(TopicError::TooMany { .. })));
    // With the topic itself they are a little too long.
    let name = "t".repeat(200);
    let tight = Settings::from([("note".to_string(), "n".repeat(4_096 - 13 - 8 - 4 - 100))]);
    assert!(matches!(log.create_topic_with(&name, 1, &tight), Err(TopicError::TooMany { .. })));
    assert!(log.topics().is_empty());
    let mut rehearsal = log.rehearse();
    for refused in [&wrong, &long] {
        assert!(rehearsal.create_topic("t", 1, refused).is_err());
    }
    assert!(rehearsal.create_topic(&name, 1, &tight).is_err());
    assert_eq!(log.create_topic_with("t", 1, &tight), Ok(TopicId(0)), "a shorter name leaves room");
}
