//! Fetching the newest checkpoint ahead of time: the system is asked for its files while other things are still to be done.
//!
//! Large state files aren't in the system's cache (decision 0043). From the moment an attempt fails the files of the newest manifest will be
//! read most likely, and until then sinks are closed and threads joined. (Not when a process starts: the syncs with which a log is
//! opened would wait behind these reads, so that nothing is won.) This is a guess and nothing depends on
//! it: which checkpoint is restored is decided from the facts (`recovery`), and what can't be read here is told by whoever must
//! read it.

use std::path::Path;
use std::sync::Arc;

use super::fs::MANIFEST_MAX_BYTES;
use super::layout::{MANIFESTS, ManifestName, STATE, StateFileName};
use super::manifest::Manifest;
use crate::checkpoint::StateFile;
use cutwater_platform::{File, Files, Open};

/// A piece of what is asked for: Linux takes as much of one suggestion as one request to the disk may have.
pub(super) const FETCH_BYTES: u64 = 512 << 10;
/// As much is asked for in all. More would take from others memory that is of no use yet: a reader asks on by itself.
const FETCHED_MAX_BYTES: u64 = 64 << 20;

/// Asks for the files of the newest manifest in the store in `dir`, and says for how many bytes. Doesn't wait for them.
pub(crate) fn fetch_newest(files: &dyn Files, dir: &Path) -> u64 {
    let Some(manifest) = newest(files, dir) else { return 0 };
    let state_files: Vec<&StateFile> =
        manifest.snapshots.iter().flat_map(|s| &s.chains).flat_map(|c| &c.files).collect();
    let sizes: Vec<u64> = state_files.iter().map(|file| file.bytes).collect();
    let opened: Vec<_> = state_files.iter().map(|file| open(files, dir, file)).collect();
    let mut asked = 0;
    for piece in pieces(&sizes, FETCHED_MAX_BYTES) {
        let Some(file) = &opened[piece.file] else { continue };
        file.will_read(piece.offset, piece.len);
        asked += piece.len;
    }
    asked
}

fn open(files: &dyn Files, dir: &Path, file: &StateFile) -> Option<Arc<dyn File>> {
    StateFileName::parse(&file.name)?;
    files.open(&dir.join(STATE).join(&file.name), Open::Read).ok()
}

fn newest(files: &dyn Files, dir: &Path) -> Option<Manifest> {
    let entries = files.read_dir(&dir.join(MANIFESTS)).ok()?;
    let name = entries.iter().filter_map(|entry| ManifestName::parse_manifest_file(&entry.name)).max()?;
    let bytes = files.read(&dir.join(MANIFESTS).join(name.manifest_file()), MANIFEST_MAX_BYTES).ok()?;
    Manifest::decode(&bytes).ok().map(|(manifest, _)| manifest)
}

/// A part of a file, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    file: usize,
    offset: u64,
    len: u64,
}

/// What is asked for of files of these sizes: a piece of each in turn, since each worker reads its own at the same time.
fn pieces(sizes: &[u64], mut budget: u64) -> Vec<Piece> {
    let mut pieces = vec![];
    let longest = sizes.iter().copied().max().unwrap_or(0);
    for offset in (0..longest).step_by(FETCH_BYTES as usize) {
        for (file, size) in sizes.iter().enumerate() {
            let len = size.saturating_sub(offset).min(FETCH_BYTES).min(budget);
            if len > 0 {
                pieces.push(Piece { file, offset, len });
                budget -= len;
            }
        }
        if budget == 0 {
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::store::CheckpointStore;
    use super::super::{FsStore, HashIdentity, OperatorEntry, PlanIdentity, StateName};
    use super::*;
    use crate::checkpoint::{Counters, SnapshotRef, StateChain, StateFileKind};
    use crate::exchange::KeyGroups;
    use crate::id::{Attempt, CheckpointId, InstanceId, OperatorId, WorkerIndex};
    use crate::recovery::claim_next;
    use cutwater_platform::{OsFiles, Platform};

    const K: u64 = 1 << 10;

    #[test]
    fn each_file_is_asked_for_whole_and_in_turn() {
        let piece = |file, offset, len| Piece { file, offset, len };
        let asked = pieces(&[600 * K, 0, 512 * K, 7], 64 << 20);
        let expected = [piece(0, 0, 512 * K), piece(2, 0, 512 * K), piece(3, 0, 7), piece(0, 512 * K, 88 * K)];
        assert_eq!(asked, expected);
    }

    #[test]
    fn no_more_is_asked_for_than_the_budget() {
        for budget in [0, 1, 512 * K, 513 * K, 5_000 * K] {
            let asked = pieces(&[10_000 * K, 3_000 * K, u64::MAX], budget);
            assert_eq!(asked.iter().map(|piece| piece.len).sum::<u64>(), budget);
        }
        assert_eq!(pieces(&[], 1), []);
    }

    /// A store with one checkpoint of one worker, whose one state has a file of so many bytes.
    fn store(dir: &Path, bytes: u64) {
        let platform = Platform::real();
        let store = FsStore::open(platform.clone(), dir).unwrap();
        let owner = claim_next(&store, &platform).unwrap();
        let (checkpoint, instance) = (CheckpointId(1), InstanceId { operator: OperatorId(0), worker: WorkerIndex(0) });
        let (state, kind) = (StateName::new("counts").unwrap(), StateFileKind::Base);
        let name = StateFileName { checkpoint, attempt: owner.attempt, instance, state, kind };
        let file = StateFile { name: name.to_string(), bytes, checksum: 0, entries: 1, kind };
        let mut out = store.create_state_file(&owner, &name).unwrap();
        out.write(&vec![0; bytes as usize]).unwrap();
        out.finish().unwrap();
        let chains = vec![StateChain { name: "counts".to_owned(), schema: 0, files: vec![file] }];
        let manifest = Manifest {
            job: owner.job,
            attempt: owner.attempt,
            checkpoint,
            is_final: false,
            exact: true,
            workers: 1,
            key_groups: KeyGroups::default(),
            hash: HashIdentity::of_this_program(),
            plan: PlanIdentity {
                fingerprint: 0,
                operators: vec![OperatorEntry { id: OperatorId(0), name: "count".to_owned() }],
            },
            snapshots: vec![SnapshotRef {
                instance,
                chains,
                blobs: vec![],
                committables: vec![],
                counters: Counters::default(),
                exhausted: false,
            }],
            carried: vec![],
        };
        store.publish_manifest(&owner, &manifest.encode().unwrap()).unwrap();
    }

    #[test]
    fn the_files_of_the_newest_manifest_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), 700 * K);
        assert_eq!(fetch_newest(&OsFiles::new(), dir.path()), 700 * K);
    }

    #[test]
    fn what_is_missing_or_damaged_is_left_to_others() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(fetch_newest(&OsFiles::new(), dir.path()), 0, "no store");
        store(dir.path(), K);
        let (files, state) = (OsFiles::new(), dir.path().join(STATE));
        let name = &files.read_dir(&state).unwrap()[0].name;
        files.remove_file(&state.join(name)).unwrap();
        assert_eq!(fetch_newest(&files, dir.path()), 0, "no state file");
        let manifest = ManifestName { checkpoint: CheckpointId(1), attempt: Attempt(1) }.manifest_file();
        let manifest = files.open(&dir.path().join(MANIFESTS).join(manifest), Open::Write).unwrap();
        manifest.write_all_at(b"not a manifest", 0).unwrap();
        assert_eq!(fetch_newest(&files, dir.path()), 0, "no manifest");
    }
}
