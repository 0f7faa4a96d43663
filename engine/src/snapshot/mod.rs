//! Snapshots on disk: what a checkpoint store contains, and how it is written, verified, listed and deleted.
//!
//! ```text
//!   layout     every name in the store, built and parsed in one place
//!   envelope   magic, version, length, checksum around small records        format   the same for state files, in blocks
//!   manifest   what makes a checkpoint complete (I-5)                        writer, reader, chain   state files
//!   entry      keys and values as bytes                                      inspect  looking in from outside
//!   walk       a chain as the entries it stands for                          merge    a chain into a new base
//!   view       state in a checkpoint, two checkpoints compared               compress blocks packed
//!   savepoint  a committed checkpoint in a folder of its own                 ahead    files asked for before they are read
//!   store      the trait: what a checkpoint store must promise               fs       a directory that keeps the promise
//! ```
//!
//! Which files may go is decided in `checkpoint/retain.rs`. `docs/formats/` has the bytes; `docs/recovery-checkpoints.md` what is found after a crash at each point.

mod ahead;
mod chain;
mod compress;
mod entry;
mod envelope;
mod format;
mod fs;
mod inspect;
mod layout;
mod manifest;
mod merge;
mod reader;
mod record;
mod savepoint;
mod store;
mod view;
mod view_text;
mod walk;
mod writer;

pub(crate) use ahead::fetch_newest;
pub use chain::{BrokenChain, Chain, ChainLimits};
pub(crate) use entry::{read_entry, write_entry};
pub use envelope::EnvelopeError;
pub(crate) use format::{BLOCK_HEADER_BYTES, payload_crc};
pub use format::{BLOCK_TARGET_BYTES, STATE_FORMAT, StateFileHeader};
pub use fs::FsStore;
pub use inspect::{CheckpointView, Contents, Inspection, StateView, inspect};
pub use layout::{
    BadStateName, ManifestName, StateFileName, StateName, attempt_name, base_name, parse_attempt_name, parse_base_name,
};
pub use manifest::{
    EncodedManifest, HashIdentity, MANIFEST_FORMAT, Manifest, ManifestError, OperatorEntry, PlanIdentity,
};
pub use merge::MergeError;
pub use reader::{Block, ReadError, StateFileReader};
pub use record::{Base, Claimant, CommittedRecord, ManifestPoint};
pub(crate) use savepoint::{Orders, Which, is_seeded_from, needs_seeding, put_back, seed, take};
pub use savepoint::{Savepoint, SavepointError, SavepointRecord, SavepointState, SavepointTicket};
pub(crate) use store::is_lost_sync;
pub use store::{CheckpointStore, Owner, StateFileOut, StoreError, StoreListing};
pub use view::{
    Comparison, Difference, Show, StateComparison, StateReaders, ViewError, ViewedEntries, ViewedState,
    compare_checkpoints, manifest_of, view_state,
};
pub use walk::WalkError;
pub(crate) use writer::write_file;
pub use writer::{SnapshotFiles, SnapshotOrigin, WriteError, WrittenState};
