//! Manifests: whole or refused, and never in contradiction with themselves.

mod store_support;

use cutwater_engine::checkpoint::{StateChain, StateFile, StateFileKind};
use cutwater_engine::id::{Attempt, CheckpointId, JobId, OperatorId};
use cutwater_engine::snapshot::{EnvelopeError, Manifest, ManifestError, OperatorEntry, Owner, StateFileName};
use store_support::*;

fn file(checkpoint: u64, attempt: u64, worker: u32, kind: StateFileKind) -> StateFile {
    let name = StateFileName {
        checkpoint: CheckpointId(checkpoint),
        attempt: Attempt(attempt),
        instance: instance(worker),
        state: name("counts"),
        kind,
    };
    StateFile { name: name.to_string(), bytes: 100, checksum: 5, entries: 2, kind }
}

/// Checkpoint 12 of attempt 3 on two workers, with chains, committables and something carried over.
fn example() -> Manifest {
    let owner = Owner { job: JobId(77), attempt: Attempt(3) };
    let snapshots = (0..2).map(|worker| {
        let mut snapshot = snapshot(worker);
        let files = vec![file(10, 2, worker, StateFileKind::Base), file(12, 3, worker, StateFileKind::Delta)];
        snapshot.chains = vec![StateChain { name: "counts".to_owned(), schema: 9, files }];
        snapshot.committables = vec![committable(&format!("own {worker}"))];
        snapshot
    });
    let mut manifest = manifest(owner, 12, snapshots.collect());
    manifest.carried = vec![committable("carried")];
    manifest
}

#[test]
fn a_manifest_comes_back_as_it_was_and_lists_what_was_carried_first() {
    let encoded = example().encode().expect("consistent");
    let (decoded, checksum) = Manifest::decode(&encoded.bytes).expect("whole");
    assert_eq!((&decoded, checksum), (&example(), encoded.checksum));
    assert_eq!(encoded.name.manifest_file(), "000000000012-a000003.manifest");
    let handles: Vec<&[u8]> = decoded.committables().map(|c| c.handle.as_slice()).collect();
    assert_eq!(handles, [b"carried".as_slice(), b"own 0", b"own 1"]);
    assert_eq!(decoded.snapshot(instance(1)).map(|s| s.instance), Some(instance(1)));
    assert!(decoded.snapshot(instance(2)).is_none());
    decoded.check_hash().expect("this very program wrote it");
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_manifest_is_refused() {
    let bytes = example().encode().expect("consistent").bytes;
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        Manifest::decode(&bad).expect_err("damaged");
    }
    for len in 0..bytes.len() {
        Manifest::decode(&bytes[..len]).expect_err("cut short");
    }
    Manifest::decode(&[bytes.as_slice(), &[0]].concat()).expect_err("added to");
}

#[test]
fn a_newer_manifest_and_a_foreign_file_are_called_by_name() {
    let mut bytes = example().encode().expect("consistent").bytes;
    bytes[8..12].copy_from_slice(&3u32.to_le_bytes());
    let newer = Manifest::decode(&bytes).expect_err("newer");
    assert!(matches!(newer, ManifestError::Envelope(EnvelopeError::Newer { found: 3, .. })), "{newer}");
    let foreign = Manifest::decode(b"{\"checkpoint\": 12, \"attempt\": 3, \"job\": 77}").expect_err("foreign");
    assert!(matches!(foreign, ManifestError::Envelope(EnvelopeError::Foreign { .. })), "{foreign}");
}

#[test]
fn another_hash_is_refused() {
    let mut manifest = example();
    manifest.hash.vectors[3] ^= 1;
    let error = manifest.check_hash().expect_err("other values");
    assert!(matches!(error, ManifestError::Hash { .. }), "{error}");
    let mut manifest = example();
    manifest.hash.id = "other".to_owned();
    manifest.check_hash().expect_err("another name");
}

/// A change that makes a manifest wrong, and a word of the refusal.
type Spoil = (&'static str, fn(&mut Manifest));

#[test]
fn a_manifest_that_contradicts_itself_is_neither_written_nor_read() {
    let spoils: [Spoil; 19] = [
        ("counted from 1", |m| m.checkpoint = CheckpointId(0)),
        ("counted from 1", |m| m.attempt = Attempt(0)),
        ("no workers", |m| m.workers = 0),
        ("no operators", |m| m.plan.operators.clear()),
        ("2 snapshots", |m| m.workers = 3),
        ("2 snapshots", |m| m.workers = u32::MAX),
        ("1 snapshots", |m| _ = m.snapshots.pop()),
        ("is missing", |m| m.snapshots.swap(0, 1)),
        ("is missing", |m| m.snapshots[1] = m.snapshots[0].clone()),
        ("stands before", |m| m.plan.operators.push(OperatorEntry { id: OperatorId(1), name: "x".to_owned() })),
        ("both named", |m| m.plan.operators.push(OperatorEntry { id: OperatorId(9), name: "count".to_owned() })),
        ("two chains", |m| {
            let chain = m.snapshots[0].chains[0].clone();
            m.snapshots[0].chains.push(chain);
        }),
        ("can't be the name", |m| m.snapshots[0].chains[0].files[0].name = "../../etc/passwd".to_owned()),
        ("can't be file 1", |m| m.snapshots[0].chains[0].files[1] = file(12, 3, 1, StateFileKind::Delta)),
        ("can't be file 0", |m| _ = m.snapshots[0].chains[0].files.remove(0)),
        ("can't be file 1", |m| m.snapshots[0].chains[0].files[1] = file(13, 3, 0, StateFileKind::Delta)),
        ("no file", |m| m.snapshots[0].chains[0].files.clear()),
        ("not exhausted", |m| m.is_final = true),
        ("twice", |m| m.carried.push(committable("own 1"))),
    ];
    for (index, (word, spoil)) in spoils.into_iter().enumerate() {
        let mut manifest = example();
        spoil(&mut manifest);
        let error = manifest.encode().expect_err("inconsistent");
        assert!(error.to_string().contains(word), "{index}: {error}");
    }
}
