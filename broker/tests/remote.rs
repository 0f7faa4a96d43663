//! The log as a job in another process uses it: over connections that are cut wherever they can be, and brokers that come and go.

#![expect(clippy::disallowed_methods, reason = "what comes over a network takes real time")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Served, serve, serve_with};
use cutwater_broker::{Broker, BrokerLimits, BrokerOptions, Listen, Security};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::remote::{
    RemoteError, RemoteLog, RemoteOptions, RemoteOwner, RemoteReader, RemoteTopic, Why,
};
use cutwater_partition_log::{Log, LogOptions, Offset, OwnerId, TxnId, TxnName, TxnPhase};
use cutwater_platform::{Connection, Net, NetError, OsNet, Platform};

const OWNER: OwnerId = OwnerId(0xBEEF);

fn options(address: SocketAddr) -> RemoteOptions {
    let patience = Duration::from_secs(5);
    RemoteOptions { patience, answer_patience: patience, ..RemoteOptions::new(address.to_string(), "test") }
}

fn connect(served: &Served) -> RemoteLog {
    RemoteLog::connect(&Platform::real(), options(served.broker.address()), Duration::from_secs(5))
        .expect("it is there")
}

fn batch(values: &[&str]) -> BatchBuilder {
    let mut batch = BatchBuilder::new(Compression::Lz4);
    for value in values {
        batch.push(1_000, None, Some(value.as_bytes()), &[]).expect("it fits");
    }
    batch
}

fn name(checkpoint: u64) -> TxnName {
    TxnName { checkpoint, sink: "out".to_string(), writer: 0 }
}

/// Writes and prepares the interval of a checkpoint, a batch for each value.
fn prepared(owner: &RemoteOwner, topic: &RemoteTopic, checkpoint: u64, values: &[&str]) -> Result<TxnId, RemoteError> {
    let mut txn = owner.begin(name(checkpoint))?;
    for value in values {
        txn.append(topic.id, 0, &mut batch(&[value]))?;
    }
    Ok(txn.prepare()?.id)
}

/// Reads until there are so many values.
fn read(reader: &mut RemoteReader, count: usize) -> Vec<String> {
    let mut values = vec![];
    for _ in 0..2_000 {
        let fetched = reader.poll().expect("it can be read");
        fetched.for_each(|record| values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap())).unwrap();
        if values.len() >= count {
            return values;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{values:?} are not {count}");
}

#[test]
fn a_job_writes_and_reads_over_connections_what_it_would_write_and_read_here() {
    let served = serve();
    let log = connect(&served);
    assert_eq!(log.topic("out"), Ok(None));
    let topic = log.create_topic_if_absent("out", 1).unwrap();
    let news = Arc::new(AtomicUsize::new(0));
    let told = news.clone();
    let told = Arc::new(move || {
        told.fetch_add(1, Ordering::SeqCst);
    });
    let mut reader = log.reader(&topic, 0, Offset(0), told);
    let owner = log.claim(&OWNER, 1).unwrap();
    let first = prepared(&owner, &topic, 1, &["a", "b"]).unwrap();
    let aborted = prepared(&owner, &topic, 2, &["never"]).unwrap();
    let third = prepared(&owner, &topic, 3, &["c"]).unwrap();
    assert_eq!(owner.transactions().unwrap().len(), 3);
    assert!(owner.transactions().unwrap().iter().all(|(_, phase)| *phase == TxnPhase::Prepared));
    owner.abort(std::slice::from_ref(&aborted)).unwrap();
    let both = [first.clone(), third.clone()];
    assert_eq!(owner.commit(&both).unwrap().committed.len(), 2);
    assert_eq!(owner.commit(&both).unwrap().already.len(), 2);
    assert_eq!(read(&mut reader, 3), ["a", "b", "c"]);
    assert!(news.load(Ordering::SeqCst) > 0);
    assert_eq!(reader.position(), Offset(4 + 3), "four records, three markers");
    assert_eq!(owner.outcomes().unwrap().len(), 3);
    owner.forget(&[first, aborted, third]).unwrap();
    assert_eq!(owner.outcomes().unwrap(), []);
    // Somewhere in the middle.
    let mut late = log.reader(&topic, 0, Offset(3), Arc::new(|| {}));
    assert_eq!(read(&mut late, 1), ["c"]);
    // Outside of transactions: fenced with its attempt, or nobody's.
    let producers = [owner.producer().unwrap(), log.producer().unwrap()];
    for producer in &producers {
        for n in 0..40 {
            producer.append(topic.id, 0, &mut batch(&[&n.to_string()])).unwrap();
        }
        producer.wait().unwrap();
    }
    assert_eq!(read(&mut late, 80).len(), 80);
    let newer = log.claim(&OWNER, 2).unwrap();
    assert!(log.claim(&OWNER, 2).unwrap_err().is_fenced(), "attempts are used once");
    producers[1].append(topic.id, 0, &mut batch(&["nobody fences it"])).unwrap();
    producers[1].wait().unwrap();
    let refused = producers[0].append(topic.id, 0, &mut batch(&["late"])).and_then(|()| producers[0].wait());
    assert!(refused.unwrap_err().is_fenced());
    assert!(owner.begin(name(9)).unwrap_err().is_fenced());
    assert_eq!(
        newer.commit(&[TxnId { attempt: 9, ..aborted_id() }]).unwrap_err().refusal().unwrap().why,
        Why::UnknownTransaction
    );
}

fn aborted_id() -> TxnId {
    TxnId { owner: OWNER, attempt: 1, checkpoint: 2, sink: "out".to_string(), writer: 0 }
}

/// A network whose connections are cut at one call: before what is sent has left, or when its answer is due.
#[derive(Debug)]
struct Cutting {
    calls: Arc<AtomicUsize>,
    cut_at: usize,
}

#[derive(Debug)]
struct CutConnection {
    inner: Option<Box<dyn Connection>>,
    calls: Arc<AtomicUsize>,
    cut_at: usize,
}

impl Net for Cutting {
    fn connect(&self, address: &str, patience: Duration) -> Result<Box<dyn Connection>, NetError> {
        let inner = Some(OsNet.connect(address, patience)?);
        Ok(Box::new(CutConnection { inner, calls: self.calls.clone(), cut_at: self.cut_at }))
    }
}

impl CutConnection {
    fn inner(&mut self) -> Result<&mut Box<dyn Connection>, NetError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) == self.cut_at {
            self.inner = None;
        }
        self.inner.as_mut().ok_or_else(|| NetError::Lost { reason: "cut".to_string() })
    }
}

impl Connection for CutConnection {
    fn send(&mut self, bytes: &[u8], patience: Duration) -> Result<(), NetError> {
        self.inner()?.send(bytes, patience)
    }

    fn receive(&mut self, buffer: &mut [u8], patience: Duration) -> Result<(), NetError> {
        self.inner()?.receive(buffer, patience)
    }

    fn receive_some(&mut self, buffer: &mut [u8], patience: Duration) -> Result<usize, NetError> {
        self.inner()?.receive_some(buffer, patience)
    }
}

/// Two intervals of a job, by as many attempts as it takes: the next one begins where the committed ones end.
fn lives(log: &RemoteLog, topic: &RemoteTopic) -> Result<u64, RemoteError> {
    let mut listed: Vec<Vec<TxnId>> = vec![];
    let mut committed = 0;
    for attempt in 1.. {
        let mut life = || -> Result<(), RemoteError> {
            let owner = log.claim(&OWNER, attempt)?;
            for ids in &listed {
                owner.commit(ids)?;
            }
            committed = listed.len();
            let live = owner.transactions()?;
            let others: Vec<TxnId> = live.into_iter().map(|(id, _)| id).collect();
            owner.abort(&others)?;
            for (number, values) in [["a", "b"], ["c", "d"]].iter().enumerate().skip(committed) {
                let checkpoint = 10 * attempt + number as u64;
                let id = prepared(&owner, topic, checkpoint, values)?;
                listed.push(vec![id.clone()]);
                owner.commit(&[id])?;
                committed += 1;
            }
            let ended: Vec<TxnId> = owner.outcomes()?.into_iter().map(|(id, _)| id).collect();
            owner.forget(&ended)
        };
        match life() {
            Ok(()) => return Ok(attempt),
            Err(error) => assert!(error.may_pass() && attempt < 4, "attempt {attempt}: {error}"),
        }
    }
    unreachable!("attempts go on")
}

#[test]
fn a_connection_that_is_cut_at_any_call_loses_nothing_and_doubles_nothing() {
    let (mut cut_at, mut restarts) = (0, 0);
    loop {
        let served = serve();
        let calls = Arc::new(AtomicUsize::new(0));
        let net = Arc::new(Cutting { calls: calls.clone(), cut_at });
        let platform = Platform { net, ..Platform::real() };
        let log = RemoteLog::connect(&platform, options(served.broker.address()), Duration::from_secs(5)).unwrap();
        let topic = log.create_topic_if_absent("out", 1).unwrap();
        let attempts = lives(&log, &topic).unwrap_or_else(|e| panic!("cut at call {cut_at}: {e}"));
        restarts += attempts - 1;
        let mut reader = connect(&served).reader(&topic, 0, Offset(0), Arc::new(|| {}));
        assert_eq!(read(&mut reader, 4), ["a", "b", "c", "d"], "cut at call {cut_at}");
        assert!(served.log.transactions().is_empty(), "cut at call {cut_at}: something is left undecided");
        if calls.load(Ordering::SeqCst) <= cut_at {
            break;
        }
        cut_at += 1;
    }
    assert!(cut_at > 40, "only {cut_at} calls were cut");
    assert!(restarts > 0, "what is sent once, or is half sent, ends its attempt");
}

#[test]
fn a_job_that_is_silent_for_longer_than_the_broker_waits_is_not_cut_off() {
    let limits = BrokerLimits { idle: Duration::from_millis(300), ..BrokerLimits::default() };
    let served = serve_with(BrokerOptions { limits, ..BrokerOptions::default() });
    let options = RemoteOptions { idle: Duration::from_millis(100), ..options(served.broker.address()) };
    let log = RemoteLog::connect(&Platform::real(), options, Duration::from_secs(5)).unwrap();
    let topic = log.create_topic_if_absent("out", 1).unwrap();
    let owner = log.claim(&OWNER, 1).unwrap();
    let producer = owner.producer().unwrap();
    let mut txn = owner.begin(name(1)).unwrap();
    for value in ["a", "b"] {
        producer.append(topic.id, 0, &mut batch(&[value])).unwrap();
        producer.wait().unwrap();
        txn.append(topic.id, 0, &mut batch(&[value])).unwrap();
        std::thread::sleep(Duration::from_millis(600));
    }
    let id = txn.prepare().unwrap().id;
    std::thread::sleep(Duration::from_millis(600));
    owner.commit(&[id]).unwrap();
    let mut reader = log.reader(&topic, 0, Offset(0), Arc::new(|| {}));
    assert_eq!(read(&mut reader, 4), ["a", "a", "b", "b"]);
}

#[test]
fn who_is_not_there_and_who_is_no_broker_of_ours_are_told_apart_by_name() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = RemoteLog::connect(&Platform::real(), options(nobody), Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, RemoteError::Away { .. }));
    let said = error.to_string();
    assert!(said.contains(&nobody.to_string()) && said.contains("cutwater broker --data"), "{said}");

    // A Kafka server without our API: Produce, Fetch, ApiVersions; and one that answers nonsense.
    let mut kafka = vec![0, 0, 0, 0, 0, 0, 4];
    kafka[..4].copy_from_slice(&1i32.to_be_bytes());
    for (key, to) in [(0i16, 11i16), (1, 17), (18, 4)] {
        for number in [key, 0, to] {
            kafka.extend_from_slice(&number.to_be_bytes());
        }
        kafka.push(0);
    }
    kafka.extend_from_slice(&[0, 0, 0, 0, 0]);
    for (answer, found) in
        [(kafka, "17237 is not among them"), (b"\0\0\0\x01HTTP/1.1 400".to_vec(), "is no Cutwater broker")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 16];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(&(answer.len() as i32).to_be_bytes()).unwrap();
            stream.write_all(&answer).unwrap();
        });
        let error = RemoteLog::connect(&Platform::real(), options(address), Duration::from_secs(2)).unwrap_err();
        assert!(matches!(error, RemoteError::Foreign { .. }) && error.to_string().contains(found), "{error}");
        assert!(!error.may_pass());
        server.join().unwrap();
    }
}

#[test]
fn a_job_that_may_not_use_the_log_is_told_so_at_once() {
    let (dir, platform) = (tempfile::tempdir().unwrap(), Platform::real());
    let data = dir.path().join("log");
    let log = Log::open(&platform, &data, LogOptions::default()).unwrap();
    let listen = |address: &str| [address.parse::<Listen>().unwrap()];
    for (address, authorize) in [("sasl://127.0.0.1:0", false), ("127.0.0.1:0", true), ("127.0.0.1:0", false)] {
        let security = Security { data: Some(data.clone()), authorize, ..Security::default() };
        let with = BrokerOptions { security, ..BrokerOptions::default() };
        let broker = Broker::serve(&platform, log.clone(), &listen(address), with).unwrap();
        let connected = RemoteLog::connect(&platform, options(broker.address()), Duration::from_secs(2));
        match (connected.and_then(|remote| remote.topic("out")), authorize) {
            (Ok(None), false) => assert!(!address.starts_with("sasl")),
            (Err(RemoteError::Refused(refusal)), true) => {
                assert_eq!(refusal.why, Why::NotAllowed);
                assert!(refusal.said.contains("User:ANONYMOUS") && refusal.said.contains("Describe"), "{refusal}");
            }
            (Err(error), false) => {
                assert!(address.starts_with("sasl") && error.to_string().contains("asks who connects"), "{error}")
            }
            other => panic!("{address}: {other:?}"),
        }
        broker.stop();
    }
}

#[test]
fn a_broker_that_goes_and_comes_back_is_waited_for_and_what_was_half_written_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let platform = Platform::real();
    let open = || Log::open(&platform, dir.path(), LogOptions::default()).unwrap();
    let start = |log: &Log, address: SocketAddr| {
        Broker::start(&platform, log.clone(), address, BrokerOptions::default()).unwrap()
    };
    let log = open();
    let broker = start(&log, "127.0.0.1:0".parse().unwrap());
    let address = broker.address();
    let remote = RemoteLog::connect(&platform, options(address), Duration::from_secs(5)).unwrap();
    let topic = remote.create_topic_if_absent("out", 1).unwrap();
    let mut reader = remote.reader(&topic, 0, Offset(0), Arc::new(|| {}));
    let owner = remote.claim(&OWNER, 1).unwrap();
    let first = prepared(&owner, &topic, 1, &["a"]).unwrap();
    let mut half = owner.begin(name(2)).unwrap();
    half.append(topic.id, 0, &mut batch(&["half"])).unwrap();
    broker.stop();
    // As a crash leaves it: no close.
    drop((broker, log));
    let back = Arc::new(Mutex::new(None));
    let slot = back.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(150));
            let log = open();
            *slot.lock().unwrap() = Some((start(&log, address), log));
        });
        // Asked while it is away.
        assert_eq!(owner.commit(std::slice::from_ref(&first)).unwrap().committed, std::slice::from_ref(&first));
    });
    // The system may take it, for a connection that is gone.
    let _ = half.append(topic.id, 0, &mut batch(&["rest"]));
    let refused = half.prepare().expect_err("the log has another transaction than was sent");
    assert!(refused.may_pass(), "{refused}");
    assert_eq!(read(&mut reader, 1), ["a"]);
    drop(reader);
    back.lock().unwrap().take().unwrap().0.stop();
    let mut reader = remote.reader(&topic, 0, Offset(0), Arc::new(|| {}));
    let since = std::time::Instant::now();
    let error = loop {
        match reader.poll() {
            Ok(_) if since.elapsed() > Duration::from_secs(20) => panic!("nobody says that the broker is away"),
            Ok(_) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RemoteError::Away { .. }), "{error}");
}
