//! Clients that leave while they wait: their connections and threads don't outlive them, and who stays is answered.

#![expect(
    clippy::disallowed_methods,
    reason = "threads of this process are counted, and what comes over a network takes real time"
)]

mod common;

use std::net::Shutdown;
use std::time::{Duration, Instant};

use common::*;

/// Threads of this process that read from connections of a broker.
fn readers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "broker-read").count()
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let since = Instant::now();
    while !reached() {
        assert!(since.elapsed() < Duration::from_secs(10), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_fetch_that_would_wait_for_weeks_ends_when_its_client_has_left_and_others_wait_on() {
    const LEAVING: usize = 30;
    let served = serve();
    served.log.create_topic("quiet", 1).expect("made");
    let forever = || {
        let mut client = served.client();
        client.send(12, &fetch("quiet", 0, 0, i32::MAX, 1));
        client
    };
    let mut staying = forever();
    let leaving: Vec<Client> = (0..LEAVING).map(|_| forever()).collect();
    until("coming", || readers() == LEAVING + 1);
    // They wait by now, and go on waiting.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(readers(), LEAVING + 1);
    for (number, client) in leaving.iter().enumerate() {
        match number % 3 {
            // Some close at once, some say that they will say no more, some have said more already.
            0 => {}
            1 => client.stream.shutdown(Shutdown::Write).expect("shut down"),
            _ => std::io::Write::write_all(&mut &client.stream, &[0, 0, 0, 99, 1]).expect("sent"),
        }
    }
    drop(leaving);
    until("leaving", || readers() == 1);
    // Who is still there hears of what comes.
    let answer = served.client().ask(9, produce("quiet", 0, -1, batch(PLAIN, &["news"])));
    assert_eq!(produced(&answer).0, 0);
    let frame = staying.frame().expect("an answer");
    assert!(frame.windows(4).any(|bytes| bytes == b"news"));
}
