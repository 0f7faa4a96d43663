//! What lies on the disk: indexes, write-ahead frames and their entries, base images and the state in them, memberships of
//! groups. No panic, no more memory than the bytes are worth, and what is read says the same when it is written and read again.
#![no_main]

use cutwater_broker::{look_at_membership, most_memory_for_membership};
use cutwater_fuzz::measured;
use cutwater_partition_log::look::{Kind, look};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match Kind::ALL.get(usize::from(*kind) % (Kind::ALL.len() + 1)) {
        Some(kind) => measured(kind.most_memory(bytes.len()), || look(*kind, bytes)),
        None => measured(most_memory_for_membership(bytes.len()), || look_at_membership(bytes)),
    };
});
