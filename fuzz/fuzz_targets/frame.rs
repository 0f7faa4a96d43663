//! Requests of Kafka's protocol: whatever the bytes are, the guard refuses them or they are decoded, and neither panics nor
//! asks for more memory than the bytes are worth (libFuzzer's own limit finds that).
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    cutwater_broker::look_at_frame(bytes);
    // A plausible header in front, so that the bodies of all APIs and versions are reached.
    if let [key, version, body @ ..] = bytes {
        let mut frame = vec![0, *key, 0, *version, 0, 0, 0, 1, 0xFF, 0xFF];
        frame.extend_from_slice(body);
        cutwater_broker::look_at_frame(&frame);
    }
});
