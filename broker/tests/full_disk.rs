//! A real file system without room below a broker: producing is refused with a code that clients retry, fetches go on, deletions make
//! room, and the broker takes requests again by itself, nothing lost and nothing twice.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::*;
use cutwater_broker::{Broker, BrokerOptions};
use cutwater_partition_log::batch::{Limits, ProducerStamp, records};
use cutwater_partition_log::{Log, LogLimits, LogOptions};
use cutwater_platform::{Clock, Files, Open, OsFiles, Platform, SystemClock};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::{DeleteRecordsRequest, InitProducerIdRequest, TransactionalId};

const WITHIN: Duration = Duration::from_secs(30);

/// A file system of so many MiB, gone when dropped.
struct Small(PathBuf);

impl Small {
    fn mounted(at: &Path, mib: u32) -> Option<Small> {
        OsFiles::new().create_dir(at).expect("a directory");
        let size = format!("size={mib}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        mount.is_ok_and(|said| said.status.success()).then(|| Small(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn small_limits() -> LogLimits {
    LogLimits {
        wal_file_bytes: 1 << 20,
        wal_extend_bytes: 64 << 10,
        group_bytes: 256 << 10,
        batch_bytes_max: 256 << 10,
        end_bytes_max: 64 << 10,
        queue_bytes: 512 << 10,
        unmaterialised_bytes: 512 << 10,
        checkpoint_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        tail_bytes: 256 << 10,
        reserve_bytes: 3 << 20,
        janitor_every: Duration::from_millis(200),
        ..LogLimits::default()
    }
}

/// An idempotent client that numbers its records, one batch each, and sends a batch again until it is taken.
struct Numbered {
    client: Client,
    producer: i64,
    next: i32,
    codes: BTreeSet<i16>,
}

impl Numbered {
    fn new(mut client: Client) -> Numbered {
        let request = InitProducerIdRequest::default().with_transactional_id(None::<TransactionalId>);
        let producer = client.ask(4, request).producer_id.0;
        Numbered { client, producer, next: 0, codes: BTreeSet::new() }
    }

    /// Sends the next one once; whether it was taken.
    fn send(&mut self) -> bool {
        let stamp =
            ProducerStamp { producer_id: self.producer, epoch: 0, base_sequence: self.next, transactional: false };
        let value = format!("{:06}{}", self.next, "v".repeat(40_000));
        let (code, base) = produced(&self.client.ask(9, produce("t", 0, -1, batch(stamp, &[&value]))));
        if code == 0 {
            assert_eq!(base, i64::from(self.next), "each once, in its order");
            self.next += 1;
        } else {
            self.codes.insert(code);
        }
        code == 0
    }

    fn until(&mut self, what: &str, taken: bool) {
        let clock = SystemClock::new();
        let since = clock.monotonic();
        while self.send() != taken {
            assert!(clock.monotonic() - since < WITHIN, "{what}: not within {WITHIN:?}, codes {:?}", self.codes);
            if taken {
                clock.sleep(Duration::from_millis(20));
            }
        }
    }

    /// The numbers that a fetch from `from` on shows.
    fn shown(&mut self, from: i64) -> Vec<i32> {
        let mut seen = Vec::new();
        let mut at = from;
        loop {
            let answer = self.client.ask(11, fetch("t", 0, at, 0, 0));
            let partition = fetched(&answer);
            assert_eq!(partition.error_code, 0, "fetches go on");
            let bytes = partition.records.clone().unwrap_or_default();
            if bytes.is_empty() {
                return seen;
            }
            let mut rest = &bytes[..];
            while let Ok(header) = cutwater_partition_log::batch::BatchHeader::parse(rest) {
                let Some(whole) = rest.get(..header.total_bytes()) else { break };
                for record in records(whole, &Limits::default()).expect("a batch").iter() {
                    let record = record.expect("a record");
                    let text = String::from_utf8_lossy(&record.value.expect("a value")[..6]).into_owned();
                    if record.offset >= at {
                        seen.push(text.parse().expect("a number"));
                        at = record.offset + 1;
                    }
                }
                rest = &rest[header.total_bytes()..];
            }
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "that nothing was tested must be seen")]
fn a_broker_on_a_full_disk_refuses_reads_on_and_goes_on_by_itself_when_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(disk) = Small::mounted(&dir.path().join("small"), 16) else {
        eprintln!("SKIPPED: no file system can be mounted here (this needs root), so no real disk was filled");
        return;
    };
    let platform = Platform::real();
    let options = LogOptions { limits: small_limits(), ..LogOptions::default() };
    let log = Log::open(&platform, &disk.0.join("log"), options.clone()).expect("a fresh log");
    let address = "127.0.0.1:0".parse().expect("an address");
    let broker = Broker::start(&platform, log.clone(), address, BrokerOptions::default()).expect("a free port");
    log.create_topic("t", 1).expect("created");
    let mut client = Numbered::new(Client::connect(broker.address()));

    client.until("the disk fills up", false);
    let (taken, storage) = (client.next, ResponseError::KafkaStorageError.code());
    assert!(taken > 50 && client.codes == BTreeSet::from([storage]), "{taken} taken, then {:?}", client.codes);
    assert!(log.status().no_room.is_some() && log.status().down.is_none(), "{:?}", log.status());
    assert_eq!(client.shown(0), (0..taken).collect::<Vec<_>>(), "all of it can be read");

    // Deleting makes room.
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(-1);
    let topic = DeleteRecordsTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000);
    assert_eq!(client.client.ask(2, request).topics[0].partitions[0].error_code, 0);
    client.until("records were deleted", true);
    assert_eq!(client.next, taken + 1);

    // Somebody else fills the disk to the last byte, and goes away again.
    let (files, other) = (OsFiles::new(), disk.0.join("other"));
    let file = files.open(&other, Open::CreateNew).expect("created");
    let (mut at, piece) = (0, vec![1; 4096]);
    while file.write_all_at(&piece, at).is_ok() {
        at += 4096;
    }
    client.until("somebody else has filled it", false);
    let before = client.next;
    let start = i64::from(taken);
    assert_eq!(client.shown(start), (taken..before).collect::<Vec<_>>(), "all of it can be read");
    drop(file);
    files.remove_file(&other).expect("removed");
    client.until("there is room again", true);
    for _ in 0..20 {
        assert!(client.send(), "{:?}", client.codes);
    }
    assert_eq!(log.status().no_room, None);
    assert!(client.codes.is_subset(&BTreeSet::from([storage, ResponseError::RequestTimedOut.code()])));
    assert_eq!(client.shown(start), (taken..client.next).collect::<Vec<_>>(), "each is there, once, in its order");

    // And the next life agrees.
    let (next, codes) = (client.next, std::mem::take(&mut client.codes));
    drop(client);
    broker.stop();
    log.close().expect("closed");
    drop(log);
    let log = Log::open(&platform, &disk.0.join("log"), options).expect("opened");
    let topic = log.topic("t").expect("there");
    assert_eq!(log.offsets(topic.id, 0).expect("there").log_end.0, next as u64, "{codes:?}");
    log.close().expect("closed");
}
