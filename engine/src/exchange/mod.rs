//! Why records move: equal keys meet on one worker. Order is promised inside a channel, never across channels.

mod channel;
mod credit;
mod key_group;
mod signal;

pub use channel::ChannelIndex;
pub use credit::{CreditError, EdgeCredit, Processed};
pub use key_group::{
    CanonicalKey, GroupAssignment, GroupRange, HASH_ID, KeyGroup, KeyGroups, KeyGroupsError, KeySink, TEST_VECTORS,
    canonical_bytes, group_of, table_hash, test_vectors,
};
pub use signal::{SignalCoalescer, Signals};
