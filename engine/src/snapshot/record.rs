//! The small records of a checkpoint store: whose it is, who claimed an attempt, where an attempt started, what the janitor
//! knows to be committed. Each is one file, made once and never changed.

use serde::{Deserialize, Serialize};

use super::envelope::Kind;
use super::layout::ManifestName;
use crate::id::{Attempt, CheckpointId, JobId};

pub(crate) const JOB_KIND: Kind = Kind { magic: *b"CWJOB\0\0\0", name: "job record", version: 1 };
pub(crate) const CLAIM_KIND: Kind = Kind { magic: *b"CWCLAIM\0", name: "attempt's claim", version: 1 };
pub(crate) const BASE_KIND: Kind = Kind { magic: *b"CWBASE\0\0", name: "attempt's base", version: 1 };
pub(crate) const COMMITTED_KIND: Kind = Kind { magic: *b"CWCOMMIT", name: "record of a commit", version: 1 };

/// Whose store this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) job: JobId,
    /// Wall clock, milliseconds since 1970.
    pub(crate) created_ms: i64,
}

/// Who claimed an attempt; for people, and for telling two claims apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: Attempt,
    /// The process that claimed it.
    pub pid: u32,
    /// When, by the wall clock, in milliseconds since 1970.
    pub claimed_ms: i64,
    /// Random.
    pub nonce: u64,
}

/// One manifest, its contents included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ManifestPoint {
    /// Its checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that published it.
    pub attempt: Attempt,
    /// Its checksum.
    pub checksum: u64,
}

impl ManifestPoint {
    /// The manifest's name.
    pub fn name(self) -> ManifestName {
        ManifestName { checkpoint: self.checkpoint, attempt: self.attempt }
    }
}

/// Where an attempt started. From then on a manifest of an older attempt above `point` counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The job.
    pub job: JobId,
    /// The attempt that starts.
    pub attempt: Attempt,
    /// The manifest it starts from; `None` when it starts from nothing.
    pub point: Option<ManifestPoint>,
    /// A person asked for an older point than the newest.
    pub forked: bool,
}

/// Everything that a manifest lists as prepared is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedRecord {
    /// The job.
    pub job: JobId,
    /// The manifest.
    pub manifest: ManifestPoint,
    /// The attempt that committed it, or found it committed.
    pub by: Attempt,
}
