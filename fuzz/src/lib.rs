//! What the targets share: an allocator that counts, and the check that what was looked at took no more memory than it may.

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs `look` and panics if its memory ever was above `most` bytes. The bound follows from the sizes of what is decoded, so
/// that a decoder which believes a length is found at its first lie, not when the machine's memory is used up.
pub fn measured<T>(most: usize, look: impl FnOnce() -> T) -> T {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let looked = look();
    let peak = MEMORY.peak_usage().saturating_sub(before);
    assert!(peak <= most, "{peak} bytes of memory, at most {most} are allowed");
    looked
}
