//! A log whose files were damaged anywhere: it opens or says what is wrong, and never panics.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Isolation, Log, LogLimits, LogOptions, Offset, OwnerId, TxnName};
use cutwater_platform::Files;
use cutwater_testkit::{SimDisk, SimPlatform};
use libfuzzer_sys::fuzz_target;

/// A log with a little of everything, and the paths of its files.
fn image() -> &'static (SimDisk, Vec<(PathBuf, u64)>) {
    static IMAGE: OnceLock<(SimDisk, Vec<(PathBuf, u64)>)> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let machine = SimPlatform::new(1);
        let log = Log::open(&machine.platform(), Path::new("log"), options()).expect("a new log");
        let topic = log.create_topic("t", 2).expect("a new topic");
        let mut batch = BatchBuilder::new(Compression::None);
        let producer = log.producer().expect("a producer");
        let owner = log.claim(&OwnerId(7), 1).expect("a new owner");
        for n in 0..4u64 {
            batch.push(0, None, Some(&[n as u8; 300]), &[]).expect("it fits");
            producer.append(topic, 0, &mut batch).expect("accepted").wait().expect("acknowledged");
            let name = TxnName { checkpoint: n, sink: "s".to_string(), writer: 0 };
            let mut txn = owner.begin(name).expect("a transaction");
            batch.push(0, None, Some(b"in a transaction"), &[]).expect("it fits");
            txn.append(topic, 1, &mut batch).expect("accepted");
            let prepared = txn.prepare().expect("prepared");
            if n % 2 == 0 {
                owner.commit(&[prepared.id]).expect("committed");
            }
        }
        let disk = machine.disk().kill();
        let mut files = vec![];
        walk(&disk, Path::new("log"), &mut files);
        (disk, files)
    })
}

fn walk(disk: &SimDisk, dir: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for entry in disk.read_dir(dir).expect("a directory") {
        let path = dir.join(entry.name);
        if entry.is_dir {
            walk(disk, &path, found);
        } else {
            let len = disk.open(&path, cutwater_platform::Open::Read).expect("a file").len().expect("a size");
            if len > 0 {
                found.push((path, len));
            }
        }
    }
}

fn options() -> LogOptions {
    LogOptions { limits: LogLimits::tiny(), ..LogOptions::default() }
}

fuzz_target!(|bytes: &[u8]| {
    let [file, at @ .., ] = bytes else { return };
    let Some((at, damage)) = at.split_first_chunk::<4>() else { return };
    let (disk, files) = image();
    let (path, len) = &files[usize::from(*file) % files.len()];
    let disk = disk.fork();
    let offset = u64::from(u32::from_le_bytes(*at)) % len;
    let damage = &damage[..damage.len().min(usize::try_from(len - offset).unwrap_or(0))];
    if !damage.is_empty() {
        disk.corrupt(path, offset, damage);
    }
    let machine = SimPlatform::on(disk, 2);
    let Ok(log) = Log::open(&machine.platform(), Path::new("log"), options()) else { return };
    for topic in log.topics() {
        for partition in 0..topic.partitions {
            for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
                let Ok(mut consumer) = log.consumer(topic.id, partition, Offset(0), isolation) else { continue };
                for _ in 0..20 {
                    let Ok(fetched) = consumer.poll(1 << 20) else { break };
                    let _ = fetched.for_each(|_| {});
                }
            }
        }
    }
});
