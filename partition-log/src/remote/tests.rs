use super::*;
use crate::core::TxnPhase;
use crate::error::Sent;
use crate::group::{GroupProgress, OffsetCommit};
use crate::offset::{Offset, PartitionOffsets};
use crate::owner::{OwnerId, TxnId};
use crate::topic::{TopicId, TopicPartition};
use crate::wal::frame::Outcome;
use proptest::prelude::*;

fn id(n: u32) -> TxnId {
    TxnId { owner: OwnerId(9), attempt: 3, checkpoint: u64::from(n), sink: "delays".to_string(), writer: n }
}

fn requests() -> Vec<Request> {
    let of = AttemptOf { owner: OwnerId(u128::MAX - 1), attempt: 7 };
    let ids = || vec![id(1), id(2)];
    let asks = [
        Ask::Claim,
        Ask::Producer,
        Ask::Begin { checkpoint: 5, sink: "late".to_string(), writer: 1 },
        Ask::Append { topic: TopicId(4), partition: 2, durable: true, batch: vec![1, 2, 3] },
        Ask::Prepare { id: id(1), sent: Sent { bytes: 10, records: 2 } },
        Ask::Commit { ids: ids() },
        Ask::CommitWith { ids: ids(), progress: vec![] },
        Ask::CommitWith {
            ids: vec![],
            progress: vec![
                GroupProgress { group: "empty".to_string(), offsets: vec![] },
                GroupProgress {
                    group: "count".to_string(),
                    offsets: (0..2)
                        .map(|n| OffsetCommit {
                            at: TopicPartition::new(TopicId(n), n),
                            offset: Offset(u64::MAX),
                            metadata: "checkpoint 7".to_string(),
                        })
                        .collect(),
                },
            ],
        },
        Ask::Abort { ids: ids() },
        Ask::Live,
        Ask::Outcomes { after: None },
        Ask::Outcomes { after: Some(id(4)) },
        Ask::Forget { ids: vec![] },
    ];
    let mut all = vec![
        Request::Topic { name: "flights".to_string() },
        Request::TopicOrNew { name: "flights".to_string(), partitions: 3 },
    ];
    all.extend(asks.into_iter().map(|ask| Request::Attempt { of, ask }));
    all
}

fn answers() -> Vec<Answer> {
    let at = PartitionOffsets {
        log_start: Offset(1),
        last_stable: Offset(2),
        high_watermark: Offset(3),
        log_end: Offset(u64::MAX),
    };
    vec![
        Answer::Refused(Refusal { why: Why::Fenced, ids: vec![id(1)], said: "no".to_string() }),
        Answer::Topic(None),
        Answer::Topic(Some(RemoteTopic { id: TopicId(3), uuid: 77, partitions: vec![at, at] })),
        Answer::Done,
        Answer::Producer { id: -1, epoch: 3 },
        Answer::Appended(Offset(12)),
        Answer::Ended { now: vec![id(1)], already: vec![id(2), id(3)] },
        Answer::Live(vec![(id(1), TxnPhase::Open), (id(2), TxnPhase::Prepared)]),
        Answer::Outcomes { outcomes: vec![(id(1), Outcome::Committed), (id(2), Outcome::Aborted)], more: true },
    ]
}

fn bytes_of(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![];
    encode(&mut out);
    out
}

#[test]
fn every_request_and_answer_survives_bytes_and_none_that_is_cut_or_goes_on_is_taken() {
    for request in requests() {
        let bytes = bytes_of(|out| request.encode(out));
        assert_eq!(Request::decode(&bytes), Ok(request.clone()));
        for cut in 0..bytes.len() {
            assert!(Request::decode(&bytes[..cut]).is_err(), "{request:?} cut at {cut}");
        }
        assert!(Request::decode(&[&bytes[..], &[0]].concat()).is_err(), "{request:?} and more");
    }
    for answer in answers() {
        let bytes = bytes_of(|out| answer.encode(out));
        assert_eq!(Answer::decode(&bytes), Ok(answer.clone()));
        for cut in 0..bytes.len() {
            assert!(Answer::decode(&bytes[..cut]).is_err(), "{answer:?} cut at {cut}");
        }
        assert!(Answer::decode(&[&bytes[..], &[0]].concat()).is_err(), "{answer:?} and more");
    }
}

#[test]
fn a_count_that_promises_more_than_there_is_allocates_nothing() {
    let commit = Request::Attempt { of: AttemptOf { owner: OwnerId(1), attempt: 1 }, ask: Ask::Commit { ids: vec![] } };
    let mut bytes = bytes_of(|out| commit.encode(out));
    let count = bytes.len() - 4;
    bytes[count..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Request::decode(&bytes), Err(NotOwners { what: "transactions", at: bytes.len() }));
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..15) {
        let bytes = [&[kind], &bytes[..]].concat();
        let _ = (Request::decode(&bytes), Answer::decode(&bytes));
    }
}
