//! Batches that another implementation has compressed (`interop/batches/generate.py`), read record by record.

use cutwater_partition_log::batch::{BatchBuilder, Compression, Limits, ProducerStamp, records, verify};

const STAMP: ProducerStamp = ProducerStamp { producer_id: 4711, epoch: 3, base_sequence: 100, transactional: false };

const TIME: i64 = 1_700_000_000_000;

type Record = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// The generator's rule.
fn expected() -> Vec<Record> {
    let record = |n: i64| {
        let key = (n % 3 != 0).then(|| format!("key-{}", n % 17).into_bytes());
        let text = format!("flight {n} of carrier {}, delayed by {} minutes; ", n % 16, n * n % 181).repeat(2);
        let value = (n % 50 != 7).then(|| text.into_bytes());
        let headers = vec![(b"via".to_vec(), Some(b"ORD".to_vec())), (b"via".to_vec(), None)];
        (TIME + n * 3 - n % 5, key, value, if n % 10 == 0 { headers } else { Vec::new() })
    };
    (0..400).map(record).collect()
}

fn read(batch: &[u8]) -> Vec<Record> {
    let header = verify(batch, &Limits::DEFAULT).expect("a sound batch");
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (4711, 3, 100));
    assert_eq!((header.record_count, header.base_timestamp_ms, header.max_timestamp_ms), (400, TIME, TIME + 1193));
    let records = records(batch, &Limits::DEFAULT).expect("decompresses");
    let record = |(index, record): (usize, Result<_, _>)| {
        let record: cutwater_partition_log::batch::RecordRef<'_> = record.expect("a record");
        assert_eq!(record.offset, index as i64);
        let headers = record.headers().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
        (record.timestamp_ms, record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec), headers)
    };
    records.iter().enumerate().map(record).collect()
}

fn build(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    for (time, key, value, headers) in expected() {
        let headers: Vec<_> = headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        builder.push(time, key.as_deref(), value.as_deref(), &headers).expect("fits");
    }
    builder.build(STAMP).expect("sound")
}

#[test]
fn what_another_client_has_compressed_is_read_record_by_record() {
    let fixtures: [(Compression, &[u8]); 6] = [
        (Compression::None, include_bytes!("fixtures/none.batch")),
        (Compression::Gzip, include_bytes!("fixtures/gzip.batch")),
        (Compression::Snappy, include_bytes!("fixtures/snappy.batch")),
        (Compression::Snappy, include_bytes!("fixtures/snappy-bare.batch")),
        (Compression::Lz4, include_bytes!("fixtures/lz4.batch")),
        (Compression::Zstd, include_bytes!("fixtures/zstd.batch")),
    ];
    for (compression, fixture) in fixtures {
        let header = verify(fixture, &Limits::DEFAULT).expect("a sound batch");
        assert_eq!(header.compression(), Ok(compression));
        assert!(read(fixture) == expected(), "{compression:?}");
    }
}

#[test]
fn an_uncompressed_batch_is_byte_for_byte_what_another_client_writes() {
    let mut ours = build(Compression::None);
    let theirs = include_bytes!("fixtures/none.batch");
    // They write -1 where the log puts its generation; the checksum leaves it out.
    ours[12..16].copy_from_slice(&theirs[12..16]);
    assert!(ours == theirs);
}

#[test]
fn every_codec_of_ours_is_read_back_and_about_as_small_as_theirs() {
    let sizes: [usize; 4] = [
        include_bytes!("fixtures/gzip.batch").len(),
        include_bytes!("fixtures/snappy.batch").len(),
        include_bytes!("fixtures/lz4.batch").len(),
        include_bytes!("fixtures/zstd.batch").len(),
    ];
    for (compression, theirs) in Compression::ALL.into_iter().skip(1).zip(sizes) {
        let ours = build(compression);
        assert!(read(&ours) == expected(), "{compression:?}");
        assert!(ours.len() < theirs * 3 / 2, "{compression:?}: {} bytes, theirs has {theirs}", ours.len());
    }
}
