//! What looking at a request takes in memory, counted by the allocator: a multiple of its bytes that follows from the sizes of
//! what is decoded, whatever the request says of itself (I-9). Fuzzing measures the same; this is its fixed part.

use cutwater_broker::{look_at_frame, made_up_frame, most_memory_for_frame};
use cutwater_platform::SplitMix;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The most bytes of memory while `look` runs. One test alone, so that nobody else allocates meanwhile.
fn peak(look: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    look();
    MEMORY.peak_usage().saturating_sub(before)
}

#[test]
fn no_made_up_request_takes_more_memory_than_its_bytes_are_worth() {
    let mut random = SplitMix::new(21);
    let mut dearest = 0;
    for _ in 0..20_000 {
        let choices: Vec<u8> = (0..24).flat_map(|_| random.next().to_le_bytes()).collect();
        let frame = made_up_frame(&choices);
        let taken = peak(|| {
            look_at_frame(&frame);
        });
        let most = most_memory_for_frame(frame.len());
        assert!(taken <= most, "{taken} bytes for {} of a frame, at most {most}: {frame:?}", frame.len());
        dearest = dearest.max(taken);
    }
    assert!(dearest > 10_000, "the measure measures: {dearest}");
    // What a decoder that believes a count would do is far above the bound.
    let planted = peak(|| drop(Vec::<[u8; 100]>::with_capacity(200_000)));
    assert!(planted > most_memory_for_frame(1_000), "{planted}");
}
