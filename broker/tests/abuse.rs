//! What strangers send: the server stays up, its memory flat, and a good client undisturbed.

mod common;

use std::io::Write;

use common::*;
use cutwater_broker::{BrokerLimits, BrokerOptions};
use cutwater_platform::SplitMix;
use kafka_protocol::messages::*;

/// Memory of this process, which the server lives in, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says how much memory there is");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

/// A request of some API and version, with a body of noise.
fn noise(random: &mut SplitMix) -> Vec<u8> {
    let key = (random.next() % 80) as u8;
    let mut body = vec![0, key, 0, (random.next() % 18) as u8, 0, 0, 0, 1, 0xFF, 0xFF];
    for _ in 0..random.next() % 300 {
        let byte = random.next();
        // Large counts are likelier than chance would have them.
        body.push(if byte.is_multiple_of(3) { 0xFF } else { (byte >> 8) as u8 });
    }
    framed(&body)
}

#[test]
fn thousands_of_malformed_frames_leave_memory_flat_and_a_good_client_undisturbed() {
    let limits = BrokerLimits { connections_per_second: 10_000, ..BrokerLimits::default() };
    let served = serve_with(BrokerOptions { limits, ..BrokerOptions::default() });
    served.log.create_topic("words", 1).expect("a topic");
    let mut good = served.client();
    let mut random = SplitMix::new(11);
    let mut sent = 0;
    let mut round = |frames: u64, good: &mut Client| {
        for n in 0..frames {
            let mut bad = served.client();
            // It may be closed before all of it is written.
            let _ = bad.stream.write_all(&noise(&mut random));
            let _ = bad.stream.shutdown(std::net::Shutdown::Write);
            while bad.frame().is_some() {}
            if n.is_multiple_of(50) {
                let answer = good.ask(9, produce("words", 0, -1, batch(PLAIN, &["fine"])));
                assert_eq!(produced(&answer), (0, sent));
                sent += 1;
            }
        }
    };
    round(200, &mut good);
    let before = resident();
    round(400, &mut good);
    let grown = resident().saturating_sub(before);
    assert!(grown < 48, "{grown} MiB more");
}

#[test]
fn frames_that_are_announced_and_never_come_cost_no_memory() {
    let served = serve();
    let mut good = served.client();
    good.ask(3, ApiVersionsRequest::default());
    let before = resident();
    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut silent = served.client();
        silent.stream.write_all(&(90i32 << 20).to_be_bytes()).expect("sent");
        silent.stream.write_all(&[0, 0, 0, 9]).expect("sent");
        waiting.push(silent);
    }
    for _ in 0..20 {
        good.ask(3, ApiVersionsRequest::default());
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 48, "{grown} MiB more");
}

#[test]
fn a_client_that_never_reads_its_answers_holds_up_nobody_else() {
    let served = serve();
    let topic = served.log.create_topic("words", 1).expect("a topic");
    let large = "x".repeat(100_000);
    for _ in 0..40 {
        let ticket = served.log.append_batch(topic, 0, batch(PLAIN, &[&large]).to_vec()).expect("accepted");
        ticket.wait().expect("durable");
    }
    let mut deaf = served.client();
    deaf.stream.set_nonblocking(true).expect("set");
    let mut request = fetch("words", 0, 0, 0, 1);
    request.topics[0].partitions[0].partition_max_bytes = 50 << 20;
    for _ in 0..40 {
        deaf.send(11, &request);
    }
    let mut good = served.client();
    for n in 0..20 {
        let answer = good.ask(9, produce("words", 0, -1, batch(PLAIN, &["fine"])));
        assert_eq!(produced(&answer), (0, 40 + n));
    }
}
