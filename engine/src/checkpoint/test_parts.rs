//! Parts of checkpoints, for tests.

use crate::checkpoint::{Committable, Counters, SnapshotRef, StateChain, StateFile, StateFileKind};
use crate::id::InstanceId;

/// A part that names these files and committables.
pub(crate) fn part(instance: InstanceId, files: &[&str], handles: &[&str]) -> SnapshotRef {
    let file = |(place, name): (usize, &&str)| StateFile {
        name: (*name).to_owned(),
        bytes: 1,
        checksum: 0,
        entries: 1,
        kind: if place == 0 { StateFileKind::Base } else { StateFileKind::Delta },
    };
    SnapshotRef {
        instance,
        chains: vec![StateChain {
            name: "state".to_owned(),
            schema: 1,
            files: files.iter().enumerate().map(file).collect(),
        }],
        blobs: vec![],
        committables: handles.iter().map(|handle| committable(handle)).collect(),
        counters: Counters::default(),
        exhausted: false,
    }
}

/// A handle of the log.
pub(crate) fn committable(handle: &str) -> Committable {
    Committable { group: "log".to_owned(), handle: handle.as_bytes().to_vec() }
}
