//! Batches written byte by byte from Kafka's format table, with a checksum computed the slow way.

use cutwater_partition_log::batch::{
    BatchBuilder, BatchError, BatchHeader, Compression, ControlKind, Limits, ProducerStamp, assign, control_batch,
    control_kind, records, restamp, verify, verify_stored,
};

/// CRC-32C, one bit at a time: polynomial 0x1EDC6F41, reflected.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    !crc
}

/// Puts the right checksum into a batch that was written by hand.
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Two records of an idempotent producer; every field differs from its neighbours.
#[rustfmt::skip]
fn two_records(codec: u8, block: &[u8]) -> Vec<u8> {
    let length = u8::try_from(49 + block.len()).expect("small");
    let mut batch = vec![
        0, 0, 0, 0, 0, 0, 0, 0,         // base offset
        0, 0, 0, length,                // length
        0, 0, 0, 0,                     // leader epoch
        2,                              // magic
        0, 0, 0, 0,                     // checksum, by `sealed`
        0, 0x10 | codec,                // attributes: transactional, codec
        0, 0, 0, 1,                     // last offset delta
        0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 0, // base timestamp 1,700,000,000,000
        0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 7, // largest timestamp, 7 ms later
        0, 0, 0, 0, 0, 0, 0x12, 0x34,   // producer id
        0, 5,                           // producer epoch
        0, 0, 1, 0,                     // base sequence
        0, 0, 0, 2,                     // count of records
    ];
    batch.extend_from_slice(block);
    sealed(batch)
}

#[rustfmt::skip]
const BLOCK: [u8; 27] = [
    // The first record. All lengths and deltas are zigzag: 2n for n >= 0, and -1 is 1.
    19 * 2,                             // length of what follows
    0,                                  // attributes
    0,                                  // timestamp delta
    0,                                  // offset delta
    2, b'k',                            // key
    6, b'v', b'a', b'l',                // value
    3 * 2,                              // three headers
    2, b'h', 2, b'1',                   // h = 1
    2, b'h', 1,                         // h again, null
    0, 0,                               // empty key, empty value
    // The second record: no key, no value, no header.
    6 * 2, 0, 14, 2, 1, 1, 0,
];

const STAMP: ProducerStamp = ProducerStamp { producer_id: 0x1234, epoch: 5, base_sequence: 256, transactional: true };
const TIME: i64 = 1_700_000_000_000;

fn build(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    builder.push(TIME, Some(b"k"), Some(b"val"), &[(b"h", Some(b"1")), (b"h", None), (b"", Some(b""))]).expect("small");
    builder.push(TIME + 7, None, None, &[]).expect("small");
    assert_eq!((builder.record_count(), builder.encoded_len_estimate()), (2, 61 + 27));
    let batch = builder.build(STAMP).expect("good");
    assert_eq!((builder.record_count(), builder.encoded_len_estimate()), (0, 61), "ready for the next");
    batch
}

#[test]
fn the_slow_checksum_is_right() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
}

#[test]
fn an_uncompressed_batch_is_written_as_the_table_says() {
    assert_eq!(build(Compression::None), two_records(0, &BLOCK));
}

#[test]
fn a_handwritten_batch_is_read_field_by_field() {
    let mut batch = two_records(0, &BLOCK);
    let header = verify(&batch, &Limits::DEFAULT).expect("good");
    assert_eq!((header.base_offset, header.length, header.leader_epoch), (0, 76, 0));
    assert_eq!((header.attributes, header.last_offset_delta, header.record_count), (0x10, 1, 2));
    assert_eq!((header.base_timestamp_ms, header.max_timestamp_ms), (TIME, TIME + 7));
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (0x1234, 5, 256));
    assert_eq!((header.total_bytes(), header.is_transactional(), header.is_control()), (88, true, false));
    assign(&mut batch, 0x0102_0304_0506_0708, 9);
    assert_eq!(batch[..16], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 76, 0, 0, 0, 9]);
    let header = verify_stored(&batch, &Limits::DEFAULT).expect("the checksum leaves out what was assigned");
    assert_eq!((header.last_offset(), header.leader_epoch), (0x0102_0304_0506_0709, 9));
    let records = records(&batch, &Limits::DEFAULT).expect("good");
    let read: Vec<_> = records.iter().collect::<Result<_, _>>().expect("good");
    assert_eq!((read[0].offset, read[0].timestamp_ms), (0x0102_0304_0506_0708, TIME));
    assert_eq!((read[0].key, read[0].value), (Some(&b"k"[..]), Some(&b"val"[..])));
    let headers: Vec<_> = read[0].headers().collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (b"h", None), (b"", Some(b""))], "in order, with repeats");
    assert_eq!((read[1].offset, read[1].timestamp_ms), (0x0102_0304_0506_0709, TIME + 7));
    assert_eq!((read[1].key, read[1].value, read[1].headers().count()), (None, None, 0));
    assert_eq!(read.len(), 2);
}

#[test]
fn a_handwritten_lz4_frame_is_read_and_ours_reads_the_same() {
    // Magic, version 1 with independent blocks, blocks of 64 KiB, checksum of that; one block as it is; end.
    let mut frame = vec![0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82, 27, 0, 0, 0x80];
    frame.extend_from_slice(&BLOCK);
    frame.extend_from_slice(&[0; 4]);
    let by_hand = two_records(3, &frame);
    assert_eq!(verify(&by_hand, &Limits::DEFAULT).expect("good").compression(), Ok(Compression::Lz4));
    let ours = build(Compression::Lz4);
    let plain = two_records(0, &BLOCK);
    let all = |batch: &[u8]| {
        let records = records(batch, &Limits::DEFAULT).expect("good");
        records.iter().map(|record| format!("{:?}", record.expect("good"))).collect::<Vec<_>>()
    };
    assert_eq!(all(&by_hand), all(&plain));
    assert_eq!(all(&ours), all(&plain));
}

#[test]
#[rustfmt::skip]
fn control_batches_are_written_as_the_table_says() {
    let expected = |kind: u8| sealed(vec![
        0, 0, 0, 0, 0, 0, 0, 0,         // base offset
        0, 0, 0, 66,                    // length
        0, 0, 0, 0,                     // leader epoch
        2, 0, 0, 0, 0,                  // magic, checksum
        0, 0x30,                        // transactional, control
        0, 0, 0, 0,                     // last offset delta
        0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 0,
        0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 0,
        0, 0, 0, 0, 0, 0, 0, 77,        // producer id
        0, 3,                           // producer epoch
        0xFF, 0xFF, 0xFF, 0xFF,         // no sequence
        0, 0, 0, 1,                     // one record
        32, 0, 0, 0,                    // 16 bytes, attributes, deltas
        8, 0, 0, 0, kind,               // key: version 0, type
        12, 0, 0, 0, 0, 0, 11,          // value: version 0, coordinator epoch
        0,                              // no header
    ]);
    for (kind, code) in [(ControlKind::Abort, 0), (ControlKind::Commit, 1)] {
        let batch = control_batch(kind, 77, 3, 11, TIME);
        assert_eq!(batch, expected(code));
        assert_eq!(control_kind(&batch), Ok(Some(kind)));
        verify_stored(&batch, &Limits::DEFAULT).expect("the log's own batch");
        let refused = verify(&batch, &Limits::DEFAULT).expect_err("not from a client");
        assert!(matches!(refused, BatchError::Attributes { found: 0x30, .. }));
    }
    assert_eq!(control_kind(&expected(2)), Ok(None), "types that have nothing to do with transactions are ignored");
    assert_eq!(control_kind(&two_records(0, &BLOCK)), Ok(None));
    let mut no_key = expected(1);
    no_key[65] = 1; // a null key; what follows is then misread
    assert!(control_kind(&no_key).is_err());
}

#[test]
fn appended_time_replaces_the_records_own() {
    let mut batch = two_records(0, &BLOCK);
    batch[22] |= 0x08;
    let batch = sealed(batch);
    let records = records(&batch, &Limits::DEFAULT).expect("good");
    let times: Vec<i64> = records.iter().map(|record| record.expect("good").timestamp_ms).collect();
    assert_eq!(times, [TIME + 7, TIME + 7]);
    assert!(BatchHeader::parse(&batch).expect("good").is_log_append_time());
}

#[test]
fn each_rule_for_clients_refuses_by_name() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut batch = two_records(0, &BLOCK);
        change(&mut batch);
        verify(&sealed(batch), &Limits::DEFAULT).expect_err("a rule is broken")
    };
    let magic = |value: u8| with(&|b| b[16] = value);
    assert_eq!(magic(1), BatchError::Magic { found: 1 });
    assert_eq!(with(&|b| b[22] |= 5), BatchError::Codec { codec: 5 });
    assert_eq!(with(&|b| b[11] = 48), BatchError::Length { found: 48 });
    assert_eq!(with(&|b| b[11] = 77), BatchError::Short { expected: 89, found: 88 });
    let two = [two_records(0, &BLOCK), two_records(0, &BLOCK)].concat();
    assert_eq!(verify(&two, &Limits::DEFAULT), Err(BatchError::Trailing { extra: 88 }), "one batch per request");
    for bit in [0x08u8, 0x20, 0x40, 0x80] {
        assert!(matches!(with(&|b| b[22] |= bit), BatchError::Attributes { .. }), "bit {bit:#x}");
    }
    assert!(matches!(with(&|b| b[26] = 2), BatchError::Count { .. }), "last offset delta without its record");
    assert!(matches!(with(&|b| (b[26], b[60]) = (0, 1)), BatchError::Record { index: 1, .. }), "a record too many");
    assert!(matches!(with(&|b| (b[26], b[60]) = (2, 3)), BatchError::Record { index: 2, .. }), "a record too few");
    assert!(matches!(with(&|b| b[57..61].fill(0)), BatchError::Count { count: 0, .. }));
    assert!(matches!(with(&|b| b[84] = 0), BatchError::Record { index: 1, .. }), "the same offset twice");
    assert!(matches!(with(&|b| b[84] = 1), BatchError::Record { index: 1, .. }), "a falling offset");
    assert!(matches!(with(&|b| b[62] = 1), BatchError::Record { index: 0, .. }), "attributes of a record");
    assert!(matches!(with(&|b| b[51] = 0x80), BatchError::Producer { .. }), "a producer without an epoch");
    assert!(matches!(with(&|b| b[53] = 0x80), BatchError::Producer { .. }), "a producer without a sequence");
    assert!(matches!(with(&|b| b[43..57].fill(0xFF)), BatchError::Producer { .. }), "a transaction without a producer");
    let small = Limits { batch_bytes: 87, ..Limits::DEFAULT };
    let refused = verify(&two_records(0, &BLOCK), &small);
    assert_eq!(refused, Err(BatchError::TooLarge { bytes: 88, limit: 87 }));
    let mut damaged = two_records(0, &BLOCK);
    damaged[87] ^= 1;
    assert!(matches!(verify(&damaged, &Limits::DEFAULT), Err(BatchError::Crc { .. })));
}

#[test]
fn a_builder_refuses_what_no_batch_can_be() {
    let mut builder = BatchBuilder::new(Compression::None);
    assert_eq!(builder.build(ProducerStamp::NONE), Err(BatchError::Empty));
    builder.push(i64::MIN, None, Some(b"old"), &[]).expect("any time");
    assert!(matches!(builder.push(i64::MAX, None, None, &[]), Err(BatchError::Full { .. })));
    assert_eq!(builder.record_count(), 1, "the refused record left no trace");
    let transactional = ProducerStamp { transactional: true, ..ProducerStamp::NONE };
    assert!(matches!(builder.build(transactional), Err(BatchError::Producer { .. })));
    let batch = builder.build(ProducerStamp::NONE).expect("the record was kept");
    assert_eq!(verify(&batch, &Limits::DEFAULT).expect("good").record_count, 1);
}

#[test]
fn a_built_batch_can_be_given_another_stamp() {
    let mut batch = {
        let mut builder = BatchBuilder::new(Compression::None);
        builder
            .push(TIME, Some(b"k"), Some(b"val"), &[(b"h", Some(b"1")), (b"h", None), (b"", Some(b""))])
            .expect("small");
        builder.push(TIME + 7, None, None, &[]).expect("small");
        builder.build(ProducerStamp::NONE).expect("good")
    };
    let plain = batch.clone();
    restamp(&mut batch, STAMP).expect("a client's batch");
    assert_eq!(batch, two_records(0, &BLOCK));
    restamp(&mut batch, ProducerStamp::NONE).expect("and back");
    assert_eq!(batch, plain);
    let contradiction = ProducerStamp { base_sequence: -1, ..STAMP };
    assert!(matches!(restamp(&mut batch, contradiction), Err(BatchError::Producer { .. })));
    assert!(matches!(restamp(&mut batch[..87], STAMP), Err(BatchError::Short { expected: 88, found: 87 })));
    let mut marker = control_batch(ControlKind::Commit, 1, 0, 0, 0);
    assert!(matches!(restamp(&mut marker, STAMP), Err(BatchError::Attributes { .. })));
    assert_eq!(batch, plain, "refusals change nothing");
}

#[test]
fn the_example_of_the_format_page_is_what_is_written() {
    let page = include_str!("../../docs/formats/batch.md");
    let example = page.split("## Example").nth(1).and_then(|rest| rest.split("```").nth(1)).expect("a block");
    let mut bytes = Vec::new();
    for line in example.lines().skip(1) {
        // Two hexadecimal digits and a space at a time, up to the explanation.
        let digits = line.split("   ").next().unwrap_or_default();
        bytes.extend(digits.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")));
    }
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(TIME, Some(b"k"), Some(b"v"), &[]).expect("small");
    assert_eq!(builder.build(ProducerStamp::NONE).expect("good"), bytes);
}
