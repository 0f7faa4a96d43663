//! The crate `rdkafka` against the broker: records and offsets, an idempotent producer over two deaths of the broker, transactions,
//! fencing, and consume-transform-produce with the group's offsets in the transactions.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(30);

type Done = Result<(), String>;

fn told(error: KafkaError) -> String {
    error.to_string()
}

fn bootstrap() -> String {
    std::env::var("INTEROP_BOOTSTRAP").expect("interop/run.sh starts this")
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap()).set("reconnect.backoff.max.ms", "500");
    config.set_log_level(RDKafkaLogLevel::Critical);
    config
}

fn fresh(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    format!("{name}-{}", now.as_nanos())
}

fn topic(name: &str) -> Result<String, String> {
    let name = fresh(name);
    let admin: AdminClient<DefaultClientContext> = config().create().map_err(told)?;
    let new = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
    let made = admin.create_topics([&new], &AdminOptions::new().operation_timeout(Some(PATIENCE)));
    for made in wait(made).map_err(told)? {
        made.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    Ok(name)
}

/// A future's result, asked for again and again: there is no runtime here, and the library has threads of its own.
fn wait<F: std::future::Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Offsets and values as they are acknowledged, by partition.
#[derive(Clone, Default)]
struct Acknowledged(std::sync::Arc<std::sync::Mutex<(BTreeMap<i32, Vec<(i64, String)>>, Vec<String>)>>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        let mut all = self.0.lock().expect("no panic");
        match result {
            Ok(message) => {
                let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                all.0.entry(message.partition()).or_default().push((message.offset(), value));
            }
            Err((error, _)) => all.1.push(error.to_string()),
        }
    }
}

fn send<C: ProducerContext<DeliveryOpaque = ()>>(to: &BaseProducer<C>, topic: &str, partition: i32, value: &str) -> Done {
    loop {
        let record = BaseRecord::<(), str>::to(topic).partition(partition).payload(value);
        match to.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => drop(to.poll(Duration::from_millis(10))),
            Err((error, _)) => return Err(told(error)),
        }
    }
}

/// Everything in a topic, by partition, as this isolation sees it.
fn read(topic: &str, isolation: &str) -> Result<Vec<Vec<(i64, String)>>, String> {
    let consumer: BaseConsumer = config()
        .set("group.id", fresh("reader"))
        .set("isolation.level", isolation)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("check.crcs", "true")
        .create()
        .map_err(told)?;
    let mut from = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        from.add_partition_offset(topic, partition, Offset::Beginning).map_err(told)?;
    }
    consumer.assign(&from).map_err(told)?;
    let mut found = vec![vec![]; PARTITIONS as usize];
    let (mut ends, until) = (0, Instant::now() + PATIENCE);
    while ends < PARTITIONS {
        if Instant::now() > until {
            return Err(format!("no end of {topic}"));
        }
        match consumer.poll(Duration::from_millis(200)) {
            None => {}
            Some(Ok(message)) => found[message.partition() as usize].push((message.offset(), text(&message))),
            Some(Err(KafkaError::PartitionEOF(_))) => ends += 1,
            Some(Err(error)) => return Err(told(error)),
        }
    }
    Ok(found)
}

fn text(message: &BorrowedMessage<'_>) -> String {
    String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()
}

fn equal<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], what: &str) -> Done {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(f, e)| f != e).unwrap_or(found.len().min(expected.len()));
    let few = |all: &[T]| format!("{:?}", all.iter().skip(at).take(4).collect::<Vec<_>>());
    Err(format!("{what}: {} and {} part at {at}: {} and {}", found.len(), expected.len(), few(found), few(expected)))
}

fn values(records: &[(i64, String)]) -> Vec<String> {
    records.iter().map(|(_, value)| value.clone()).collect()
}

fn restart() {
    let command = std::env::var("INTEROP_BROKER").expect("interop/run.sh starts this");
    let mut words = command.split(' ');
    let done = Command::new(words.next().expect("a program")).args(words).arg("restart").output();
    assert!(done.is_ok_and(|done| done.status.success()), "the broker can be started again");
}

fn killed_broker() -> Done {
    let (topic, acknowledged, count) = (topic("killed")?, Acknowledged::default(), 3_000);
    let mut config = config();
    config.set("enable.idempotence", "true").set("batch.num.messages", "20").set("message.timeout.ms", "60000");
    let producer: BaseProducer<Acknowledged> = config.create_with_context(acknowledged.clone()).map_err(told)?;
    for n in 0..count {
        send(&producer, &topic, n % PARTITIONS, &n.to_string())?;
        producer.poll(Duration::ZERO);
        if n == count / 3 || n == 2 * count / 3 {
            // While requests are on their way.
            std::thread::spawn(restart);
        }
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    producer.flush(Duration::from_secs(60)).map_err(told)?;
    let (reports, errors) = acknowledged.0.lock().expect("no panic").clone();
    equal(&errors, &[], "errors of deliveries")?;
    for (partition, found) in read(&topic, "read_committed")?.iter().enumerate() {
        let expected: Vec<String> = (partition as i32..count).step_by(PARTITIONS as usize).map(|n| n.to_string()).collect();
        equal(&values(found), &expected, &format!("partition {partition}"))?;
        let mut reported = reports.get(&(partition as i32)).cloned().unwrap_or_default();
        reported.sort();
        equal(&reported, found, "acknowledged offsets")?;
    }
    Ok(())
}

fn transactional(id: &str) -> Result<BaseProducer, String> {
    let producer: BaseProducer = config().set("transactional.id", id).set("linger.ms", "0").create().map_err(told)?;
    producer.init_transactions(PATIENCE).map_err(told)?;
    Ok(producer)
}

fn transactions() -> Done {
    let topic = topic("transactions")?;
    let (mut committed, mut all) = (vec![vec![]; 3], vec![vec![]; 3]);
    let producer = transactional(&fresh("id"))?;
    for n in 0..40 {
        producer.begin_transaction().map_err(told)?;
        for i in 0..6 {
            let value = format!("{n}/{i}");
            send(&producer, &topic, i % PARTITIONS, &value)?;
            all[(i % PARTITIONS) as usize].push(value.clone());
            if n % 3 != 1 {
                committed[(i % PARTITIONS) as usize].push(value);
            }
        }
        if n % 3 == 1 {
            producer.flush(PATIENCE).map_err(told)?;
            producer.abort_transaction(PATIENCE).map_err(told)?;
        } else {
            producer.commit_transaction(PATIENCE).map_err(told)?;
        }
    }
    for (isolation, expected) in [("read_committed", &committed), ("read_uncommitted", &all)] {
        for (found, expected) in read(&topic, isolation)?.iter().zip(expected) {
            equal(&values(found), expected, isolation)?;
        }
    }
    Ok(())
}

fn zombie() -> Done {
    let (topic, id) = (topic("zombie")?, fresh("id"));
    let first = transactional(&id)?;
    first.begin_transaction().map_err(told)?;
    send(&first, &topic, 0, "of the zombie")?;
    first.flush(PATIENCE).map_err(told)?;
    let second = transactional(&id)?;
    second.begin_transaction().map_err(told)?;
    send(&second, &topic, 0, "of the second")?;
    second.commit_transaction(PATIENCE).map_err(told)?;
    match first.commit_transaction(PATIENCE) {
        Err(KafkaError::Transaction(error)) if error.is_fatal() => {}
        other => return Err(format!("the zombie's commit: {other:?}")),
    }
    equal(&values(&read(&topic, "read_committed")?[0]), &["of the second".to_string()], "committed")
}

/// Takes what a group has before it, in transactions that hold its offsets; the worker is replaced in the middle of one, twice.
fn exactly_once() -> Done {
    let (source, sink, group, id, count) = (topic("source")?, topic("sink")?, fresh("group"), fresh("id"), 600);
    let producer: BaseProducer = config().create().map_err(told)?;
    for n in 0..count {
        send(&producer, &source, n % PARTITIONS, &n.to_string())?;
    }
    producer.flush(PATIENCE).map_err(told)?;
    // What a worker that crashed would leave: nothing is tidied up.
    let mut left = vec![];
    for transactions in [4, 5, i32::MAX] {
        let consumer: BaseConsumer = config()
            .set("group.id", &group)
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "300")
            .create()
            .map_err(told)?;
        consumer.subscribe(&[&source]).map_err(told)?;
        let out = transactional(&id)?;
        let (mut done, mut ended, until) = (0, std::collections::BTreeSet::new(), Instant::now() + PATIENCE);
        while done < transactions && ended.len() < PARTITIONS as usize {
            if Instant::now() > until {
                return Err(format!("the worker doesn't come to an end: {done} transactions, {ended:?} ended"));
            }
            let (mut batch, mut positions) = (vec![], TopicPartitionList::new());
            while batch.len() < 30 && ended.len() < PARTITIONS as usize {
                match consumer.poll(Duration::from_millis(100)) {
                    None => break,
                    Some(Ok(message)) => {
                        ended.remove(&message.partition());
                        batch.push((message.partition(), message.offset(), text(&message)));
                    }
                    Some(Err(KafkaError::PartitionEOF(partition))) => {
                        ended.insert(partition);
                    }
                    Some(Err(error)) => return Err(told(error)),
                }
            }
            if batch.is_empty() {
                continue;
            }
            out.begin_transaction().map_err(told)?;
            let mut next = BTreeMap::new();
            for (partition, offset, value) in &batch {
                send(&out, &sink, *partition, &format!("out {value}"))?;
                next.insert(*partition, offset + 1);
            }
            for (partition, offset) in next {
                positions.add_partition_offset(&source, partition, Offset::Offset(offset)).map_err(told)?;
            }
            let member = consumer.group_metadata().ok_or("no member")?;
            out.send_offsets_to_transaction(&positions, &member, PATIENCE).map_err(told)?;
            done += 1;
            if done == transactions {
                out.flush(PATIENCE).map_err(told)?;
                break;
            }
            out.commit_transaction(PATIENCE).map_err(told)?;
        }
        drop(consumer);
        left.push(out);
    }
    for (partition, found) in read(&sink, "read_committed")?.iter().enumerate() {
        let expected: Vec<String> =
            (partition as i32..count).step_by(PARTITIONS as usize).map(|n| format!("out {n}")).collect();
        equal(&values(found), &expected, &format!("output {partition}"))?;
    }
    std::mem::forget(left);
    Ok(())
}

fn main() {
    let checks: [(&str, fn() -> Done); 4] = [
        ("an idempotent producer over two kill -9 of the broker: nothing lost, nothing twice, in order", killed_broker),
        ("transactions: committed ones are seen, aborted ones aren't, under both isolation levels", transactions),
        ("a second producer under the same id fences the first and aborts what it left open", zombie),
        ("consume, transform, produce with offsets in the transaction, the worker replaced twice: each output once", exactly_once),
    ];
    let only = std::env::var("INTEROP_ONLY").unwrap_or_default();
    let mut failed = false;
    let skip = std::env::var("INTEROP_SKIP").unwrap_or_default();
    for (what, check) in checks.iter().filter(|(what, _)| what.contains(&only)) {
        if skip.split('|').any(|words| !words.is_empty() && what.contains(words)) {
            println!("    skipped {what}");
            continue;
        }
        let began = Instant::now();
        match check() {
            Ok(()) => println!("    ok      {what} ({:.1} s)", began.elapsed().as_secs_f64()),
            Err(why) => {
                failed = true;
                println!("    FAILED  {what}\n{why}");
            }
        }
    }
    std::process::exit(i32::from(failed));
}
