//! Who keeps up reads from memory: the disk's reads are counted.

use std::path::Path;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Consumer, Isolation, Log, LogLimits, LogOptions, Offset, OwnerId, TxnName};
use cutwater_testkit::SimPlatform;

fn batch(value: &str) -> BatchBuilder {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(1, None, Some(value.as_bytes()), &[]).expect("fits");
    builder
}

/// What a poll brings, and how often it has read the disk.
fn poll(sim: &SimPlatform, consumer: &mut Consumer) -> (Vec<String>, u64) {
    let before = sim.disk().reads();
    let fetched = consumer.poll(1 << 20).expect("up");
    let read = sim.disk().reads() - before;
    let mut values = Vec::new();
    let mut push = |value: Option<&[u8]>| values.push(String::from_utf8_lossy(value.unwrap_or_default()).into_owned());
    fetched.for_each(|record| push(record.value)).expect("decodable");
    (values, read)
}

#[test]
fn a_consumer_that_keeps_up_never_reads_the_disk_and_one_that_stays_behind_does() {
    let sim = SimPlatform::new(5);
    // So small that segments are rolled and the tail is let go of all the time.
    let options = LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() };
    let log = Log::open(&sim.platform(), Path::new("/log"), options).expect("opened");
    let topic = log.create_topic("t", 1).expect("created");
    let owner = log.claim(&OwnerId(1), 1).expect("claimed");
    let follow = |isolation| log.consumer(topic, 0, Offset::ZERO, isolation).expect("exists");
    let (mut committed, mut all) = (follow(Isolation::ReadCommitted), follow(Isolation::ReadUncommitted));
    let producer = log.producer().expect("up");
    let (mut wanted, mut every) = (Vec::new(), Vec::new());
    for n in 0..120u64 {
        let value = format!("{n} {}", ".".repeat(100));
        let name = TxnName { checkpoint: n, sink: "s".to_string(), writer: 0 };
        match n % 3 {
            0 => {
                producer.append(topic, 0, &mut batch(&value)).expect("taken").wait().expect("durable");
                wanted.push(value.clone());
            }
            rest => {
                let mut txn = owner.begin(name).expect("begun");
                txn.append(topic, 0, &mut batch(&value)).expect("taken");
                if rest == 1 {
                    txn.commit().expect("committed");
                    wanted.push(value.clone());
                } else {
                    txn.abort().expect("aborted");
                }
            }
        }
        every.push(value);
        let (new, read) = poll(&sim, &mut committed);
        assert_eq!((new.last(), read), (wanted.last().filter(|_| n % 3 != 2), 0), "{n}");
        let (new, read) = poll(&sim, &mut all);
        assert_eq!((new.last(), read), (every.last(), 0), "{n}");
    }
    for (isolation, right) in [(Isolation::ReadCommitted, &wanted), (Isolation::ReadUncommitted, &every)] {
        let (mut late, mut seen, mut reads) = (follow(isolation), Vec::new(), 0);
        loop {
            let before = late.position();
            let (new, read) = poll(&sim, &mut late);
            seen.extend(new);
            reads += read;
            if late.position() == before {
                break;
            }
        }
        assert_eq!(&seen, right);
        assert!(reads > 0, "what has left the tail is on the disk: the count counts");
    }
}
