//! Any records come back; any damage is refused; no lie about a length or count costs memory.

use cutwater_partition_log::batch::{
    BatchBuilder, BatchHeader, Compression, Limits, ProducerStamp, RecordRef, assign, control_kind, records,
    records_reusing, verify, verify_stored,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq)]
struct Record {
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn record() -> impl Strategy<Value = Record> {
    let bytes = || vec(any::<u8>(), 0..80);
    let times = prop_oneof![3 => 1_700_000_000_000i64..1_700_000_100_000, 1 => -(1i64 << 62)..(1i64 << 62)];
    let headers = vec((vec(any::<u8>(), 0..5), option::of(bytes())), 0..4);
    (times, option::of(bytes()), option::of(bytes()), headers).prop_map(|(timestamp_ms, key, value, headers)| Record {
        timestamp_ms,
        key,
        value,
        headers,
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(Compression::ALL.to_vec())
}

fn build(all: &[Record], compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    for record in all {
        let headers: Vec<_> = record.headers.iter().map(|(k, v)| (k.as_slice(), v.as_deref())).collect();
        let pushed = builder.push(record.timestamp_ms, record.key.as_deref(), record.value.as_deref(), &headers);
        pushed.expect("small");
    }
    let estimate = builder.encoded_len_estimate();
    let batch = builder.build(ProducerStamp::NONE).expect("not empty");
    assert!(compression != Compression::None || batch.len() == estimate);
    batch
}

fn owned(record: RecordRef<'_>) -> Record {
    Record {
        timestamp_ms: record.timestamp_ms,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect(),
    }
}

proptest! {
    #[test]
    fn records_come_back_as_they_were(all in vec(record(), 1..40), compression in compression(), base in 0..i64::MAX / 2) {
        let mut batch = build(&all, compression);
        let header = verify(&batch, &Limits::DEFAULT).expect("our own batch");
        prop_assert_eq!(header.record_count as usize, all.len());
        prop_assert_eq!(Some(header.max_timestamp_ms), all.iter().map(|r| r.timestamp_ms).max());
        assign(&mut batch, base, 1);
        let mut scratch = vec![7; 10];
        let reused = records_reusing(&batch, &Limits::DEFAULT, &mut scratch).expect("good");
        let fresh = records(&batch, &Limits::DEFAULT).expect("good");
        for records in [reused, fresh] {
            let read: Vec<_> = records.iter().collect::<Result<_, _>>().expect("good");
            let offsets: Vec<i64> = read.iter().map(|r| r.offset).collect();
            prop_assert_eq!(offsets, (base..base + all.len() as i64).collect::<Vec<_>>());
            prop_assert_eq!(&read.into_iter().map(owned).collect::<Vec<_>>(), &all);
        }
    }

    #[test]
    fn a_changed_byte_is_refused(all in vec(record(), 1..6), compression in compression(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut batch = build(&all, compression);
        let at = at.index(batch.len());
        batch[at] ^= flip;
        let refused = verify(&batch, &Limits::DEFAULT).is_err();
        // Base offset and leader epoch are the log's to assign; the checksum leaves them out.
        prop_assert_eq!(refused, !(at < 8 || (12..16).contains(&at)), "byte {}", at);
    }

    #[test]
    fn a_cut_batch_is_refused(all in vec(record(), 1..6), compression in compression(), at in any::<prop::sample::Index>()) {
        let batch = build(&all, compression);
        let cut = &batch[..at.index(batch.len())];
        prop_assert!(verify(cut, &Limits::DEFAULT).is_err());
        prop_assert!(verify_stored(cut, &Limits::DEFAULT).is_err());
        prop_assert!(records(cut, &Limits::DEFAULT).is_err());
    }

    /// The checksum is bypassed here: decoders must stand on their own.
    #[test]
    fn decoding_damaged_bytes_never_panics_and_never_yields_more_than_is_there(
        all in vec(record(), 1..6),
        compression in compression(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut batch = build(&all, compression);
        for (at, byte) in damage {
            // Magic and length stay, or the decoder wouldn't look further.
            let at = 17 + at.index(batch.len() - 17);
            batch[at] = byte;
        }
        let _ = control_kind(&batch);
        if let Ok(records) = records(&batch, &Limits::DEFAULT) {
            let read: Vec<_> = records.iter().collect();
            let errors = read.iter().filter(|r| r.is_err()).count();
            prop_assert!(errors <= 1 && read.iter().rposition(Result::is_err).is_none_or(|at| at == read.len() - 1));
            let ok: Vec<RecordRef<'_>> = read.into_iter().flatten().collect();
            prop_assert!(ok.len() * 7 <= Limits::DEFAULT.decompressed_bytes, "a record has at least seven bytes");
            prop_assert!(ok.windows(2).all(|w| w[0].offset < w[1].offset));
            for record in ok {
                prop_assert!(record.headers().count() < Limits::DEFAULT.decompressed_bytes);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300)) {
        for force_magic in [false, true] {
            if let (true, Some(magic)) = (force_magic, bytes.get_mut(16)) {
                *magic = 2;
                bytes[8..12].copy_from_slice(&[0, 0, 0, 60]);
            }
            let _ = BatchHeader::parse(&bytes);
            let _ = verify(&bytes, &Limits::DEFAULT);
            let _ = control_kind(&bytes);
            if let Ok(records) = records(&bytes, &Limits::DEFAULT) {
                let _ = records.iter().count();
            }
        }
    }
}

#[test]
fn lying_counts_are_refused_at_the_first_record_that_is_missing() {
    let record = Record { timestamp_ms: 5, key: None, value: Some(vec![1; 20]), headers: vec![] };
    let good = build(&vec![record; 3], Compression::None);
    let mut lying = good.clone();
    lying[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    lying[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    let records = records(&lying, &Limits::DEFAULT).expect("the header alone looks plausible");
    assert_eq!(records.iter().count(), 4, "three records and an error");
    assert_eq!(records.iter().size_hint().0, 0, "nobody reserves memory on the count's word");
    // A record, a key, and a count of headers of 2^31 - 1, each as the zigzag varint ff ff ff ff 0f.
    for at in [61, 65, 67] {
        let mut lying = good[..61].to_vec();
        let mut body = good[61..].to_vec();
        body.splice(at - 61..at - 60, [0xFE, 0xFF, 0xFF, 0xFF, 0x0F]);
        lying.extend(body);
        let length = (lying.len() - 12) as i32;
        lying[8..12].copy_from_slice(&length.to_be_bytes());
        let read: Vec<_> = cutwater_partition_log::batch::records(&lying, &Limits::DEFAULT)
            .expect("the header is fine")
            .iter()
            .map(|record| record.is_ok())
            .collect();
        assert_eq!(read, [false], "at {at}");
    }
}
