//! Record batches from strangers: no panic, no allocation beyond the limits, and what verifies can be walked.
#![no_main]

use cutwater_partition_log::batch::{BatchHeader, Limits, control_kind, records, verify, verify_stored};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { decompressed_bytes: 1 << 20, ..Limits::default() };
    let _ = BatchHeader::parse(bytes);
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
