//! Clients that leave while they wait: their connections and threads don't outlive them, and who stays is answered.

#![expect(
    clippy::disallowed_methods,
    reason = "threads of this process are counted, and what comes over a network takes real time"
)]

mod common;

use std::net::Shutdown;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::*;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

/// Threads are counted: one test at a time.
static COUNTING: Mutex<()> = Mutex::new(());

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
    let _alone = COUNTING.lock();
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

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("g"))
}

/// A request to join that waits for the others for half an hour if need be.
fn joins(member: &StrBytes) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(StrBytes::from_static_str("range"))
        .with_metadata(b"meta".to_vec().into());
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(1_800_000)
        .with_rebalance_timeout_ms(1_800_000)
        .with_member_id(member.clone())
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![protocol])
}

fn id(client: &mut Client) -> StrBytes {
    let first = client.ask(9, joins(&StrBytes::default()));
    assert_eq!(first.error_code, ResponseError::MemberIdRequired.code());
    first.member_id
}

fn syncs(joined: &JoinGroupResponse) -> SyncGroupRequest {
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_protocol_type(Some(StrBytes::from_static_str("consumer")))
        .with_protocol_name(Some(StrBytes::from_static_str("range")))
}

#[test]
fn members_that_leave_while_they_wait_for_the_others_keep_no_thread_and_those_who_stay_go_on() {
    const LEAVING: usize = 10;
    let _alone = COUNTING.lock();
    until("an earlier test", || readers() == 0);
    let served = serve();
    let mut leader = served.client();
    let mine = id(&mut leader);
    let joined = leader.ask(9, joins(&mine));
    assert_eq!((joined.error_code, &joined.leader), (0, &mine));
    leader.ask(5, syncs(&joined));
    // They wait for the leader, which doesn't join again for now.
    let waiting = || {
        let mut client = served.client();
        let id = id(&mut client);
        client.send(9, &joins(&id));
        client
    };
    let mut staying = waiting();
    let leaving: Vec<Client> = (0..LEAVING).map(|_| waiting()).collect();
    until("coming", || readers() == LEAVING + 2);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(readers(), LEAVING + 2, "they wait by now, and go on waiting");
    drop(leaving);
    until("leaving", || readers() == 2);
    // The group goes on with all of them, since they may come back over other connections.
    let joined = leader.ask(9, joins(&mine));
    assert_eq!((joined.error_code, joined.members.len()), (0, LEAVING + 2));
    let other = staying.receive::<JoinGroupRequest>(9, 0);
    assert_eq!((other.error_code, other.generation_id), (0, joined.generation_id));
    // Now it waits for the leader's assignment.
    staying.send(5, &syncs(&other));
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(readers(), 2);
    drop(staying);
    until("leaving", || readers() == 1);
    // Over another connection the same member hears of what the leader says then.
    let mut back = served.client();
    back.send(5, &syncs(&other));
    leader.ask(5, syncs(&joined));
    assert_eq!(back.receive::<SyncGroupRequest>(5, 0).error_code, 0);
}
