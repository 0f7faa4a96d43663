//! The log behind a broker passes what the log here passes: the same rules, over connections.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_broker::{Broker, BrokerOptions};
use cutwater_conformance::{Conforms, Rule, sink, source};
use cutwater_engine::graph::Job;
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::remote::{RemoteLog, RemoteOptions};
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::Platform;
use cutwater_sources_sinks::codec::Json;
use cutwater_sources_sinks::log::LogHandle;

/// A broker over a log of its own.
struct Served {
    broker: Broker,
    log: Log,
    remote: RemoteLog,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let (dir, platform) = (tempfile::tempdir().unwrap(), Platform::real());
        let log = Log::open(&platform, &dir.path().join("log"), LogOptions::default()).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let broker = Broker::start(&platform, log.clone(), address, BrokerOptions::default()).unwrap();
        let options = RemoteOptions::new(broker.address().to_string(), "conformance");
        let remote = RemoteLog::connect(&platform, options, Duration::from_secs(5)).unwrap();
        Served { broker, log, remote, _dir: dir }
    }

    fn handle(&self) -> LogHandle {
        LogHandle::through(&Platform::real(), self.remote.clone())
    }

    /// The numbers in the topic `out`, as its own log shows them.
    fn out(&self) -> Vec<u64> {
        let Some(topic) = self.log.topic("out") else { return vec![] };
        let mut numbers = vec![];
        for partition in 0..topic.partitions {
            let consumer = self.log.consumer(topic.id, partition, Offset(0), Isolation::ReadCommitted);
            let mut consumer = consumer.unwrap();
            while consumer.position() < consumer.readable_end() {
                let fetched = consumer.poll(1 << 20).unwrap();
                let number = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).parse().unwrap();
                fetched.for_each(|record| numbers.push(number(record.value))).unwrap();
            }
        }
        numbers
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

fn tried(conforms: &Conforms, rules: &[Rule]) {
    assert!(rules.iter().all(|rule| conforms.tried.contains(rule)), "{conforms:?}");
}

#[test]
fn topics_behind_a_broker_are_read_as_those_here() {
    let served = Served::new();
    let (topic, producer) = (served.log.create_topic("in", 3).unwrap(), served.log.producer().unwrap());
    for n in 0..90u64 {
        let mut batch = BatchBuilder::new(Compression::Lz4);
        for value in [n, n + 1000] {
            batch.push(n as i64, None, Some(value.to_string().as_bytes()), &[]).unwrap();
        }
        producer.append(topic, (n % 3) as u32, &mut batch).unwrap().wait().unwrap();
    }
    let log = served.handle();
    let conforms = source(|_: &Job| log.read("in").until_latest()).run().unwrap_or_else(|e| panic!("{e}"));
    tried(
        &conforms,
        &[
            Rule::SplitsStable,
            Rule::ReadsAlike,
            Rule::Ends,
            Rule::PositionResumes,
            Rule::PositionIsPure,
            Rule::ExhaustedStays,
            Rule::SplitsMove,
            Rule::BadPositionRefused,
        ],
    );
}

#[test]
fn output_through_a_broker_shows_as_that_of_the_log_here() {
    // One broker for each job of the kit, which names each job's directory differently.
    let brokers: Arc<Mutex<HashMap<PathBuf, Arc<Served>>>> = Arc::default();
    let of = {
        let brokers = brokers.clone();
        move |job: &Job| {
            let dir = job.environment().dir.clone();
            brokers.lock().unwrap().entry(dir).or_insert_with(|| Arc::new(Served::new())).clone()
        }
    };
    let shown = of.clone();
    let conforms = sink(
        move |job| {
            // One handle for each life, as `job.log()` would give: its sinks form one commit group.
            let handle = job.environment().shared("behind a broker", |_| Ok(of(job).handle())).unwrap();
            handle.write::<u64>("out").value(Json)
        },
        |n| n,
        move |job: &Job| shown(job).out(),
    )
    // The simulated machine holds nothing of what stands behind the broker.
    .power_cuts_max(5)
    .run()
    .unwrap_or_else(|e| panic!("{e}"));
    tried(
        &conforms,
        &[
            Rule::GroupMatchesPromise,
            Rule::NothingBeforeCommit,
            Rule::CommitShows,
            Rule::CommitIdempotent,
            Rule::OrderKept,
            Rule::SealDivides,
            Rule::EmptyIsFine,
            Rule::CarriedOver,
            Rule::Atomic,
            Rule::PreparedSurvives,
            Rule::UnlistedAborted,
            Rule::LowerFenceRefused,
            Rule::OldAttemptRefused,
            Rule::OldOutputSurvives,
            Rule::UnknownHandleFatal,
            Rule::ForgetKeepsOutput,
            Rule::BarrierMeansDurable,
            Rule::FinishShows,
        ],
    );
}
