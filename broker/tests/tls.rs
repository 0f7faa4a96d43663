//! The broker behind TLS: the same answers, whole and in order, and strangers kept out.

mod common;
#[path = "common/tls.rs"]
mod tls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use common::*;
use cutwater_broker::{
    Broker, BrokerError, BrokerLimits, BrokerOptions, Listen, MetricsOptions, Security, TlsError, TlsFiles,
};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::{Clock, Platform, SystemClock};
use kafka_protocol::messages::*;
use tls::{Authority, replace};

/// A broker that speaks TLS on its first address and plain on its second.
fn serve_tls(dir: &Path, files: TlsFiles, limits: BrokerLimits) -> (Broker, Log) {
    let platform = Platform::real();
    let log = Log::open(&platform, &dir.join("log"), LogOptions::default()).expect("a fresh log");
    let listen: Vec<Listen> = ["tls://127.0.0.1:0", "127.0.0.1:0"].map(|l| l.parse().expect("a listener")).into();
    let options = BrokerOptions {
        security: Security { tls: Some(files), ..Security::default() },
        limits,
        ..BrokerOptions::default()
    };
    let broker = Broker::serve(&platform, log.clone(), &listen, options).expect("free ports");
    (broker, log)
}

#[test]
fn large_batches_and_many_requests_under_way_come_back_whole_and_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let (broker, log) = serve_tls(dir.path(), ca.server(None), BrokerLimits::default());
    log.create_topic("words", 1).expect("a topic");
    let mut client = ca.client(broker.address(), None);
    // Larger than a TLS record, than what is sealed at once, and than both sockets' buffers together.
    let large: Vec<String> = (0..12).map(|n| format!("{n}-{}", "x".repeat(700_000))).collect();
    for value in &large {
        client.send(9, &produce("words", 0, -1, batch(PLAIN, &[value])));
    }
    for n in 0..12 {
        assert_eq!(produced(&client.receive::<ProduceRequest>(9, 11 - n)), (0, n.into()));
    }
    let mut request = fetch("words", 0, 0, 0, 1);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    let answer = client.ask(11, request.clone());
    let through_tls = fetched(&answer).records.clone().expect("records");
    assert!(through_tls.len() > 8_000_000);
    let mut plain = Client::connect(broker.addresses()[1]);
    let answer = plain.ask(11, request);
    assert_eq!(through_tls, fetched(&answer).records.clone().expect("records"), "the same bytes with and without TLS");
    // Each listener tells its own address.
    let port = |answer: MetadataResponse| answer.brokers[0].port;
    assert_eq!(port(client.ask(9, MetadataRequest::default())), i32::from(broker.address().port()));
    assert_eq!(port(plain.ask(9, MetadataRequest::default())), i32::from(broker.addresses()[1].port()));
    broker.stop();
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).expect("a stop says farewell in TLS, too");
    assert!(rest.is_empty());
}

/// Both halves of a connection work at the same time, on one machine: neither waits for the other, and nothing is mixed up.
#[test]
fn reading_and_answering_at_the_same_time_mixes_nothing_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let (broker, log) = serve_tls(dir.path(), ca.server(None), BrokerLimits::default());
    log.create_topic("words", 1).expect("a topic");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = ca.client(broker.address(), None);
                let value = "y".repeat(20_000);
                let (mut last, mut seen) = (-1, 0);
                for _ in 0..20 {
                    for _ in 0..8 {
                        client.send(9, &produce("words", 0, 1, batch(PLAIN, &[&value])));
                        client.send(11, &fetch("words", 0, 0, 0, 0));
                    }
                    for n in 0..8 {
                        let (code, offset) = produced(&client.receive::<ProduceRequest>(9, 15 - 2 * n));
                        assert!(code == 0 && offset > last);
                        last = offset;
                        let read = client.receive::<FetchRequest>(11, 14 - 2 * n);
                        assert_eq!(fetched(&read).error_code, 0);
                        assert!(fetched(&read).high_watermark >= seen, "an end moves up");
                        seen = fetched(&read).high_watermark;
                    }
                }
            });
        }
    });
    let end = log.topic("words").map(|topic| topic.partitions);
    assert_eq!(end, Some(1));
    let mut client = ca.client(broker.address(), None);
    let answer = client.ask(11, fetch("words", 0, 0, 0, 0));
    assert_eq!(fetched(&answer).high_watermark, 4 * 20 * 8, "every batch is there once");
}

/// Whether a request is answered; a refused handshake may show as late as in the first read.
fn answers<S: Read + Write>(client: &mut Client<S>) -> bool {
    let sent =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.send(3, &ApiVersionsRequest::default())));
    sent.is_ok() && client.frame().is_some()
}

#[test]
fn with_a_client_authority_only_who_shows_its_certificate_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = tempfile::tempdir().expect("a directory");
    let (ca, stranger) = (Authority::new(dir.path()), Authority::new(other.path()));
    let (broker, _log) = serve_tls(dir.path(), ca.server(Some(ca.file())), BrokerLimits::default());
    assert!(answers(&mut ca.client(broker.address(), Some(ca.issue("alice")))));
    assert!(!answers(&mut ca.client(broker.address(), None)), "no certificate");
    assert!(!answers(&mut ca.client(broker.address(), Some(stranger.issue("alice")))), "of another authority");
    assert!(
        !answers(&mut stranger.client(broker.address(), Some(ca.issue("alice")))),
        "a client that doesn't trust us"
    );
    assert!(answers(&mut ca.client(broker.address(), Some(ca.issue("bob")))), "the server goes on");
}

#[test]
fn plain_text_to_a_tls_listener_and_tls_to_a_plain_one_are_closed_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let (broker, _log) = serve_tls(dir.path(), ca.server(None), BrokerLimits::default());
    let mut plain = Client::connect(broker.address());
    plain.send(3, &ApiVersionsRequest::default());
    let mut said = Vec::new();
    let _ = plain.stream.read_to_end(&mut said);
    assert!(said.len() <= 7, "an alert at most: {said:?}");
    assert!(!answers(&mut ca.client(broker.addresses()[1], None)));
}

#[test]
fn handshakes_that_do_not_go_on_end_in_time_and_more_than_the_limit_are_not_begun() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let limits = BrokerLimits { handshake: Duration::from_millis(600), handshakes: 3, ..BrokerLimits::default() };
    let (broker, _log) = serve_tls(dir.path(), ca.server(None), limits);
    let silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(broker.address()).expect("it listens")).collect();
    // One of them trickles; the whole handshake has one time-out.
    let mut trickling = silent[0].try_clone().expect("a clone");
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in [0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3].into_iter().cycle() {
                if trickling.write_all(&[byte]).is_err() {
                    return;
                }
                clock.sleep(Duration::from_millis(50));
            }
        });
        clock.sleep(Duration::from_millis(150));
        assert!(!answers(&mut ca.client(broker.address(), None)), "no room for a fourth");
        assert!(answers(&mut Client::connect(broker.addresses()[1])), "other listeners have room");
        for mut stream in silent {
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        }
    });
    assert!(answers(&mut ca.client(broker.address(), None)), "there is room again");
}

#[test]
fn files_that_are_of_no_use_are_named_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let good = ca.server(Some(ca.file()));
    let platform = Platform::real();
    let log = Log::open(&platform, &dir.path().join("log"), LogOptions::default()).expect("a fresh log");
    let listen: Listen = "tls://127.0.0.1:0".parse().expect("a listener");
    let start = |files: TlsFiles| {
        let options = BrokerOptions {
            security: Security { tls: Some(files), ..Security::default() },
            ..BrokerOptions::default()
        };
        Broker::serve(&platform, log.clone(), std::slice::from_ref(&listen), options).err()
    };
    assert!(start(good.clone()).is_none());
    let write = |name: &str, text: &str| tls::write(&dir.path().join(name), text);
    let (_, other_key) = ca.issue("localhost");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases = [
        (TlsFiles { certificate: dir.path().join("absent.pem"), ..good.clone() }, "absent.pem", "read certificates"),
        (TlsFiles { key: dir.path().join("absent.key"), ..good.clone() }, "absent.key", "read the private key"),
        (TlsFiles { certificate: write("empty.pem", ""), ..good.clone() }, "empty.pem", "BEGIN CERTIFICATE"),
        (TlsFiles { certificate: good.key.clone(), ..good.clone() }, "server.key", "BEGIN CERTIFICATE"),
        (TlsFiles { key: good.certificate.clone(), ..good.clone() }, "server.pem", "BEGIN PRIVATE KEY"),
        (TlsFiles { key: write("other.key", &other_key), ..good.clone() }, "other.key", "was made for"),
        (TlsFiles { certificate: write("broken.pem", broken), ..good.clone() }, "broken.pem", "used together"),
        (TlsFiles { client_ca: Some(write("broken-ca.pem", broken)), ..good.clone() }, "broken-ca.pem", "authority"),
        (
            TlsFiles { client_ca: Some(dir.path().join("absent-ca.pem")), ..good.clone() },
            "absent-ca.pem",
            "read certificates",
        ),
    ];
    for (files, file, todo) in cases {
        let error = start(files).expect("refused");
        assert!(matches!(
            error,
            BrokerError::Tls(TlsError::File(_) | TlsError::Pair { .. } | TlsError::ClientCa { .. })
        ));
        let said = error.to_string();
        assert!(said.contains(file) && said.contains(todo), "{said}");
    }
}

/// What the server shows as its certificate.
fn shown(ca: &Authority, broker: &Broker) -> Vec<u8> {
    let mut client = ca.client(broker.address(), None);
    client.ask(9, MetadataRequest::default());
    client.stream.conn.peer_certificates().expect("shown")[0].to_vec()
}

fn metric(broker: &Broker, name: &str) -> String {
    let metrics = broker.serve_metrics("127.0.0.1:0".parse().expect("an address"), MetricsOptions::default());
    let metrics = metrics.expect("a free port");
    let mut connection = TcpStream::connect(metrics.address()).expect("it listens");
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut page = String::new();
    connection.read_to_string(&mut page).expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("it is on the page").to_string()
}

#[test]
fn a_renewed_certificate_is_shown_to_new_connections_and_a_broken_one_changes_nothing_and_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = Authority::new(dir.path());
    let files = ca.server(None);
    let (broker, log) = serve_tls(dir.path(), files.clone(), BrokerLimits::default());
    log.create_topic("words", 1).expect("a topic");
    let mut staying = ca.client(broker.address(), None);
    staying.ask(9, MetadataRequest::default());
    let first = shown(&ca, &broker);
    let clock = SystemClock::new();
    let until = |what: &str, reached: &dyn Fn() -> bool| {
        for _ in 0..200 {
            if reached() {
                return;
            }
            clock.sleep(Duration::from_millis(50));
        }
        panic!("{what} takes too long");
    };

    let (certificate, key) = ca.issue("localhost");
    replace(&files.certificate, &certificate);
    // Between the two, they don't belong together: nothing is told of that unless it stays so.
    replace(&files.key, &key);
    until("the new certificate", &|| shown(&ca, &broker) != first);
    let second = shown(&ca, &broker);
    assert_eq!(metric(&broker, "cutwater_certificate_changes_total"), "1");
    assert_eq!(metric(&broker, "cutwater_certificate_unusable"), "0");

    replace(&files.key, &ca.issue("localhost").1);
    until("being told", &|| metric(&broker, "cutwater_certificate_unusable") == "1");
    assert_eq!(shown(&ca, &broker), second, "the pair that was in force stays");
    replace(&files.certificate, "no certificate at all");
    clock.sleep(Duration::from_millis(1500));
    assert_eq!(shown(&ca, &broker), second);

    let (certificate, key) = ca.issue("localhost");
    replace(&files.key, &key);
    replace(&files.certificate, &certificate);
    until("the third certificate", &|| ![&first, &second].contains(&&shown(&ca, &broker)));
    assert_eq!(metric(&broker, "cutwater_certificate_changes_total"), "2");
    assert_eq!(metric(&broker, "cutwater_certificate_unusable"), "0");
    // Who came in with the first one goes on.
    let answer = staying.ask(9, produce("words", 0, -1, batch(PLAIN, &["still here"])));
    assert_eq!(produced(&answer), (0, 0));
}
