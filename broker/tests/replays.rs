//! Requests that arrive again: recorded frames of a transaction, late and twice, over another connection. Nothing is lost, repeated or
//! ended that shouldn't be (`docs/known-bugs.md`, KAFKA-17754).
//!
//! By the older protocol the requests of one transaction look like those of the next, so what is delayed there must come over an older
//! connection than the one that its client uses now. By the newer one each transaction has an epoch of its own, and what is delayed may
//! come over the newest.

mod common;

use std::io::Write;

use common::*;
use cutwater_partition_log::batch::ProducerStamp;
use cutwater_partition_log::{Isolation, Offset};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Older,
    Newer,
}

/// When the recorded frames come again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    AtOnce,
    BetweenTheTwo,
    InTheNext,
    AfterTheNext,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Init,
    Add,
    Produce,
    Offsets,
    End,
}

fn txn() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("x"))
}

fn group() -> GroupId {
    GroupId(StrBytes::from_static_str("g"))
}

/// A client with a transactional id, and what it has sent.
struct Sender {
    client: Client,
    protocol: Protocol,
    producer: i64,
    epoch: i16,
    sequence: i32,
    recorded: Vec<(Kind, Vec<u8>)>,
}

impl Sender {
    fn new(client: Client, protocol: Protocol) -> Sender {
        let mut sender = Sender { client, protocol, producer: -1, epoch: -1, sequence: 0, recorded: Vec::new() };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(txn()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let given = sender.ask(Kind::Init, 4, request);
        assert_eq!(given.error_code, 0);
        (sender.producer, sender.epoch) = (given.producer_id.0, given.producer_epoch);
        sender
    }

    fn ask<R: Request>(&mut self, kind: Kind, version: i16, request: R) -> R::Response {
        let frame = self.client.framed(version, &request);
        self.client.stream.write_all(&frame).expect("the broker reads");
        self.recorded.push((kind, frame));
        self.client.receive::<R>(version, 0)
    }

    /// Everything of a transaction but its end.
    fn fill(&mut self, value: &str, offset: i64) {
        let newer = self.protocol == Protocol::Newer;
        let id = ProducerId(self.producer);
        if !newer {
            let topic = AddPartitionsToTxnTopic::default().with_name(name("words")).with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(txn())
                .with_v3_and_below_producer_id(id)
                .with_v3_and_below_producer_epoch(self.epoch)
                .with_v3_and_below_topics(vec![topic]);
            let added = self.ask(Kind::Add, 3, request);
            assert_eq!(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, 0);
        }
        let stamp = ProducerStamp {
            producer_id: self.producer,
            epoch: self.epoch,
            base_sequence: self.sequence,
            transactional: true,
        };
        self.sequence += 1;
        let request = produce("words", 0, -1, batch(stamp, &[value])).with_transactional_id(Some(txn()));
        let taken = self.ask(Kind::Produce, if newer { 12 } else { 11 }, request);
        assert_eq!(produced(&taken).0, 0, "{value}");
        if !newer {
            let request = AddOffsetsToTxnRequest::default().with_transactional_id(txn()).with_group_id(group());
            let request = request.with_producer_id(id).with_producer_epoch(self.epoch);
            assert_eq!(self.ask(Kind::Add, 3, request).error_code, 0);
        }
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("words")).with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(txn())
            .with_group_id(group())
            .with_producer_id(id)
            .with_producer_epoch(self.epoch)
            .with_topics(vec![topic]);
        let kept = self.ask(Kind::Offsets, if newer { 5 } else { 3 }, request);
        assert_eq!(kept.topics[0].partitions[0].error_code, 0);
    }

    /// Commits; the code of the answer.
    fn commit(&mut self) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(txn())
            .with_producer_id(ProducerId(self.producer))
            .with_producer_epoch(self.epoch)
            .with_committed(true);
        let ended = self.ask(Kind::End, if self.protocol == Protocol::Newer { 5 } else { 3 }, request);
        if self.protocol == Protocol::Newer && ended.error_code == 0 {
            if ended.producer_epoch != self.epoch {
                self.sequence = 0;
            }
            (self.producer, self.epoch) = (ended.producer_id.0, ended.producer_epoch);
        }
        ended.error_code
    }
}

/// Sends a frame twice; whatever comes back is no answer that anybody waits for.
fn replay(served: &Served, over: Option<&mut Client>, frame: &[u8]) {
    let mut fresh = None;
    let over = match over {
        Some(older) => older,
        None => fresh.insert(served.client()),
    };
    for _ in 0..2 {
        if over.stream.write_all(frame).is_err() || over.frame().is_none() {
            return;
        }
    }
}

/// What a committed reader sees.
fn seen(served: &Served) -> Vec<String> {
    let topic = served.log.topic("words").expect("there").id;
    let mut consumer = served.log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).expect("there");
    let mut values = Vec::new();
    let fetched = consumer.poll(1 << 20).expect("up");
    fetched
        .for_each(|record| values.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned()))
        .expect("decodable");
    values
}

fn offset(served: &Served) -> Option<u64> {
    served.log.group_offsets("g").expect("up").offsets.values().next().map(|kept| kept.offset.0)
}

/// Two transactions, and each frame of the first one comes again at this moment.
fn story(protocol: Protocol, kind: Kind, nth: usize, when: When) {
    let what = format!("{protocol:?}: {kind:?} number {nth} again, {when:?}");
    let served = serve();
    served.log.create_topic("words", 1).expect("a topic");
    // The network holds frames of this connection back.
    let mut older = served.client();
    let again = |sender: &Sender, older: &mut Client| {
        let (_, frame) = &sender.recorded[nth];
        assert_eq!(sender.recorded[nth].0, kind, "{what}");
        replay(&served, (protocol == Protocol::Older).then_some(older), frame);
    };
    let mut sender = Sender::new(served.client(), protocol);
    sender.fill("first", 1);
    if when == When::AtOnce && kind != Kind::End {
        again(&sender, &mut older);
    }
    // A second incarnation with the same id, as which a repeated initialisation counts, ends what is open and fences whoever was before.
    let fenced = ResponseError::ProducerFenced.code();
    let lost_first = kind == Kind::Init && when == When::AtOnce;
    assert_eq!(sender.commit(), if lost_first { fenced } else { 0 }, "{what}");
    if lost_first {
        assert_eq!((seen(&served), offset(&served)), (vec![], None), "{what}");
        return;
    }
    if when == When::AtOnce && kind == Kind::End {
        again(&sender, &mut older);
    }
    assert_eq!((seen(&served), offset(&served)), (vec!["first".to_string()], Some(1)), "{what}");
    if when == When::BetweenTheTwo {
        if kind == Kind::Init {
            return;
        }
        again(&sender, &mut older);
    }
    sender.fill("second", 2);
    if when == When::InTheNext {
        again(&sender, &mut older);
    }
    assert_eq!(
        (seen(&served), offset(&served)),
        (vec!["first".to_string()], Some(1)),
        "{what}: not ended before its end"
    );
    let fences = kind == Kind::Init && when == When::InTheNext;
    assert_eq!(sender.commit(), if fences { fenced } else { 0 }, "{what}");
    if when == When::AfterTheNext {
        again(&sender, &mut older);
    }
    let right = if fences { (vec!["first"], Some(1)) } else { (vec!["first", "second"], Some(2)) };
    let found = (seen(&served), offset(&served));
    assert_eq!((found.0.iter().map(String::as_str).collect::<Vec<_>>(), found.1), right, "{what}");
    // And none of it has left anything open.
    let topic = served.log.topic("words").expect("there").id;
    let offsets = served.log.offsets(topic, 0).expect("up");
    assert_eq!(offsets.last_stable, offsets.high_watermark, "{what}");
}

fn stories(protocol: Protocol, kinds: &[Kind]) {
    for (nth, kind) in kinds.iter().enumerate() {
        for when in [When::AtOnce, When::BetweenTheTwo, When::InTheNext, When::AfterTheNext] {
            story(protocol, *kind, nth, when);
        }
    }
}

#[test]
fn recorded_requests_of_the_older_protocol_change_nothing_when_they_come_again_over_an_older_connection() {
    use Kind::{Add, End, Init, Offsets, Produce};
    stories(Protocol::Older, &[Init, Add, Produce, Add, Offsets, End]);
}

#[test]
fn recorded_requests_of_the_newer_protocol_change_nothing_when_they_come_again_over_any_connection() {
    use Kind::{End, Init, Offsets, Produce};
    stories(Protocol::Newer, &[Init, Produce, Offsets, End]);
}
