//! Batches put together by hand, byte by byte, from the format's table.

use super::*;

/// Zigzag, seven bits a byte.
fn varint(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

fn record(delta: i64, key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend(varint(0));
    body.extend(varint(delta));
    match key {
        None => body.extend(varint(-1)),
        Some(key) => body.extend([varint(key.len() as i64), key.to_vec()].concat()),
    }
    body.extend([varint(value.len() as i64), value.to_vec()].concat());
    body.extend([varint(1), varint(1), b"h".to_vec(), varint(-1)].concat());
    [varint(body.len() as i64), body].concat()
}

fn batch(first: i64, producer: i64, attributes: i16, records: &[Vec<u8>]) -> Vec<u8> {
    let count = records.len() as i32;
    let mut checked = attributes.to_be_bytes().to_vec();
    checked.extend((count - 1).to_be_bytes());
    checked.extend([0; 16]);
    checked.extend(producer.to_be_bytes());
    checked.extend([0; 6]);
    checked.extend(count.to_be_bytes());
    checked.extend(records.concat());
    let mut out = first.to_be_bytes().to_vec();
    out.extend((checked.len() as i32 + 9).to_be_bytes());
    out.extend([0; 4]);
    out.push(2);
    out.extend(crc::crc32c(&checked).to_be_bytes());
    out.extend(checked);
    out
}

const PLAIN: i16 = 0;
const IN_TRANSACTION: i16 = 0x10;
const CONTROL: i16 = 0x30;

fn rows(first: i64, producer: i64, attributes: i16, values: &[&str]) -> Vec<u8> {
    let records: Vec<_> = (0..).zip(values).map(|(delta, value)| record(delta, None, value.as_bytes())).collect();
    batch(first, producer, attributes, &records)
}

fn marker(offset: i64, producer: i64, commit: bool) -> Vec<u8> {
    batch(offset, producer, CONTROL, &[record(0, Some(&[0, 0, 0, u8::from(commit)]), &[0; 6])])
}

fn read(segments: &[(i64, Vec<u8>)]) -> Result<Partition, String> {
    let mut reader = Reader::default();
    for (base, bytes) in segments {
        reader.segment(*base, bytes)?;
    }
    reader.finish()
}

fn values(partition: &Partition) -> Vec<String> {
    let text = |r: &Record| String::from_utf8(r.value.clone().unwrap()).unwrap();
    partition.records.iter().map(text).collect()
}

#[test]
fn committed_rows_are_seen_in_the_order_of_offsets_and_aborted_ones_never() {
    let bytes = [
        rows(0, 7, IN_TRANSACTION, &["a", "b"]),
        rows(2, 8, IN_TRANSACTION, &["gone"]),
        rows(3, -1, PLAIN, &["c"]),
        marker(4, 8, false),
        rows(5, 7, IN_TRANSACTION, &["d"]),
        marker(6, 7, true),
        // The same producer again: a new transaction.
        rows(7, 8, IN_TRANSACTION, &["e"]),
        marker(8, 8, true),
    ];
    let partition = read(&[(0, bytes.concat())]).unwrap();
    assert_eq!(values(&partition), ["a", "b", "c", "d", "e"]);
    assert_eq!(partition.records.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 1, 3, 5, 7]);
    assert_eq!((partition.committed, partition.aborted, partition.aborted_records), (2, 1, 1));
    // A transaction may span segments.
    let split = read(&[(0, bytes[..3].concat()), (4, bytes[3..].concat())]).unwrap();
    assert_eq!(split, partition);
}

#[test]
fn a_compressed_batch_reads_like_a_plain_one() {
    use std::io::Write;
    let records = [record(0, Some(b"k"), b"v"), record(1, None, b"w")];
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&records.concat()).unwrap();
    let packed = lz4.finish().unwrap();
    let mut bytes = batch(0, -1, 3, &[packed]);
    // Two records, though one piece of bytes was put in: last offset delta and count, and the checksum over both.
    bytes[23..27].copy_from_slice(&1i32.to_be_bytes());
    bytes[57..61].copy_from_slice(&2i32.to_be_bytes());
    let crc = crc::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let partition = read(&[(0, bytes)]).unwrap();
    assert_eq!(values(&partition), ["v", "w"]);
    assert_eq!(partition.records[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(partition.records[0].headers, [("h".to_string(), None)]);
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let good = rows(0, -1, PLAIN, &["a"]);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        // The leader epoch is the only field that neither the checksum nor a rule covers.
        assert_eq!(read(&[(0, bad)]).is_ok(), (12..16).contains(&at), "byte {at}");
        if at > 0 {
            assert!(read(&[(0, good[..at].to_vec())]).is_err(), "cut at {at}");
        }
    }
    let open = read(&[(0, rows(0, 7, IN_TRANSACTION, &["a", "b"]))]).unwrap_err();
    assert_eq!(open, "the transaction of producer 7 with 2 records has not ended");
    let gap = read(&[(0, [good.clone(), rows(2, -1, PLAIN, &["b"])].concat())]).unwrap_err();
    assert!(gap.contains("offsets 2 to 2 where Some(1) must follow"), "{gap}");
    assert!(read(&[(0, good), (5, vec![])]).unwrap_err().contains("begins at offset 5"));
}

/// The example at the end of `docs/formats/batch.md`.
#[test]
fn the_documented_example_reads_as_documented() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/formats/batch.md")).unwrap();
    let example = document.split("```text").last().unwrap().split("```").next().unwrap();
    let is_byte =
        |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
    let bytes: Vec<u8> = example
        .lines()
        .flat_map(|line| line.split(' ').take_while(is_byte))
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    assert_eq!(bytes.len(), 70);
    let partition = read(&[(0, bytes)]).unwrap();
    let record = Record { offset: 0, key: Some(b"k".to_vec()), value: Some(b"v".to_vec()), headers: vec![] };
    assert_eq!(partition.records, [record]);
}
