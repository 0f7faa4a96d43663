//! Requests of Kafka's protocol: whatever the bytes are, the guard refuses them or they are decoded, and neither panics nor
//! takes more memory than the bytes are worth.
#![no_main]

use cutwater_broker::{look_at_frame, most_memory_for_frame};
use cutwater_fuzz::measured;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let look = |frame: &[u8]| measured(most_memory_for_frame(frame.len()), || look_at_frame(frame));
    look(bytes);
    // A plausible header in front, so that the bodies of all APIs and versions are reached.
    if let [key, version, body @ ..] = bytes {
        let mut frame = vec![0, *key, 0, *version, 0, 0, 0, 1, 0xFF, 0xFF];
        frame.extend_from_slice(body);
        look(&frame);
    }
});
