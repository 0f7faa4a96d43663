//! Memory that is short: whoever announces much, sends by drops or doesn't read holds up nobody for long (I-9).

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use common::*;
use cutwater_broker::{BrokerLimits, BrokerOptions};
use cutwater_platform::{Clock, SystemClock};

const MIB: usize = 1 << 20;

fn serve_limited(limits: BrokerLimits) -> Served {
    serve_with(BrokerOptions { limits, ..BrokerOptions::default() })
}

/// A frame's size and the beginning of a produce request that never ends.
fn announce(client: &mut Client, bytes: usize, sent: usize) {
    let mut frame = (bytes as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 1, 0xFF, 0xFF]);
    frame.resize(4 + sent, 0);
    client.stream.write_all(&frame).expect("sent");
}

/// Whether the broker closes the connection within 20 seconds.
fn is_closed(client: &mut Client) -> bool {
    matches!(client.stream.read(&mut [0; 1]), Ok(0)) || {
        let error = client.stream.read(&mut [0; 1]).expect_err("closed");
        error.kind() != std::io::ErrorKind::WouldBlock
    }
}

#[test]
fn three_silent_clients_that_announce_the_whole_pool_hold_up_nobody() {
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    let mut silent = Vec::new();
    for bytes in [100 * MIB, 100 * MIB, 56 * MIB] {
        let mut client = served.client();
        announce(&mut client, bytes, 10);
        silent.push(client);
    }
    let began = SystemClock::new();
    let mut good = served.client();
    let large = "x".repeat(5 * MIB);
    for n in 0..3 {
        assert_eq!(produced(&good.ask(9, produce("words", 0, -1, batch(PLAIN, &["fine"])))), (0, 2 * n));
        assert_eq!(produced(&good.ask(9, produce("words", 0, -1, batch(PLAIN, &[&large])))), (0, 2 * n + 1));
    }
    assert!(began.monotonic() < Duration::from_secs(10), "{:?}", began.monotonic());
}

#[test]
fn a_request_that_may_not_be_large_is_refused_by_its_first_bytes() {
    let served = serve();
    for key in [3u8, 200] {
        let mut client = served.client();
        client.stream.write_all(&(5 * MIB as i32).to_be_bytes()).expect("sent");
        client.stream.write_all(&[0, key]).expect("sent");
        let began = SystemClock::new();
        assert!(is_closed(&mut client), "key {key}");
        assert!(began.monotonic() < Duration::from_secs(10), "{:?}", began.monotonic());
    }
    // One that may isn't.
    let mut client = served.client();
    announce(&mut client, 5 * MIB, 10);
    client.stream.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    let error = client.stream.read(&mut [0; 1]).expect_err("it waits for the rest");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_pool_filled_to_the_last_byte_by_stalled_requests_serves_small_ones_at_once_and_large_ones_soon() {
    let served = serve_limited(BrokerLimits {
        frame_bytes: 4 * MIB,
        request_bytes: 8 * MIB,
        in_the_way: Duration::from_millis(700),
        ..BrokerLimits::default()
    });
    served.log.create_topic("words", 1).expect("a topic");
    let mut stalled = Vec::new();
    for _ in 0..3 {
        let mut client = served.client();
        announce(&mut client, 2 * MIB, 2 * MIB - 1);
        stalled.push(client);
    }
    let mut good = served.client();
    // 6 of 8 MiB may be held by what is being read, and are.
    SystemClock::new().sleep(Duration::from_millis(300));
    let began = SystemClock::new();
    assert_eq!(produced(&good.ask(9, produce("words", 0, -1, batch(PLAIN, &["small"])))), (0, 0));
    assert!(began.monotonic() < Duration::from_secs(5), "{:?}", began.monotonic());
    let large = "x".repeat(MIB);
    assert_eq!(produced(&good.ask(9, produce("words", 0, -1, batch(PLAIN, &[&large])))), (0, 1));
    assert!(began.monotonic() < Duration::from_secs(10), "{:?}", began.monotonic());
    assert!(stalled.iter_mut().any(is_closed), "one who was in the way is gone");
}

#[test]
fn many_large_requests_at_once_share_a_pool_for_one_and_all_get_through() {
    let served =
        serve_limited(BrokerLimits { frame_bytes: 2 * MIB, request_bytes: 2 * MIB, ..BrokerLimits::default() });
    served.log.create_topic("words", 1).expect("a topic");
    let large = "x".repeat(MIB);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = served.client();
                for _ in 0..2 {
                    assert_eq!(produced(&client.ask(9, produce("words", 0, -1, batch(PLAIN, &[&large])))).0, 0);
                }
            });
        }
    });
    let mut client = served.client();
    assert_eq!(produced(&client.ask(9, produce("words", 0, -1, batch(PLAIN, &["last"])))), (0, 16));
}

#[test]
fn deaf_clients_that_hold_all_room_for_answers_dont_keep_a_fetch_longer_than_it_wants_and_are_given_up() {
    let served = serve_limited(BrokerLimits {
        answer_bytes: 16 * MIB,
        fetch_bytes: 16 * MIB,
        in_the_way: Duration::from_secs(3),
        ..BrokerLimits::default()
    });
    let topic = served.log.create_topic("words", 1).expect("a topic");
    let large = "x".repeat(MIB);
    for _ in 0..16 {
        let ticket = served.log.append_batch(topic, 0, batch(PLAIN, &[&large]).to_vec()).expect("accepted");
        ticket.wait().expect("durable");
    }
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let mut client = served.client();
        let mut request = fetch("words", 0, 0, 0, 1);
        request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
        for _ in 0..8 {
            client.send(11, &request);
        }
        deaf.push(client);
    }
    SystemClock::new().sleep(Duration::from_millis(500));
    let mut good = served.client();
    let began = SystemClock::new();
    let mut answers = 0;
    let mut request = fetch("words", 0, 0, 300, 1);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    loop {
        let asked = SystemClock::new();
        let answer = good.ask(11, request.clone());
        assert!(asked.monotonic() < Duration::from_millis(300 + 1500), "{:?}", asked.monotonic());
        let partition = fetched(&answer);
        assert_eq!((partition.error_code, partition.high_watermark), (0, 16), "offsets are told in any case");
        answers += 1;
        if partition.records.as_ref().is_some_and(|records| records.len() > MIB) {
            break;
        }
        assert!(began.monotonic() < Duration::from_secs(25), "the deaf ones are given up");
    }
    assert!(answers > 1, "the room was taken at first: the test tests");
}
