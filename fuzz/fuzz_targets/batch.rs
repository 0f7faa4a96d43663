//! Record batches from strangers, under every codec: no panic, no allocation beyond the limits, what verifies can be
//! walked, and what we compress comes back.
#![no_main]

use cutwater_partition_log::batch::{
    BatchBuilder, BatchHeader, Compression, Limits, ProducerStamp, control_kind, records, verify, verify_stored,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { decompressed_bytes: 1 << 20, ..Limits::default() };
    let _ = BatchHeader::parse(bytes);
    // The same block under every codec, so that the fuzzer needn't find the bits.
    for codec in Compression::ALL {
        let mut batch = bytes.to_vec();
        if let Some(attributes) = batch.get_mut(22) {
            *attributes = (*attributes & !7) | codec.codec() as u8;
        }
        let _ = records(&batch, &limits).map(|records| records.iter().count());
        let mut builder = BatchBuilder::new(codec);
        builder.push(1, None, Some(bytes), &[]).expect("small");
        let built = builder.build(ProducerStamp::NONE).expect("a record");
        let read = records(&built, &limits).expect("our own");
        let value = read.iter().next().expect("one").expect("sound").value;
        assert_eq!(value, Some(bytes), "{codec:?}");
    }
    let _ = control_kind(bytes);
    let _ = verify_stored(bytes, &limits);
    let verified = verify(bytes, &limits).is_ok();
    // Walked without looking at the checksum, so that the fuzzer needn't guess it.
    if let Ok(batch) = records(bytes, &limits) {
        let mut whole = true;
        for record in &batch {
            let Ok(record) = record else {
                whole = false;
                break;
            };
            record.headers().count();
        }
        assert!(whole || !verified, "a verified batch can be walked to its end");
    } else {
        assert!(!verified, "a verified batch can be walked");
    }
});
