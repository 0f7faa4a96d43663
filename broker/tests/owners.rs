//! Jobs in other processes: the API that carries what their attempts ask of the log.

mod common;

use std::io::Write;

use bytes::Bytes;
use common::{Client, Served, fetch, fetched, name, serve};
use cutwater_partition_log::batch::{BatchBuilder, Compression, ProducerStamp};
use cutwater_partition_log::remote::{API_KEY, API_VERSION, Answer, Ask, AttemptOf, Request, SOFTWARE, Why};
use cutwater_partition_log::{Offset, OwnerId, Sent, TopicId, TxnId, TxnPhase};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

const OWNER: OwnerId = OwnerId(0xC0FFEE);

struct Job {
    client: Client,
    attempt: u64,
}

fn send(client: &mut Client, correlation: i32, body: &[u8]) {
    let mut frame = API_KEY.to_be_bytes().to_vec();
    frame.extend_from_slice(&API_VERSION.to_be_bytes());
    frame.extend_from_slice(&correlation.to_be_bytes());
    frame.extend_from_slice(&[0, 1, b'j']);
    frame.extend_from_slice(body);
    client.stream.write_all(&(frame.len() as i32).to_be_bytes()).unwrap();
    client.stream.write_all(&frame).unwrap();
}

fn receive(client: &mut Client, correlation: i32) -> Answer {
    let frame = client.frame().expect("an answer");
    assert_eq!(frame[..4], correlation.to_be_bytes(), "answers come in order");
    Answer::decode(&frame[4..]).expect("an answer of ours")
}

fn ask(client: &mut Client, request: &Request) -> Answer {
    let mut body = vec![];
    request.encode(&mut body);
    send(client, 5, &body);
    receive(client, 5)
}

impl Job {
    fn of(served: &Served, attempt: u64) -> Job {
        Job { client: served.client(), attempt }
    }

    fn claimed(served: &Served, attempt: u64) -> Job {
        let mut job = Job::of(served, attempt);
        assert_eq!(job.ask(Ask::Claim), Answer::Done);
        job
    }

    fn ask(&mut self, what: Ask) -> Answer {
        let of = AttemptOf { owner: OWNER, attempt: self.attempt };
        ask(&mut self.client, &Request::Attempt { of, ask: what })
    }

    fn id(&self, checkpoint: u64) -> TxnId {
        TxnId { owner: OWNER, attempt: self.attempt, checkpoint, sink: "out".to_string(), writer: 0 }
    }

    fn begin(&mut self, checkpoint: u64) -> (i64, i16) {
        match self.ask(Ask::Begin { checkpoint, sink: "out".to_string(), writer: 0 }) {
            Answer::Producer { id, epoch } => (id, epoch),
            other => panic!("{other:?}"),
        }
    }

    fn append(&mut self, topic: TopicId, batch: &Bytes, durable: bool) -> Answer {
        self.ask(Ask::Append { topic, partition: 0, durable, batch: batch.to_vec() })
    }

    /// Begins, fills and prepares the transaction of a checkpoint.
    fn prepared(&mut self, topic: TopicId, checkpoint: u64, values: &[&str]) -> TxnId {
        let producer = self.begin(checkpoint);
        let batch = batch(producer, 0, true, values);
        assert!(matches!(self.append(topic, &batch, false), Answer::Appended(_)));
        let id = self.id(checkpoint);
        let sent = Sent { bytes: batch.len() as u64, records: values.len() as u64 };
        assert_eq!(self.ask(Ask::Prepare { id: id.clone(), sent }), Answer::Done);
        id
    }
}

fn batch((producer_id, epoch): (i64, i16), base_sequence: i32, transactional: bool, values: &[&str]) -> Bytes {
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(1_000, None, Some(value.as_bytes()), &[]).expect("it fits");
    }
    batch.build(ProducerStamp { producer_id, epoch, base_sequence, transactional }).expect("a batch").into()
}

fn refused(answer: Answer) -> Why {
    match answer {
        Answer::Refused(refusal) => refusal.why,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Bytes that a read-committed Kafka client may see.
fn visible(served: &Served) -> u64 {
    let request = fetch("out", 0, 0, 0, 0).with_isolation_level(1);
    let response = served.client().ask(11, request);
    fetched(&response).last_stable_offset as u64
}

#[test]
fn a_jobs_output_shows_with_its_commit_and_what_is_asked_again_is_answered_as_done() {
    let served = serve();
    let topic = served.log.create_topic("out", 1).unwrap();
    let mut job = Job::claimed(&served, 1);
    // The same beginning twice: the answer of the first may have been lost.
    let producer = job.begin(1);
    assert_eq!(job.begin(1), producer);
    let first = batch(producer, 0, true, &["a", "b"]);
    assert_eq!(job.append(topic, &first, false), Answer::Appended(Offset(0)));
    assert_eq!(job.append(topic, &first, false), Answer::Appended(Offset(0)), "a batch again is the same batch");
    let id = job.id(1);
    let sent = Sent { bytes: first.len() as u64, records: 2 };
    let short = Sent { records: 3, ..sent };
    assert_eq!(refused(job.ask(Ask::Prepare { id: id.clone(), sent: short })), Why::Incomplete);
    for _ in 0..2 {
        assert_eq!(job.ask(Ask::Prepare { id: id.clone(), sent }), Answer::Done);
    }
    assert_eq!(job.ask(Ask::Live), Answer::Live(vec![(id.clone(), TxnPhase::Prepared)]));
    assert_eq!(visible(&served), 0, "nothing before its commit");
    let ended = |now: &[TxnId], already: &[TxnId]| Answer::Ended { now: now.to_vec(), already: already.to_vec() };
    let ids = vec![id.clone()];
    assert_eq!(job.ask(Ask::Commit { ids: ids.clone() }), ended(&ids, &[]));
    assert_eq!(job.ask(Ask::Commit { ids: ids.clone() }), ended(&[], &ids));
    assert_eq!(visible(&served), 3, "two records and the marker");
    assert!(
        matches!(job.ask(Ask::Outcomes { after: None }), Answer::Outcomes { outcomes, more: false } if outcomes.len() == 1)
    );
    let Answer::Outcomes { outcomes, .. } = job.ask(Ask::Outcomes { after: Some(id.clone()) }) else {
        panic!("a page")
    };
    assert!(outcomes.is_empty(), "none behind the last one");
    for _ in 0..2 {
        assert_eq!(job.ask(Ask::Forget { ids: ids.clone() }), Answer::Done);
    }
    assert_eq!(refused(job.ask(Ask::Commit { ids })), Why::UnknownTransaction, "forgotten, loudly");
}

#[test]
fn an_older_attempt_is_fenced_in_all_it_asks_and_what_it_prepared_is_the_newer_ones() {
    let served = serve();
    let topic = served.log.create_topic("out", 1).unwrap();
    let mut old = Job::claimed(&served, 1);
    let prepared = old.prepared(topic, 1, &["kept"]);
    let open = old.begin(2);
    let batch_2 = batch(open, 0, true, &["never"]);
    assert!(matches!(old.append(topic, &batch_2, false), Answer::Appended(_)));
    let direct = match old.ask(Ask::Producer) {
        Answer::Producer { id, epoch } => (id, epoch),
        other => panic!("{other:?}"),
    };
    assert!(matches!(old.append(topic, &batch(direct, 0, false, &["at once"]), true), Answer::Appended(_)));

    let mut new = Job::claimed(&served, 2);
    let (ids, sent) = (vec![prepared.clone()], Sent { bytes: batch_2.len() as u64, records: 1 });
    let id_2 = old.id(2);
    for what in [
        Ask::Claim,
        Ask::Begin { checkpoint: 3, sink: "out".to_string(), writer: 0 },
        Ask::Append { topic, partition: 0, durable: false, batch: batch(open, 1, true, &["late"]).to_vec() },
        Ask::Append { topic, partition: 0, durable: true, batch: batch(direct, 1, false, &["late"]).to_vec() },
        Ask::Prepare { id: id_2, sent },
        Ask::Commit { ids: ids.clone() },
        Ask::Abort { ids: ids.clone() },
        Ask::Live,
        Ask::Outcomes { after: None },
        Ask::Forget { ids: ids.clone() },
    ] {
        assert_eq!(refused(old.ask(what.clone())), Why::Fenced, "{what:?}");
    }
    assert_eq!(new.ask(Ask::Live), Answer::Live(vec![(prepared, TxnPhase::Prepared)]), "what was open is aborted");
    assert_eq!(new.ask(Ask::Commit { ids: ids.clone() }), Answer::Ended { now: ids, already: vec![] });
}

#[test]
fn nobody_writes_into_anothers_transaction_and_a_commit_is_all_or_nothing() {
    let served = serve();
    let topic = served.log.create_topic("out", 1).unwrap();
    let mut job = Job::claimed(&served, 1);
    let prepared = job.prepared(topic, 1, &["a"]);
    let mut other = Job::claimed(&served, 2);
    assert_eq!(other.attempt, 2);
    let mut stranger = served.client();
    let of = AttemptOf { owner: OwnerId(7), attempt: 1 };
    assert_eq!(ask(&mut stranger, &Request::Attempt { of, ask: Ask::Claim }), Answer::Done);
    let open = other.begin(2);
    let foreign = Ask::Append { topic, partition: 0, durable: false, batch: batch(open, 0, true, &["x"]).to_vec() };
    assert_eq!(refused(ask(&mut stranger, &Request::Attempt { of, ask: foreign })), Why::NotOpen);
    let unknown = TxnId { checkpoint: 99, ..prepared.clone() };
    assert_eq!(
        refused(other.ask(Ask::Commit { ids: vec![prepared.clone(), unknown] })),
        Why::UnknownTransaction,
        "all or none"
    );
    assert_eq!(visible(&served), 0);
    let refusal = ask(&mut stranger, &Request::Attempt { of, ask: Ask::Commit { ids: vec![prepared.clone()] } });
    assert_eq!(refused(refusal), Why::UnknownTransaction, "somebody else's");
    let answer = other.ask(Ask::Abort { ids: vec![prepared.clone()] });
    assert_eq!(answer, Answer::Ended { now: vec![prepared.clone()], already: vec![] });
    assert_eq!(refused(other.ask(Ask::Commit { ids: vec![prepared] })), Why::Aborted);
}

#[test]
fn topics_are_found_and_made_and_known_to_kafka_clients_by_the_same_uuid() {
    let served = serve();
    let mut client = served.client();
    let named = |topic: &str| Request::Topic { name: topic.to_string() };
    let new = |partitions| Request::TopicOrNew { name: "out".to_string(), partitions };
    assert_eq!(ask(&mut client, &named("out")), Answer::Topic(None));
    let Answer::Topic(Some(made)) = ask(&mut client, &new(3)) else { panic!("it is made") };
    assert_eq!(made.partitions.len(), 3);
    assert_eq!(ask(&mut client, &new(3)), Answer::Topic(Some(made.clone())));
    assert_eq!(refused(ask(&mut client, &new(2))), Why::Invalid);
    // Many at once, as the workers of a job ask: whoever hears of it can use it.
    for round in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let (mut client, name) = (served.client(), format!("together-{round}"));
                    let found = match ask(&mut client, &Request::Topic { name: name.clone() }) {
                        Answer::Topic(Some(found)) => found,
                        Answer::Topic(None) => match ask(&mut client, &Request::TopicOrNew { name, partitions: 2 }) {
                            Answer::Topic(Some(made)) => made,
                            other => panic!("{other:?}"),
                        },
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(found.partitions.len(), 2);
                });
            }
        });
    }
    let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(name("out")));
    let metadata = client.ask(12, MetadataRequest::default().with_topics(Some(vec![topic])));
    assert_eq!(metadata.topics[0].topic_id.as_u128(), made.uuid);
}

#[test]
fn the_api_is_listed_to_our_own_clients_alone_and_other_bytes_end_the_connection() {
    let served = serve();
    let listed = |software: &'static str| {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(software))
            .with_client_software_version(StrBytes::from_static_str("1"));
        let response = served.client().ask(3, request);
        response.api_keys.iter().any(|api| api.api_key == API_KEY)
    };
    assert!(listed(SOFTWARE));
    assert!(!listed("librdkafka"));
    for body in [&b""[..], &[99], &[3, 1, 2]] {
        let mut client = served.client();
        send(&mut client, 1, body);
        assert!(client.frame().is_none(), "{body:?} ends the connection");
    }
}
