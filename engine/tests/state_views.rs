//! State files from outside: packed in every way, merged, looked at, compared. What is told is compared with plain maps.

mod store_support;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use cutwater_engine::checkpoint::{SnapshotRef, StateChain, StateFile, StateFileKind};
use cutwater_engine::config::Compression;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::snapshot::{
    Chain, CheckpointStore, FsStore, Manifest, MergeError, Owner, ReadError, Show, SnapshotFiles, StateFileReader,
    StateReaders, ViewError, WalkError, compare_checkpoints, manifest_of, view_state,
};
use cutwater_engine::state::{KeyedState, MapState, Migrations, State};
use cutwater_platform::{Platform, SplitMix, Threads};
use cutwater_testkit::SimPlatform;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use store_support::*;

type Model = BTreeMap<u64, String>;

fn texts() -> State<u64, String> {
    State::new(name("texts"), 1)
}

struct World {
    platform: Platform,
    store: Arc<FsStore>,
    owner: Owner,
    _sim: SimPlatform,
}

fn world() -> World {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    let (store, owner) = claimed(&platform, "checkpoints");
    World { platform, store, owner, _sim: sim }
}

impl World {
    fn files(&self, compression: Compression) -> SnapshotFiles {
        SnapshotFiles::new(self.store.clone(), self.owner, self.platform.crash.clone())
            .packed(compression, Arc::new(Threads))
    }

    /// Writes what changed in `state` as the next file of `chain`.
    fn extend(&self, chain: &mut Chain, checkpoint: u64, state: &mut dyn KeyedState, compression: Compression) {
        let kind = if chain.to_ref().files.is_empty() { StateFileKind::Base } else { StateFileKind::Delta };
        let written = self.files(compression).write(&origin(checkpoint, 1, 0), vec![frozen(state, kind)]);
        chain.push(written.expect("written").remove(0)).expect("nothing was lost");
    }

    fn publish(&self, checkpoint: u64, chain: &Chain) -> Manifest {
        let part = SnapshotRef { chains: vec![chain.to_ref()], ..snapshot(0) };
        let manifest = manifest(self.owner, checkpoint, vec![part]);
        let encoded = manifest.encode().expect("it is consistent");
        self.store.publish_manifest(&self.owner, &encoded).expect("published");
        manifest
    }

    fn loaded(&self, chain: &StateChain) -> Model {
        let mut restored = texts();
        for file in &chain.files {
            load(&self.store, file, &mut restored, &ownership(1, 0)).expect("whole");
        }
        restored.iter().map(|(key, value)| (*key, value.clone())).collect()
    }
}

fn readers(state: &dyn KeyedState) -> StateReaders {
    let mut readers = StateReaders::default();
    readers.insert("count", state.name().as_str(), state.entries());
    readers
}

/// Changes a few keys, at random.
fn change(state: &mut State<u64, String>, model: &mut Model, random: &mut SplitMix, keys: u64) {
    for _ in 0..keys / 3 + 1 {
        let key = random.below(keys);
        if random.below(3) == 0 {
            state.remove(&key);
            model.remove(&key);
        } else {
            let value = format!("value {} of {key}", random.below(1_000));
            state.insert(key, value.clone());
            model.insert(key, value);
        }
    }
}

#[test]
fn packed_files_come_back_whole_are_smaller_and_may_follow_files_that_are_packed_otherwise() {
    let world = world();
    let (mut state, mut model, mut random) = (texts(), Model::new(), SplitMix::new(7));
    for key in 0..40_000 {
        state.insert(key, format!("value 1 of {key}"));
        model.insert(key, format!("value 1 of {key}"));
    }
    let mut sizes = vec![];
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (checkpoint, compression) in (1..).zip(all) {
        let mut chain = Chain::new(name("texts"), state.schema());
        world.extend(&mut chain, checkpoint, &mut state, compression);
        assert_eq!(world.loaded(&chain.to_ref()), model, "{compression:?}");
        let file = &chain.to_ref().files[0];
        sizes.push(file.bytes);
        let opened = world.store.open_state_file(&file.name).expect("there");
        let reader = StateFileReader::open(opened, file).expect("a state file");
        assert_eq!((reader.header().compression, reader.header().entries), (compression, 40_000));
        reader.verify().expect("whole");
    }
    assert!(sizes[1] * 2 < sizes[0] && sizes[2] < sizes[1], "{sizes:?}");

    let mut chain = Chain::new(name("texts"), state.schema());
    for (checkpoint, compression) in (10..).zip(all) {
        change(&mut state, &mut model, &mut random, 40_000);
        world.extend(&mut chain, checkpoint, &mut state, compression);
    }
    assert_eq!(world.loaded(&chain.to_ref()), model);
}

#[test]
fn every_flipped_bit_of_a_packed_file_is_found() {
    let world = world();
    let mut state = texts();
    (0..20).for_each(|key| _ = state.insert(key, "the same again and again".to_string()));
    for (checkpoint, compression) in [(1, Compression::Lz4), (2, Compression::Zstd)] {
        let mut chain = Chain::new(name("texts"), state.schema());
        world.extend(&mut chain, checkpoint, &mut state, compression);
        let file: StateFile = chain.to_ref().files[0].clone();
        let opened = world.store.open_state_file(&file.name).expect("there");
        let mut bytes = vec![0; file.bytes as usize];
        opened.read_exact_at(&mut bytes, 0).expect("readable");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = Arc::new(Memory(bytes.clone()));
            let found = StateFileReader::open(damaged, &file).and_then(StateFileReader::verify);
            assert!(found.is_err(), "{compression:?}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// A file in memory.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl cutwater_platform::File for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_all_vectored_at(&self, _: &[io::IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_synced_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_merged_base_holds_what_its_chain_held_and_deltas_go_on_from_it() {
    let world = world();
    let (mut state, mut model, mut random) = (texts(), Model::new(), SplitMix::new(11));
    let mut chain = Chain::new(name("texts"), state.schema());
    for checkpoint in 1..=5 {
        change(&mut state, &mut model, &mut random, 300);
        world.extend(&mut chain, checkpoint, &mut state, Compression::Lz4);
    }
    let (at_five, part) = (model.clone(), chain.to_merge(4).expect("four deltas"));
    change(&mut state, &mut model, &mut random, 300);
    world.extend(&mut chain, 6, &mut state, Compression::None);

    let files = world.files(Compression::None);
    let base = files.merge(&origin(6, 1, 0), &part, state.entries().as_ref()).expect("merged");
    assert_eq!((base.kind, base.entries), (StateFileKind::Base, at_five.len() as u64), "removed keys aren't in a base");
    assert!(chain.merged(&part, base));
    let merged = chain.to_ref();
    assert_eq!(merged.files.len(), 2);
    assert_eq!(world.loaded(&StateChain { files: merged.files[..1].to_vec(), ..merged.clone() }), at_five);
    assert_eq!(world.loaded(&merged), model);
    // The manifest takes it for one instance's chain, and the next delta follows.
    world.publish(7, &chain);
    change(&mut state, &mut model, &mut random, 300);
    world.extend(&mut chain, 8, &mut state, Compression::None);
    world.publish(8, &chain);
    assert_eq!(world.loaded(&chain.to_ref()), model);
}

#[test]
fn a_chain_whose_files_are_gone_or_damaged_is_not_merged_and_stays() {
    let world = world();
    let mut state = texts();
    let mut chain = Chain::new(name("texts"), state.schema());
    for checkpoint in 1..=3 {
        state.insert(checkpoint, "x".to_string());
        world.extend(&mut chain, checkpoint, &mut state, Compression::None);
    }
    let mut part = chain.to_ref();
    part.files[1].checksum ^= 1;
    let files = world.files(Compression::None);
    let refused =
        files.merge(&origin(3, 1, 0), &part, state.entries().as_ref()).expect_err("not the file that is named");
    assert!(matches!(refused, MergeError::Walk(WalkError::Read(ReadError::Other { .. }))), "{refused}");
    part.files.remove(0);
    let refused = files.merge(&origin(3, 1, 0), &part, state.entries().as_ref()).expect_err("no base");
    assert!(matches!(refused, MergeError::Walk(WalkError::NoChain { .. })), "{refused}");
}

#[test]
fn a_state_is_shown_by_key_and_counted_by_key_group() {
    let world = world();
    let mut state = texts();
    let mut chain = Chain::new(name("texts"), state.schema());
    for checkpoint in 1..=3u64 {
        for key in 0..100 {
            state.insert(key * checkpoint, format!("as of {checkpoint}"));
        }
        world.extend(&mut chain, checkpoint, &mut state, Compression::None);
    }
    state.remove(&7);
    world.extend(&mut chain, 4, &mut state, Compression::None);
    world.publish(4, &chain);

    let manifest = manifest_of(world.store.as_ref(), None).expect("there is one");
    let readers = readers(&state);
    let all =
        view_state(world.store.as_ref(), &manifest, "count", &readers, &Show { key: None, first: 5 }).expect("seen");
    let entries = all.entries.as_ref().expect("its types are known");
    assert_eq!((entries.keys, entries.found, entries.shown.len()), (state.len() as u64, state.len() as u64, 5));
    assert_eq!(entries.groups.values().map(|(n, _)| n).sum::<u64>(), entries.keys);
    let show = |key: &str| Show { key: Some(key.to_string()), first: 5 };
    let seen = |key: &str| {
        let seen = view_state(world.store.as_ref(), &manifest, "count/texts", &readers, &show(key)).expect("seen");
        seen.entries.expect("its types are known").shown
    };
    assert_eq!(seen("9"), [("9".to_string(), "\"as of 3\"".to_string())]);
    assert_eq!(seen("7"), [], "it was removed");
    let unknown =
        view_state(world.store.as_ref(), &manifest, "count", &StateReaders::default(), &show("9")).expect("seen");
    assert_eq!((unknown.entries.is_none(), unknown.files), (true, 4));
    assert!(unknown.to_string().contains("doesn't know its types"), "{unknown}");

    let nothing =
        view_state(world.store.as_ref(), &manifest, "counts", &readers, &show("9")).expect_err("no such state");
    assert!(nothing.to_string().contains("count/texts"), "{nothing}");
    let nothing = manifest_of(world.store.as_ref(), Some(CheckpointId(9))).expect_err("no such checkpoint");
    assert!(matches!(nothing, ViewError::NoCheckpoint { .. }), "{nothing}");
}

#[derive(Clone, Serialize, Deserialize)]
struct Longer {
    text: String,
    length: usize,
}

#[test]
fn what_an_older_version_wrote_is_shown_and_compared_as_what_it_is_now() {
    let world = world();
    let mut state = texts();
    let mut chain = Chain::new(name("texts"), state.schema());
    state.insert(1, "one".to_string());
    world.extend(&mut chain, 1, &mut state, Compression::None);
    let old = world.publish(1, &chain);

    let mut now: State<u64, Longer> = State::new(name("texts"), 1);
    let migrations = Migrations::<String>::since(1).then(2, |text| Longer { length: text.len(), text });
    now.adopt(&migrations).expect("they end in its type");
    now.insert(1, Longer { text: "one".to_string(), length: 3 });
    now.insert(2, Longer { text: "two".to_string(), length: 3 });
    let mut chain = Chain::new(name("texts"), now.schema());
    world.extend(&mut chain, 2, &mut now, Compression::None);
    let new = world.publish(2, &chain);
    let compared = compare_checkpoints(world.store.as_ref(), &old, &new, &readers(&now), 9).expect("compared");
    let texts = &compared.states[0];
    assert_eq!((texts.added, texts.changed, texts.unchanged), (1, 0, 1), "{compared}");
    // The old program knows nothing of the new version.
    let refused = compare_checkpoints(world.store.as_ref(), &old, &new, &readers(&state), 9).expect_err("unknown");
    assert!(refused.to_string().contains("this program doesn't know"), "{refused}");
}

#[test]
fn values_that_json_can_not_say_are_told_in_hexadecimal() {
    let world = world();
    let mut state: MapState<u64, u64, BTreeMap<(u8, u8), u8>> = MapState::new(name("maps"), 1);
    state.insert(1, 2, [((3, 4), 5)].into());
    let mut chain = Chain::new(name("maps"), state.schema());
    world.extend(&mut chain, 1, &mut state, Compression::None);
    let manifest = world.publish(1, &chain);
    let show = Show { key: None, first: 1 };
    let seen = view_state(world.store.as_ref(), &manifest, "count", &readers(&state), &show).expect("seen");
    let entries = seen.entries.expect("its types are known");
    assert_eq!(entries.shown, [("{\"key\":1,\"scope\":2}".to_string(), "0x01030405".to_string())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn two_checkpoints_differ_as_the_maps_they_were_made_from(seed in any::<u64>(), keys in 1u64..60, rounds in 1u64..5, merge: bool) {
        let world = world();
        let (mut state, mut model, mut random) = (texts(), Model::new(), SplitMix::new(seed));
        let mut chain = Chain::new(name("texts"), state.schema());
        let mut all = vec![];
        for checkpoint in 1..=rounds + 1 {
            if random.below(4) > 0 {
                change(&mut state, &mut model, &mut random, keys);
            }
            world.extend(&mut chain, checkpoint, &mut state, Compression::Lz4);
            if merge && random.below(2) == 0 {
                let part = chain.to_ref();
                if part.files.len() > 1 {
                    let base = world.files(Compression::None).merge(&origin(1, 1, 0), &part, state.entries().as_ref());
                    // Nothing changed: the newest file is the one that was merged before.
                    if let Ok(base) = base {
                        prop_assert!(chain.merged(&part, base));
                    }
                }
            }
            all.push((world.publish(checkpoint, &chain), model.clone()));
        }
        for (from, before) in &all {
            for (to, after) in &all {
                let compared = compare_checkpoints(world.store.as_ref(), from, to, &readers(&state), usize::MAX).expect("compared");
                let texts = &compared.states[0];
                let added = after.keys().filter(|key| !before.contains_key(key)).count() as u64;
                let removed = before.keys().filter(|key| !after.contains_key(key)).count() as u64;
                let changed = before.iter().filter(|(key, value)| after.get(key).is_some_and(|now| now != *value)).count() as u64;
                prop_assert_eq!((texts.added, texts.removed, texts.changed), (added, removed, changed));
                prop_assert_eq!(texts.first.len() as u64, added + removed + changed);
                for difference in &texts.first {
                    let key: u64 = difference.key.parse().expect("a number");
                    let json = |model: &Model| model.get(&key).map(|value| format!("{value:?}"));
                    prop_assert_eq!((&difference.before, &difference.after), (&json(before), &json(after)));
                }
            }
        }
    }
}

#[test]
fn pieces_are_spread_over_the_cores_each_once_and_a_panic_in_one_is_the_callers() {
    use cutwater_platform::{Inline, Spawn};
    use std::sync::atomic::{AtomicU32, Ordering};

    for spawn in [&Threads as &dyn Spawn, &Inline::new()] {
        let done: Vec<AtomicU32> = (0..1_000).map(|_| AtomicU32::new(0)).collect();
        spawn.spread(done.len(), &|piece| _ = done[piece].fetch_add(1, Ordering::SeqCst));
        assert!(done.iter().all(|times| times.load(Ordering::SeqCst) == 1));
        spawn.spread(0, &|_| unreachable!("there is no piece"));
        let struck = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            spawn.spread(10, &|piece| assert!(piece != 7, "the seventh"));
        }));
        assert!(struck.is_err(), "{spawn:?}");
    }
}
