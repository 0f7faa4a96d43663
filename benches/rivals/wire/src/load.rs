//! What is asked of a server, and how long it takes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use cutwater_partition_log::batch::{self, BatchBuilder, Compression, ProducerStamp};
use kafka_protocol::messages::*;

use crate::wire::{Connection, text};

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `acks=all`, nothing else.
    Plain,
    /// With producer id and sequences.
    Idempotent,
    /// In transactions of [`RECORDS_IN_TRANSACTION`].
    Transactional,
}

/// A transaction of a bulk writer.
pub const RECORDS_IN_TRANSACTION: u64 = 10_000;
/// Bytes of records in a batch, about.
pub const BATCH_BYTES: usize = 64 << 10;
/// Requests without an answer on one connection: what an idempotent producer may have.
const IN_FLIGHT: i32 = 5;

const NONE: ProducerStamp = ProducerStamp { producer_id: -1, epoch: -1, base_sequence: -1, transactional: false };

/// Errors that go away: a coordinator that isn't there yet, a transaction that is still being ended, a leader not known yet.
fn passes(code: i16) -> bool {
    matches!(code, 3 | 5 | 6 | 14 | 15 | 16 | 51 | 100)
}

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

/// Creates a topic, and waits until each of its partitions answers; one that is there is as good.
pub fn create(address: SocketAddr, topic: &str, partitions: i32) -> Result<()> {
    use create_topics_request::CreatableTopic;
    let wanted =
        CreatableTopic::default().with_name(name(topic)).with_num_partitions(partitions).with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![wanted]).with_timeout_ms(20_000);
    let mut connection = Connection::open(address)?;
    let answer = connection.ask(&request)?;
    let code = answer.topics.first().context("no topic in the answer")?.error_code;
    ensure!(code == 0 || code == 36, "topic {topic} can't be created: error {code}");
    for partition in 0..partitions {
        use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
        let wanted = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(-1);
        let wanted = ListOffsetsTopic::default().with_name(name(topic)).with_partitions(vec![wanted]);
        let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![wanted]);
        until_ready(|| {
            let answer = connection.ask(&request)?;
            let topic = answer.topics.first().context("no topic in the answer")?;
            Ok((topic.partitions.first().context("no partition in the answer")?.error_code, ()))
        })?;
    }
    Ok(())
}

/// Writes one record: whether the server is up.
pub fn write_one(address: SocketAddr) -> Result<()> {
    create(address, "probe", 1)?;
    let mut connection = Connection::open(address)?;
    let batch = records(1, 10)?.into();
    match codes(&connection.ask(&produce("probe", 0, batch, None))?)[..] {
        [0] => Ok(()),
        ref other => bail!("error {other:?}"),
    }
}

/// A batch of `count` records of `bytes` bytes each, which look random to a compressor.
fn records(count: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut batch = BatchBuilder::new(Compression::None);
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut value = vec![0; bytes];
    // Of today: a server may take old records away while they are being read.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis().try_into()?;
    for _ in 0..count {
        for byte in &mut value {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        batch.push(now, None, Some(&value), &[])?;
    }
    Ok(batch.build(NONE)?)
}

fn produce(topic: &str, partition: i32, batch: Bytes, transaction: Option<&str>) -> ProduceRequest {
    use produce_request::{PartitionProduceData, TopicProduceData};
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_transactional_id(transaction.map(|id| TransactionalId(text(id))))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

fn codes(answer: &ProduceResponse) -> Vec<i16> {
    answer.responses.iter().flat_map(|topic| topic.partition_responses.iter().map(|p| p.error_code)).collect()
}

/// One producer with a partition of its own.
struct Producer {
    connection: Connection,
    topic: String,
    partition: i32,
    transaction: Option<String>,
    stamp: ProducerStamp,
    /// The second protocol of transactions: partitions are added by writing, each end brings a new epoch.
    second: bool,
    /// Answers "again, please" so far.
    again: u64,
}

impl Producer {
    /// `number` tells producers of one topic apart.
    fn open(address: SocketAddr, topic: &str, partition: i32, mode: Mode, number: i32) -> Result<Producer> {
        let mut connection = Connection::open(address)?;
        let transaction = (mode == Mode::Transactional).then(|| format!("{topic}-{number}"));
        let second = connection.version::<ProduceRequest>() >= 12 && connection.version::<EndTxnRequest>() >= 5;
        let mut stamp = NONE;
        if mode != Mode::Plain {
            if let Some(id) = &transaction {
                until_ready(|| {
                    let find = FindCoordinatorRequest::default().with_key(text(id)).with_key_type(1);
                    Ok((connection.ask(&find)?.error_code, ()))
                })?;
            }
            let request = InitProducerIdRequest::default()
                .with_transactional_id(transaction.as_deref().map(|id| TransactionalId(text(id))))
                .with_transaction_timeout_ms(60_000);
            let answer = until_ready(|| {
                let answer = connection.ask(&request)?;
                Ok((answer.error_code, answer))
            })?;
            stamp = ProducerStamp {
                producer_id: answer.producer_id.0,
                epoch: answer.producer_epoch,
                base_sequence: 0,
                transactional: transaction.is_some(),
            };
        }
        Ok(Producer { connection, topic: topic.to_owned(), partition, transaction, stamp, second, again: 0 })
    }

    /// Says that the partition takes part, where the protocol wants that.
    fn begin(&mut self) -> Result<()> {
        use add_partitions_to_txn_request::AddPartitionsToTxnTopic;
        let Some(id) = self.transaction.as_deref().filter(|_| !self.second) else { return Ok(()) };
        let topic =
            AddPartitionsToTxnTopic::default().with_name(name(&self.topic)).with_partitions(vec![self.partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(id)))
            .with_v3_and_below_producer_id(ProducerId(self.stamp.producer_id))
            .with_v3_and_below_producer_epoch(self.stamp.epoch)
            .with_v3_and_below_topics(vec![topic]);
        let connection = &mut self.connection;
        let again = &mut self.again;
        until_ready_counting(again, || {
            let answer = connection.ask(&request)?;
            let topic = answer.results_by_topic_v3_and_below.first().context("no topic in the answer")?;
            Ok((topic.results_by_partition.first().context("no partition")?.partition_error_code, ()))
        })
    }

    /// Sends a batch, stamped with the next sequence. `records` is how many it holds.
    fn send(&mut self, batch: &[u8], records: u64) -> Result<()> {
        let mut batch = batch.to_vec();
        if self.stamp.producer_id >= 0 {
            batch::restamp(&mut batch, self.stamp)?;
            self.stamp.base_sequence = ((self.stamp.base_sequence as i64 + records as i64) & i32::MAX as i64) as i32;
        }
        self.connection.send(&produce(&self.topic, self.partition, batch.into(), self.transaction.as_deref()))
    }

    /// The error of the oldest batch that isn't acknowledged.
    fn acknowledged(&mut self) -> Result<i16> {
        let answer = self.connection.receive::<ProduceRequest>()?;
        codes(&answer).first().copied().context("no partition in the answer")
    }

    fn drain(&mut self, left: i32) -> Result<()> {
        while self.connection.in_flight() > left {
            let code = self.acknowledged()?;
            ensure!(code == 0, "a batch is refused: error {code}");
        }
        Ok(())
    }

    /// One batch on its own, sent again while the server asks for it.
    fn one(&mut self, batch: &[u8], records: u64) -> Result<()> {
        let stamp = self.stamp;
        loop {
            self.stamp = stamp;
            self.send(batch, records)?;
            match self.acknowledged()? {
                0 => return Ok(()),
                code if passes(code) => self.again += 1,
                code => bail!("a record is refused: error {code}"),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn commit(&mut self) -> Result<()> {
        let id = self.transaction.clone().context("a transaction")?;
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&id)))
            .with_producer_id(ProducerId(self.stamp.producer_id))
            .with_producer_epoch(self.stamp.epoch)
            .with_committed(true);
        let connection = &mut self.connection;
        let again = &mut self.again;
        let answer = until_ready_counting(again, || {
            let answer = connection.ask(&request)?;
            Ok((answer.error_code, answer))
        })?;
        if self.second {
            self.stamp.producer_id = answer.producer_id.0;
            self.stamp.epoch = answer.producer_epoch;
            self.stamp.base_sequence = 0;
        }
        Ok(())
    }
}

fn until_ready<T>(ask: impl FnMut() -> Result<(i16, T)>) -> Result<T> {
    until_ready_counting(&mut 0, ask)
}

fn until_ready_counting<T>(again: &mut u64, mut ask: impl FnMut() -> Result<(i16, T)>) -> Result<T> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match ask()? {
            (0, answer) => return Ok(answer),
            (code, _) if passes(code) && Instant::now() < until => *again += 1,
            (code, _) => bail!("error {code}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Writes `total` bytes of records of `size` bytes over as many connections as there are partitions. Answers records and time.
pub fn write(
    address: SocketAddr,
    topic: &str,
    partitions: i32,
    size: usize,
    total: u64,
    mode: Mode,
) -> Result<(u64, Duration)> {
    create(address, topic, partitions)?;
    let each = (BATCH_BYTES / size).max(1) as u64;
    let batch = records(each, size)?;
    let batches = total / size as u64 / each / partitions as u64;
    let mut producers =
        (0..partitions).map(|p| Producer::open(address, topic, p, mode, p)).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = producers
            .iter_mut()
            .map(|producer| {
                let batch = &batch;
                scope.spawn(move || bulk(producer, batch, each, batches, mode))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a writer doesn't panic"))
    })?;
    Ok((batches * each * partitions as u64, began.elapsed()))
}

fn bulk(producer: &mut Producer, batch: &[u8], each: u64, batches: u64, mode: Mode) -> Result<()> {
    let in_transaction = (RECORDS_IN_TRANSACTION / each).max(1);
    for at in 0..batches {
        let first = at % in_transaction == 0;
        if mode == Mode::Transactional && first {
            if at > 0 {
                producer.drain(0)?;
                producer.commit()?;
            }
            producer.begin()?;
            // Alone: a server may still be ending the one before and say so.
            producer.one(batch, each)?;
            continue;
        }
        producer.send(batch, each)?;
        producer.drain(IN_FLIGHT - 1)?;
    }
    producer.drain(0)?;
    if mode == Mode::Transactional { producer.commit() } else { Ok(()) }
}

/// Reads a topic of `partitions` from its start until `records` have come, committed ones only.
pub fn read(address: SocketAddr, topic: &str, partitions: i32, records: u64) -> Result<Duration> {
    let began = Instant::now();
    let read = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..partitions)
            .map(|partition| {
                let read = &read;
                scope.spawn(move || read_partition(address, topic, partition, records / partitions as u64, read))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a reader doesn't panic"))
    })?;
    let got = read.load(Ordering::Relaxed);
    ensure!(got == records, "{got} records read, {records} written");
    Ok(began.elapsed())
}

fn read_partition(address: SocketAddr, topic: &str, partition: i32, wanted: u64, read: &AtomicU64) -> Result<()> {
    use fetch_request::{FetchPartition, FetchTopic};
    let mut connection = Connection::open(address)?;
    let (mut from, mut got) = (0, 0);
    let until = Instant::now() + Duration::from_secs(300);
    while got < wanted {
        ensure!(Instant::now() < until, "only {got} of {wanted} records can be read");
        let data = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(from)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![data]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(50 << 20)
            .with_isolation_level(1)
            .with_topics(vec![topic]);
        let answer = connection.ask(&request)?;
        ensure!(answer.error_code == 0, "a fetch is refused: error {}", answer.error_code);
        for data in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            ensure!(data.error_code == 0, "a partition is refused: error {}", data.error_code);
            let mut rest = data.records.as_deref().unwrap_or_default();
            while let Ok(header) = batch::BatchHeader::parse(rest) {
                let Some((_, behind)) = rest.split_at_checked(header.total_bytes()) else { break };
                rest = behind;
                from = header.last_offset() + 1;
                if !header.is_control() {
                    got += u64::try_from(header.record_count)?;
                }
            }
        }
    }
    read.fetch_add(got, Ordering::Relaxed);
    Ok(())
}

/// `producers` commit transactions of one small record each, one after the other, for a time. Answers commits, repeats, time.
pub fn commits(address: SocketAddr, producers: i32, time: Duration) -> Result<(u64, u64, Duration)> {
    let partitions = producers.min(16);
    let topic = format!("commits-{producers}");
    create(address, &topic, partitions)?;
    let batch = records(1, 100)?;
    let open = |number| Producer::open(address, &topic, number % partitions, Mode::Transactional, number);
    let mut open = (0..producers).map(open).collect::<Result<Vec<_>>>()?;
    let over = AtomicBool::new(false);
    let began = Instant::now();
    let counts = thread::scope(|scope| -> Result<Vec<(u64, u64)>> {
        let threads: Vec<_> = open
            .iter_mut()
            .map(|producer| {
                let (batch, over) = (&batch, &over);
                scope.spawn(move || -> Result<(u64, u64)> {
                    let mut commits = 0;
                    while !over.load(Ordering::Relaxed) {
                        producer.begin()?;
                        producer.one(batch, 1)?;
                        producer.commit()?;
                        commits += 1;
                    }
                    Ok((commits, producer.again))
                })
            })
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a producer doesn't panic")).collect()
    })?;
    let sum = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Ok((sum.0, sum.1, began.elapsed()))
}

/// One record, one answer, one after the other: the times, in order of length.
pub fn one_at_a_time(address: SocketAddr, size: usize, count: usize) -> Result<Vec<Duration>> {
    create(address, "single", 1)?;
    let batch = records(1, size)?;
    let mut producer = Producer::open(address, "single", 0, Mode::Plain, 0)?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        producer.one(&batch, 1)?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times)
}
