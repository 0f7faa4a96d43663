//! Jobs that come in where it is hidden what is said and asked who says it: they do there what they do elsewhere, every connection
//! proves itself, and what keeps one out is named.

mod common;
#[path = "common/tls.rs"]
#[allow(dead_code, reason = "clients of its own aren't needed here")]
mod tls;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::Client;
use cutwater_broker::{Broker, BrokerLimits, BrokerOptions, CertificateName, Listen, MetricsOptions, Security, Users};
use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::remote::{EntryError, RemoteError, RemoteLog};
use cutwater_partition_log::{GroupProgress, Log, LogOptions, Offset, OwnerId, TopicPartition, TxnName};
use cutwater_platform::{NetError, Platform};
use cutwater_secure::BrokerPlace;
use kafka_protocol::messages::{CreateAclsRequest, create_acls_request};
use kafka_protocol::protocol::StrBytes;
use tls::{Authority, write};

const PASSWORD: &str = "correct horse";

/// A broker with a listener of each kind, and a user alice.
struct Secured {
    log: Log,
    broker: Broker,
    dir: tempfile::TempDir,
}

const KINDS: [&str; 4] = ["plain", "tls", "sasl", "sasl-tls"];

fn secured(client_ca: bool) -> (Secured, Authority) {
    secured_with(client_ca, false, BrokerLimits::default())
}

fn secured_with(client_ca: bool, authorize: bool, limits: BrokerLimits) -> (Secured, Authority) {
    let dir = tempfile::tempdir().expect("a directory");
    let platform = Platform::real();
    let authority = Authority::new(dir.path());
    let ca = authority.file();
    let log = Log::open(&platform, &dir.path().join("log"), LogOptions::default()).expect("a fresh log");
    Users::open(&platform, &dir.path().join("log"))
        .expect("a book")
        .set_password("alice", PASSWORD.as_bytes())
        .expect("kept");
    let tls = Some(authority.server(client_ca.then_some(ca)));
    write(&dir.path().join("password"), &format!("{PASSWORD}\n"));
    let super_users = vec!["ANONYMOUS".to_string()];
    let security = Security { tls, data: Some(dir.path().join("log")), authorize, super_users, ..Security::default() };
    let listen: Vec<Listen> =
        KINDS.iter().map(|kind| format!("{kind}://127.0.0.1:0").parse().expect("a listener")).collect();
    let options = BrokerOptions { security, limits, ..BrokerOptions::default() };
    let broker = Broker::serve(&platform, log.clone(), &listen, options).expect("free ports");
    (Secured { log, broker, dir }, authority)
}

impl Secured {
    /// A place: `tls` as `sasl-tls`, say, with what stands behind the address; `DIR` is the directory.
    fn place(&self, speaks: &str, as_who: &str, listener: &str, more: &str) -> BrokerPlace {
        let at = KINDS.iter().position(|kind| *kind == listener).expect("a kind");
        let dir = self.dir.path().display().to_string();
        let more = more.replace("DIR", &dir);
        let text = format!("{speaks}://{as_who}{}{more}", self.broker.addresses()[at]);
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn connect(&self, place: &BrokerPlace) -> Result<RemoteLog, RemoteError> {
        let platform = Platform::real();
        let options = place.options(&platform, "test").expect("a place that was checked");
        RemoteLog::connect(&platform, options, Duration::from_millis(500))
    }

    /// What the metrics have counted, by listener's scheme, mechanism and cause, once there are so many kinds.
    fn failures(&self, kinds: usize) -> BTreeMap<[String; 3], u64> {
        let metrics = self.broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
        let metrics = metrics.expect("a free port");
        for _ in 0..500 {
            let mut stream = TcpStream::connect(metrics.address()).expect("it listens");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
            let mut page = String::new();
            stream.read_to_string(&mut page).expect("it answers");
            let samples = page.lines().filter_map(|line| line.strip_prefix("cutwater_failed_authentications_total{"));
            let read = |sample: &str| {
                let (labels, times) = sample.split_once("} ")?;
                let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
                let [listener, mechanism, cause] = values[..] else { return None };
                let (scheme, address) = listener.split_once("://")?;
                let at = KINDS.iter().position(|kind| *kind == scheme)?;
                assert_eq!(address, self.broker.addresses()[at].to_string());
                Some(([scheme, mechanism, cause].map(String::from), times.parse().ok()?))
            };
            let counted: BTreeMap<_, _> =
                samples.map(|sample| read(sample).expect("three labels and a number")).collect();
            if counted.len() >= kinds {
                return counted;
            }
            Platform::real().clock.sleep(Duration::from_millis(10));
        }
        panic!("{kinds} kinds of failures aren't counted");
    }

    fn entry_error(&self, place: &BrokerPlace) -> EntryError {
        let error = self.connect(place).expect_err("not let in");
        let said = format!("{error} {error:?} {place} {place:?}");
        assert!(!said.contains(PASSWORD) && !said.contains("wrong horse"), "{said}");
        assert!(!error.may_pass());
        match error {
            RemoteError::Entry { error, .. } => error,
            other => panic!("{place}: {other}"),
        }
    }
}

const TRUST: &str = "?ca=DIR/ca.pem";
const ALICE: &str = "?ca=DIR/ca.pem&password-file=DIR/password";

fn write_and_read(log: &RemoteLog, topic: &str, owner: OwnerId) {
    let topic = log.create_topic_if_absent(topic, 1).expect("made");
    let job = log.claim(&owner, 1).expect("claimed");
    // Large enough that many TLS records make a frame.
    let value = vec![b'x'; 300_000];
    let mut ids = vec![];
    for checkpoint in 1..=2 {
        let name = TxnName { checkpoint, sink: "out".to_string(), writer: 0 };
        let mut txn = job.begin(name).expect("begun");
        let mut batch = BatchBuilder::new(Compression::None);
        batch.push(1, None, Some(&value), &[]).expect("it fits");
        txn.append(topic.id, 0, &mut batch).expect("appended");
        ids.push(txn.prepare().expect("prepared").id);
    }
    assert_eq!(job.commit(&ids).expect("committed").committed.len(), 2);
    let mut reader = log.reader(&topic, 0, Offset(0), std::sync::Arc::new(|| {}));
    let mut seen = 0;
    for _ in 0..4_000 {
        reader
            .poll()
            .expect("readable")
            .for_each(|record| seen += usize::from(record.value == Some(&value[..])))
            .expect("batches");
        if seen == 2 {
            return;
        }
        Platform::real().clock.sleep(Duration::from_millis(5));
    }
    panic!("{seen} of 2 records came");
}

#[test]
fn a_job_does_over_tls_and_as_a_user_what_it_does_elsewhere() {
    let (secured, _) = secured(false);
    for (number, place) in [
        secured.place("plain", "", "plain", ""),
        secured.place("tls", "", "tls", TRUST),
        secured.place("tls", "", "tls", "?ca=DIR/ca.pem&name=localhost"),
        secured.place("sasl", "alice@", "sasl", "?password-file=DIR/password"),
        secured.place("tls", "alice@", "sasl-tls", ALICE),
        secured.place(
            "sasl-tls",
            "alice@",
            "sasl-tls",
            "?ca=DIR/ca.pem&password-file=DIR/password&mechanism=SCRAM-SHA-256",
        ),
    ]
    .iter()
    .enumerate()
    {
        let log = secured.connect(place).unwrap_or_else(|e| panic!("{place}: {e}"));
        write_and_read(&log, &format!("topic-{number}"), OwnerId(number as u128 + 1));
    }
    assert_eq!(secured.broker.failed_authentications(), 0);
    secured.broker.stop();
    secured.log.close().expect("a clean log");
}

#[test]
fn what_keeps_a_job_out_is_named_and_what_to_do_about_it() {
    let (secured, _) = secured(false);
    let strangers = tempfile::tempdir().expect("a directory");
    let other_ca = Authority::new(strangers.path()).file().display().to_string();
    write(&secured.dir.path().join("wrong"), "wrong horse");
    write(&secured.dir.path().join("no.pem"), "nothing");
    let untrusted = |error: &EntryError| matches!(error, EntryError::Net(NetError::Untrusted { .. }));
    let unprepared = |error: &EntryError| matches!(error, EntryError::Net(NetError::Unprepared { .. }));
    let wrong = |error: &EntryError| matches!(error, EntryError::WrongPassword { user } if user != "wrong horse");
    type Judge<'a> = &'a dyn Fn(&EntryError) -> bool;
    let cases: [(BrokerPlace, Judge<'_>, &str); 12] = [
        (secured.place("tls", "", "tls", &format!("?ca={other_ca}")), &untrusted, "--broker-ca"),
        (secured.place("tls", "", "tls", "?ca=DIR/ca.pem&name=other.example.org"), &untrusted, "other.example.org"),
        (secured.place("tls", "", "tls", "?ca=DIR/absent.pem"), &unprepared, "absent.pem"),
        (secured.place("tls", "", "tls", "?ca=DIR/no.pem"), &unprepared, "BEGIN CERTIFICATE"),
        (secured.place("tls", "", "tls", "?ca=DIR/ca.pem&cert=DIR/server.pem&key=DIR/ca.pem"), &unprepared, "ca.pem"),
        (secured.place("plain", "", "tls", ""), &|e| *e == EntryError::SpeaksTls, "tls://HOST:PORT"),
        (secured.place("tls", "", "plain", TRUST), &|e| *e == EntryError::SpeaksPlain, "plain://HOST:PORT"),
        (secured.place("tls", "", "sasl-tls", TRUST), &|e| *e == EntryError::UserWanted, "--broker-user"),
        (
            secured.place("tls", "alice@", "tls", ALICE),
            &|e| *e == EntryError::NotAsked { user: "alice".to_string() },
            "sasl-tls://",
        ),
        (secured.place("tls", "alice@", "sasl-tls", "?ca=DIR/ca.pem&password-file=DIR/wrong"), &wrong, "user add"),
        (secured.place("tls", "mallory@", "sasl-tls", ALICE), &wrong, "mallory"),
        (
            secured.place("tls", "alice@", "sasl-tls", "?ca=DIR/ca.pem&password-file=DIR/absent"),
            &|e| matches!(e, EntryError::Secret { .. }),
            "absent",
        ),
    ];
    for (place, is_right, todo) in &cases {
        let error = secured.entry_error(place);
        assert!(is_right(&error), "{place}: {error:?}");
        assert!(error.to_string().contains(todo), "{place}: {error}");
    }
    assert_eq!(secured.broker.failed_authentications(), 2);
    let of = |listener: &str, mechanism: &str, cause: &str| [listener, mechanism, cause].map(String::from);
    let expected = [
        (of("sasl-tls", "SCRAM-SHA-512", "password"), 2),
        (of("tls", "TLS", "handshake"), 2),
        (of("tls", "TLS", "not-tls"), 1),
    ];
    assert_eq!(secured.failures(3), BTreeMap::from(expected));
}

#[test]
fn who_does_not_prove_itself_in_time_is_counted() {
    let limits = BrokerLimits { authentication: Duration::from_millis(100), ..BrokerLimits::default() };
    let (secured, _) = secured_with(false, false, limits);
    let mut silent = Client::connect(secured.broker.addresses()[2]);
    assert!(silent.frame().is_none(), "the connection is closed");
    let late = ["sasl", "SASL", "late"].map(String::from);
    assert_eq!(secured.failures(1), BTreeMap::from([(late, 1)]));
}

#[test]
fn a_broker_that_wants_certificates_lets_in_who_shows_one_of_its_authority() {
    let (secured, authority) = secured(true);
    let write = |name: &str, text: &str| write(&secured.dir.path().join(name), text);
    let (certificate, key) = authority.issue("a job");
    write("job.pem", &certificate);
    write("job.key", &key);
    let strangers = tempfile::tempdir().expect("a directory");
    let (certificate, key) = Authority::new(strangers.path()).issue("a job");
    write("stranger.pem", &certificate);
    write("stranger.key", &key);
    let refused = |error: EntryError| match error {
        EntryError::Net(NetError::Refused { reason }) => reason,
        other => panic!("{other}"),
    };
    let none = refused(secured.entry_error(&secured.place("tls", "", "tls", TRUST)));
    assert!(none.contains("--broker-cert"), "{none}");
    let more = "?ca=DIR/ca.pem&cert=DIR/stranger.pem&key=DIR/stranger.key";
    let strange = refused(secured.entry_error(&secured.place("tls", "", "tls", more)));
    assert!(strange.contains("certificate"), "{strange}");
    assert_eq!(secured.failures(1), BTreeMap::from([(["tls", "TLS", "certificate"].map(String::from), 2)]));
    let more = "?ca=DIR/ca.pem&cert=DIR/job.pem&key=DIR/job.key";
    let log = secured.connect(&secured.place("tls", "", "tls", more)).expect("let in");
    write_and_read(&log, "out", OwnerId(1));
}

#[test]
fn a_certificate_names_a_user_if_that_is_what_certificates_are_for() {
    for (by, user) in [
        (None, "ANONYMOUS"),
        (Some(CertificateName::Common), "a job"),
        (Some(CertificateName::Distinguished), "CN=a job"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let (platform, authority) = (Platform::real(), Authority::new(dir.path()));
        let tls = Some(authority.server(Some(authority.file())));
        let (certificate, key) = authority.issue("a job");
        write(&dir.path().join("job.pem"), &certificate);
        write(&dir.path().join("job.key"), &key);
        let data = dir.path().join("log");
        let log = Log::open(&platform, &data, LogOptions::default()).expect("a fresh log");
        let security =
            Security { tls, data: Some(data), authorize: true, certificate_names: by, ..Security::default() };
        let options = BrokerOptions { security, ..BrokerOptions::default() };
        let listen: Listen = "tls://127.0.0.1:0".parse().expect("a listener");
        let broker = Broker::serve(&platform, log.clone(), &[listen], options).expect("a free port");
        let (address, dir) = (broker.address(), dir.path().display());
        let place = format!("tls://{address}?ca={dir}/ca.pem&cert={dir}/job.pem&key={dir}/job.key");
        let options = place.parse::<BrokerPlace>().and_then(|place| place.options(&platform, "test")).expect("a place");
        let remote = RemoteLog::connect(&platform, options, Duration::from_secs(5)).expect("let in");
        let error = remote.topic("out").expect_err("nothing is allowed").to_string();
        assert!(error.contains(&format!("User:{user} may not")), "{error}");
        broker.stop();
    }
    let listen: Listen = "tls://127.0.0.1:0".parse().expect("a listener");
    let unvouched = Security { certificate_names: Some(CertificateName::Common), ..Security::default() };
    assert!(listen.check(&unvouched).is_err_and(|error| error.to_string().contains("--tls-client-ca")));
}

#[test]
fn every_connection_proves_itself_anew_with_the_password_that_holds_now() {
    let (secured, authority) = secured(false);
    let place = secured.place("tls", "alice@", "sasl-tls", ALICE);
    let log = secured.connect(&place).expect("let in");
    let address = secured.broker.addresses()[3];
    let platform = Platform::real();
    let again = |users: &dyn Fn(&Users)| {
        users(&Users::open(&platform, &secured.dir.path().join("log")).expect("a book"));
        let security = Security {
            tls: Some(cutwater_broker::TlsFiles {
                certificate: secured.dir.path().join("server.pem"),
                key: secured.dir.path().join("server.key"),
                client_ca: None,
            }),
            data: Some(secured.dir.path().join("log")),
            ..Security::default()
        };
        let listen: Listen = format!("sasl-tls://{address}").parse().expect("a listener");
        let options = BrokerOptions { security, ..BrokerOptions::default() };
        Broker::serve(&platform, secured.log.clone(), &[listen], options).expect("its port again")
    };
    drop(authority);
    secured.broker.stop();
    // It comes back, and the job's connections are made anew.
    let second = again(&|_| {});
    write_and_read(&log, "out", OwnerId(1));
    second.stop();
    // The password is another, there and in the job's file.
    let third = again(&|users| users.set_password("alice", b"battery staple").expect("kept"));
    platform.files.remove_file(&secured.dir.path().join("password")).expect("removed");
    write(&secured.dir.path().join("password"), "battery staple");
    assert!(log.topic("out").expect("let in").is_some());
    third.stop();
    let fourth = again(&|users| assert!(users.remove("alice").expect("removed")));
    let error = log.topic("out").expect_err("nobody knows alice");
    let entry = RemoteError::Entry {
        address: address.to_string(),
        error: EntryError::WrongPassword { user: "alice".to_string() },
    };
    assert_eq!(error, entry);
    fourth.stop();
}

const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;
const TRANSACTIONAL_ID: i8 = 5;

impl Secured {
    /// Has somebody on this machine, who may do everything here, allow alice something.
    fn allow(&self, kind: i8, name: &str, prefixed: bool, operation: i8) {
        let rule = create_acls_request::AclCreation::default()
            .with_resource_type(kind)
            .with_resource_name(StrBytes::from_string(name.to_string()))
            .with_resource_pattern_type(if prefixed { 4 } else { 3 })
            .with_principal(StrBytes::from_static_str("User:alice"))
            .with_host(StrBytes::from_static_str("*"))
            .with_operation(operation)
            .with_permission_type(3);
        let mut client = Client::connect(self.broker.addresses()[0]);
        let made = client.ask(3, CreateAclsRequest::default().with_creations(vec![rule]));
        assert_eq!((made.results.len(), made.results[0].error_code), (1, 0));
    }
}

/// What a job does, from its first request to the first record that it reads.
fn life(log: &RemoteLog, attempt: u64) -> Result<(), RemoteError> {
    let topic = log.create_topic_if_absent("out", 1)?;
    let job = log.claim(&OwnerId(7), attempt)?;
    job.transactions()?;
    let mut txn = job.begin(TxnName { checkpoint: attempt, sink: "out".to_string(), writer: 0 })?;
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(1, None, Some(b"x"), &[]).expect("it fits");
    txn.append(topic.id, 0, &mut batch)?;
    let id = txn.prepare()?.id;
    job.commit(&[id])?;
    let mut reader = log.reader(&topic, 0, Offset(0), std::sync::Arc::new(|| {}));
    loop {
        let mut seen = 0;
        reader.poll()?.for_each(|_| seen += 1).expect("batches");
        if seen > 0 {
            return Ok(());
        }
        Platform::real().clock.sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_job_needs_the_rights_to_what_it_writes_and_reads_and_each_that_it_lacks_is_named() {
    const READ: i8 = 3;
    const WRITE: i8 = 4;
    const CREATE: i8 = 5;
    const DESCRIBE: i8 = 8;
    let (secured, _) = secured_with(false, true, BrokerLimits::default());
    let secret = secured.log.create_topic("secret", 1).expect("made");
    let log = secured.connect(&secured.place("tls", "alice@", "sasl-tls", ALICE)).expect("let in: she is alice");
    let id = "cutwater-job-00000000000000000000000000000007";
    let steps = [
        ("needs the right Describe on the topic \"out\"".to_string(), (TOPIC, "out", false, DESCRIBE)),
        ("needs the right Create on the topic \"out\"".to_string(), (TOPIC, "out", false, CREATE)),
        (
            format!("needs the right Write on the transactional id {id}"),
            (TRANSACTIONAL_ID, "cutwater-job-", true, WRITE),
        ),
        ("needs the right Write on the topic \"out\"".to_string(), (TOPIC, "out", false, WRITE)),
        ("needs the right Read on the topic".to_string(), (TOPIC, "out", false, READ)),
    ];
    for (attempt, (lacking, (kind, name, prefixed, operation))) in (1..).zip(&steps) {
        let error = life(&log, attempt).expect_err(lacking);
        assert!(error.to_string().contains(lacking), "{error}");
        assert!(!error.may_pass(), "{error}");
        secured.allow(*kind, name, *prefixed, *operation);
    }
    life(&log, 10).expect("now it may");
    // What is there and what isn't are refused alike.
    for name in ["secret", "nothing"] {
        let error = log.topic(name).expect_err("not hers").to_string();
        assert!(error.contains(&format!("needs the right Describe on the topic {name:?}")), "{error}");
    }
    let job = log.claim(&OwnerId(7), 11).expect("claimed");
    // How far it has come is shown as a group that it may move.
    let out = TopicPartition::new(secured.log.topic("out").expect("made").id, 0);
    let progress = GroupProgress { group: "watched".to_string(), offsets: vec![(out, Offset(1)).into()] };
    let shown = || secured.log.group_offsets("watched").expect("readable").offsets.get(&out).map(|o| o.offset);
    let error = job.commit_with_progress(&[], std::slice::from_ref(&progress)).expect_err("not hers").to_string();
    assert!(error.contains("needs the right Read on the group \"watched\""), "{error}");
    assert_eq!(shown(), None);
    secured.allow(GROUP, "watched", false, READ);
    job.commit_with_progress(&[], std::slice::from_ref(&progress)).expect("now it may");
    assert_eq!(shown(), Some(Offset(1)));
    let producer = job.producer().expect("a producer");
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(1, None, Some(b"x"), &[]).expect("it fits");
    let refused =
        producer.append(secret, 0, &mut batch).and_then(|()| producer.wait()).expect_err("not hers").to_string();
    assert!(refused.contains("Write on the topic \"secret\""), "{refused}");
    assert_eq!(secured.log.offsets(secret, 0).expect("there").log_end, Offset(0));
}

#[test]
fn cluster_action_stands_for_all_that_jobs_ask_but_reading() {
    let (secured, _) = secured_with(false, true, BrokerLimits::default());
    secured.allow(CLUSTER, "kafka-cluster", false, 9);
    let log = secured.connect(&secured.place("tls", "alice@", "sasl-tls", ALICE)).expect("let in");
    let error = life(&log, 1).expect_err("reading is asked for itself").to_string();
    assert!(error.contains("needs the right Read on the topic"), "{error}");
    secured.allow(TOPIC, "out", false, 3);
    life(&log, 2).expect("now it may");
}
