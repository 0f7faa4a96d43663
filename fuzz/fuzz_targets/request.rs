//! Requests put together from samples and shapes of every API and version, and damaged: as `frame`, but nearly right.
#![no_main]

use cutwater_broker::{look_at_frame, made_up_frame, most_memory_for_frame};
use cutwater_fuzz::measured;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| {
    let frame = made_up_frame(choices);
    measured(most_memory_for_frame(frame.len()), || look_at_frame(&frame));
});
