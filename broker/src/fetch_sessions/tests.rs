//! Every short history of a client, a broker and a network that loses answers; and each rule by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::machine::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits(sessions: usize, partitions: usize) -> Limits {
    Limits { sessions, partitions, idle: 120 * SECOND }
}

fn key(partition: i32) -> Key {
    (TopicKey::Name("t".into()), partition)
}

fn at(offset: i64) -> Asked {
    Asked { offset, last_epoch: -1, leader_epoch: -1, max_bytes: 1 }
}

fn request(id: i32, epoch: i32, partitions: &[(i32, i64)], forgotten: &[i32]) -> Request {
    Request {
        id,
        epoch,
        by_id: false,
        partitions: partitions.iter().map(|(partition, offset)| (key(*partition), at(*offset))).collect(),
        forgotten: forgotten.iter().map(|partition| key(*partition)).collect(),
    }
}

/// What is read of partitions whose ends are these: a record each time, until the end.
fn read(begun: &Begun, ends: &[i64]) -> Vec<News> {
    let one = |((_, partition), asked): &(Key, Asked)| {
        let end = ends[*partition as usize];
        News { high_watermark: end, log_start: 0, has_records: asked.offset < end, urgent: false }
    };
    begun.partitions.iter().map(one).collect()
}

fn carry_out(
    sessions: &mut Sessions,
    now: Duration,
    request: Request,
    ends: &[i64],
) -> Result<(i32, Vec<i32>), ResponseError> {
    let begun = sessions.begin(now, request)?;
    let partitions: Vec<i32> = begun.partitions.iter().map(|((_, partition), _)| *partition).collect();
    let news = read(&begun, ends);
    let mut ids = 100..;
    let taken = sessions.size().0 as i32;
    let ended = sessions.end(now, &begun, &news, || ids.next().map_or(0, |id| id + taken))?;
    let answered = partitions.into_iter().zip(ended.answered).filter(|(_, answered)| *answered);
    Ok((ended.id, answered.map(|(partition, _)| partition).collect()))
}

#[test]
fn a_session_answers_what_has_news_and_reads_the_busy_ones_last() {
    let mut sessions = Sessions::new(limits(10, 100));
    let mut go = |request, ends: &[i64]| carry_out(&mut sessions, SECOND, request, ends);
    assert_eq!(go(request(0, 0, &[(0, 0), (1, 0), (2, 0)], &[]), &[0, 0, 0]), Ok((100, vec![0, 1, 2])), "all at first");
    assert_eq!(go(request(100, 1, &[], &[]), &[0, 0, 0]), Ok((100, vec![])), "nothing is new");
    assert_eq!(go(request(100, 2, &[], &[]), &[5, 0, 0]), Ok((100, vec![0])));
    assert_eq!(go(request(100, 3, &[], &[]), &[5, 0, 7]), Ok((100, vec![2, 0])), "0 had its turn");
    assert_eq!(go(request(100, 4, &[(0, 5), (2, 7)], &[1]), &[5, 9, 7]), Ok((100, vec![])), "1 is forgotten");
    assert_eq!(go(request(100, 5, &[(1, 0)], &[]), &[5, 9, 7]), Ok((100, vec![1])), "and comes back");
    assert_eq!(go(request(100, 6, &[], &[0, 1, 2]), &[5, 9, 7]), Ok((0, vec![])), "nothing left, no session");
    assert_eq!(go(request(100, 7, &[], &[]), &[5, 9, 7]), Err(ResponseError::FetchSessionIdNotFound));
    assert_eq!(sessions.size(), (0, 0));
}

#[test]
fn an_epoch_that_is_not_the_next_one_is_refused_and_the_last_one_ends_the_session() {
    let mut sessions = Sessions::new(limits(10, 100));
    let mut go = |request| carry_out(&mut sessions, SECOND, request, &[0, 0]);
    assert_eq!(go(request(0, 0, &[(0, 0)], &[])), Ok((100, vec![0])));
    for epoch in [2, 7, -2, i32::MAX] {
        assert_eq!(go(request(100, epoch, &[], &[])), Err(ResponseError::InvalidFetchSessionEpoch), "{epoch}");
    }
    assert_eq!(go(request(99, 1, &[], &[])), Err(ResponseError::FetchSessionIdNotFound));
    assert_eq!(go(request(100, 1, &[], &[])), Ok((100, vec![])));
    assert_eq!(go(request(100, 1, &[], &[])), Err(ResponseError::InvalidFetchSessionEpoch), "once");
    assert_eq!(go(Request { by_id: true, ..request(100, 2, &[], &[]) }), Err(ResponseError::FetchSessionTopicIdError));
    assert_eq!(go(request(100, -1, &[(1, 0)], &[])), Ok((0, vec![1])), "a full answer, and the end");
    assert_eq!(go(request(100, 2, &[], &[])), Err(ResponseError::FetchSessionIdNotFound));
    assert_eq!(sessions.size(), (0, 0));
}

#[test]
fn an_answer_that_was_overtaken_by_another_request_is_refused() {
    let mut sessions = Sessions::new(limits(10, 100));
    carry_out(&mut sessions, SECOND, request(0, 0, &[(0, 0)], &[]), &[0]).expect("a session");
    let first = sessions.begin(SECOND, request(100, 1, &[], &[])).expect("begun");
    carry_out(&mut sessions, SECOND, request(100, 2, &[], &[]), &[0]).expect("the next one is faster");
    let news = read(&first, &[0]);
    assert_eq!(sessions.end(SECOND, &first, &news, || 1), Err(ResponseError::InvalidFetchSessionEpoch));
}

#[test]
fn an_error_is_told_again_and_so_is_where_the_partition_stands_after_it() {
    let mut sessions = Sessions::new(limits(10, 100));
    let mut go = |epoch: i32, news: News| {
        let begun = sessions.begin(SECOND, request(100 * epoch.min(1), epoch, &[(0, 0)], &[])).expect("begun");
        sessions.end(SECOND, &begun, &[news], || 100).expect("ended").answered
    };
    let stands = News { high_watermark: 3, ..News::default() };
    let failed = News { high_watermark: -1, log_start: -1, urgent: true, has_records: false };
    let answered: Vec<bool> =
        [stands, stands, failed, failed, stands, stands].into_iter().zip(0..).flat_map(|(n, e)| go(e, n)).collect();
    assert_eq!(answered, [true, false, true, true, true, false]);
}

#[test]
fn sessions_and_partitions_are_bounded_and_only_the_idle_give_way() {
    let mut sessions = Sessions::new(limits(2, 4));
    let ends = [0; 9];
    let begin = |sessions: &mut Sessions, now, partitions: &[(i32, i64)]| {
        carry_out(sessions, now, request(0, 0, partitions, &[]), &ends).expect("a full fetch is always answered").0
    };
    let first = begin(&mut sessions, SECOND, &[(0, 0), (1, 0)]);
    let second = begin(&mut sessions, 2 * SECOND, &[(2, 0)]);
    assert!(first > 0 && second > 0);
    assert_eq!(begin(&mut sessions, 3 * SECOND, &[(3, 0)]), 0, "no room, nobody is idle");
    assert_eq!(begin(&mut sessions, 500 * SECOND, &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]), 0, "never room for five");
    assert_eq!(sessions.size(), (2, 3), "and nobody had to go for it");
    carry_out(&mut sessions, 100 * SECOND, request(first, 1, &[], &[]), &ends).expect("it goes on");
    assert!(begin(&mut sessions, 130 * SECOND, &[(3, 0)]) > 0, "the second has been silent for the longest time");
    let gone = carry_out(&mut sessions, 131 * SECOND, request(second, 1, &[], &[]), &ends);
    assert!(gone == Err(ResponseError::FetchSessionIdNotFound) || gone.is_ok_and(|(_, answered)| answered != [2]));
    // One that grows beyond what there is goes on without.
    let grown = carry_out(&mut sessions, 131 * SECOND, request(first, 2, &[(5, 0), (6, 0)], &[]), &ends);
    assert_eq!(grown, Err(ResponseError::FetchSessionIdNotFound));
    assert_eq!(sessions.size(), (1, 1));
}

/// A client as KIP-227 describes it (`FetchSessionHandler`), with two partitions that it wants or doesn't.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    id: i32,
    epoch: i32,
    /// What it believes the session to hold.
    session: BTreeMap<i32, i64>,
    wanted: BTreeMap<i32, i64>,
    /// Partitions whose news it has not heard, against where they stand.
    heard: BTreeMap<i32, i64>,
}

impl Client {
    fn request(&self) -> Request {
        if self.epoch == 0 {
            let all: Vec<(i32, i64)> = self.wanted.iter().map(|(p, o)| (*p, *o)).collect();
            return request(self.id, 0, &all, &[]);
        }
        let changed: Vec<(i32, i64)> =
            self.wanted.iter().filter(|(p, o)| self.session.get(p) != Some(o)).map(|(p, o)| (*p, *o)).collect();
        let gone: Vec<i32> = self.session.keys().filter(|p| !self.wanted.contains_key(p)).copied().collect();
        request(self.id, self.epoch, &changed, &gone)
    }

    fn hear(&mut self, answer: &Result<(i32, Vec<i32>), ResponseError>, asked: &BTreeMap<i32, i64>, ends: &[i64]) {
        match answer {
            Err(ResponseError::FetchSessionIdNotFound) => (self.id, self.epoch) = (0, 0),
            Err(_) => self.epoch = 0,
            Ok((0, answered)) => {
                (self.id, self.epoch) = (0, 0);
                self.session.clear();
                self.take(answered, ends);
            }
            Ok((id, answered)) => {
                (self.id, self.epoch) = (*id, self.epoch + 1);
                self.session.clone_from(asked);
                self.take(answered, ends);
            }
        }
    }

    fn take(&mut self, answered: &[i32], ends: &[i64]) {
        for partition in answered {
            self.heard.insert(*partition, ends[*partition as usize]);
            if let Some(offset) = self.wanted.get_mut(partition) {
                *offset = ends[*partition as usize].max(*offset);
            }
        }
    }
}

/// In every history of six steps (fetch and hear, fetch and lose the answer, want or drop a partition, a record comes, the broker
/// forgets all sessions), after three quiet fetches at its end the client has heard where each wanted partition stands.
#[test]
fn whatever_is_lost_a_client_that_goes_on_fetching_hears_everything() {
    const STEPS: usize = 7;
    let mut histories = 0u32;
    for code in 0..STEPS.pow(6) {
        let mut sessions = Sessions::new(limits(2, 3));
        let (mut client, mut ends, mut now) = (Client::default(), [0i64; 2], SECOND);
        client.wanted.insert(0, 0);
        let fetch = |client: &mut Client, sessions: &mut Sessions, ends: &[i64], now: Duration, lost: bool| {
            let asked = client.wanted.clone();
            let request = client.request();
            let answer = carry_out(sessions, now, request, ends);
            if lost {
                // It never learns what became of it, and begins anew.
                client.epoch = 0;
            } else {
                client.hear(&answer, &asked, ends);
            }
        };
        let mut rest = code;
        for _ in 0..6 {
            now += SECOND;
            match rest % STEPS {
                0 => fetch(&mut client, &mut sessions, &ends, now, false),
                1 => fetch(&mut client, &mut sessions, &ends, now, true),
                2 => drop(client.wanted.insert(1, 0)),
                3 => drop(client.wanted.remove(&1)),
                4 => ends[0] += 1,
                5 => ends[1] += 1,
                _ => sessions = Sessions::new(limits(2, 3)),
            }
            rest /= STEPS;
            let (count, partitions) = sessions.size();
            assert!(count <= 2 && partitions <= 3, "{code}");
        }
        for _ in 0..3 {
            fetch(&mut client, &mut sessions, &ends, now, false);
        }
        for partition in client.wanted.keys() {
            assert_eq!(client.heard.get(partition), Some(&ends[*partition as usize]), "history {code}: {client:?}");
        }
        histories += 1;
    }
    assert_eq!(histories, 117_649);
}

#[test]
fn no_number_is_given_to_two_sessions() {
    let mut sessions = Sessions::new(limits(100, 100));
    let mut numbers = [5, 5, 0, -3, 5, 6, 6, 7].into_iter();
    let mut given = BTreeSet::new();
    for _ in 0..3 {
        let begun = sessions.begin(SECOND, request(0, 0, &[(0, 0)], &[])).expect("begun");
        let news = read(&begun, &[0]);
        given.insert(sessions.end(SECOND, &begun, &news, || numbers.next().unwrap_or(9)).expect("ended").id);
    }
    assert_eq!(given, [5, 6, 7].into());
}
