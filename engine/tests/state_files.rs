//! State files: what was frozen comes back, for the same and for another number of workers; what is damaged is refused.

mod store_support;

use std::collections::BTreeMap;
use std::sync::Arc;

use cutwater_engine::checkpoint::{StateFile, StateFileKind};
use cutwater_engine::snapshot::{Chain, CheckpointStore, FsStore, Owner, ReadError, StateFileReader};
use cutwater_engine::state::{KeyedState, MapState, Ownership, Scoped, State, StateLoadError};
use cutwater_platform::{Platform, SplitMix};
use cutwater_testkit::SimPlatform;
use store_support::*;

type Counts = State<u64, u64>;
type Map = BTreeMap<u64, u64>;

fn counts() -> Counts {
    State::new(name("counts"), 1)
}

fn contents(state: &Counts) -> Map {
    state.iter().map(|(k, v)| (*k, *v)).collect()
}

struct World {
    platform: Platform,
    store: Arc<FsStore>,
    owner: Owner,
}

fn world() -> (SimPlatform, World) {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    let (store, owner) = claimed(&platform, "checkpoints");
    (sim, World { platform, store, owner })
}

impl World {
    fn write(&self, checkpoint: u64, state: &mut dyn KeyedState, kind: StateFileKind) -> Option<StateFile> {
        self.write_of(checkpoint, 1, 0, state, kind)
    }

    fn write_of(
        &self,
        checkpoint: u64,
        workers: u32,
        worker: u32,
        state: &mut dyn KeyedState,
        kind: StateFileKind,
    ) -> Option<StateFile> {
        let frozen = frozen(state, kind);
        write((&self.store, self.owner, &self.platform), origin(checkpoint, workers, worker), frozen).file
    }
}

#[test]
fn a_base_and_its_deltas_replay_to_the_state_at_each_checkpoint() {
    let (_sim, world) = world();
    let (mut state, mut random) = (counts(), SplitMix::new(3));
    let mut chain = Chain::new(name("counts"), state.schema());
    for checkpoint in 1..=6u64 {
        for _ in 0..3_000 {
            let key = random.below(5_000);
            if random.below(4) == 0 {
                state.remove(&key);
            } else {
                state.update(&key, |n| *n += checkpoint);
            }
        }
        let at_barrier = contents(&state);
        let frozen = frozen(&mut state, StateFileKind::Delta);
        let written = write((&world.store, world.owner, &world.platform), origin(checkpoint, 1, 0), frozen);
        chain.push(written).expect("nothing was lost");

        let mut restored = counts();
        for file in &chain.to_ref().files {
            load(&world.store, file, &mut restored, &ownership(1, 0)).expect("whole");
        }
        assert_eq!(contents(&restored), at_barrier, "checkpoint {checkpoint}");
    }
    let kinds: Vec<StateFileKind> = chain.to_ref().files.iter().map(|file| file.kind).collect();
    assert_eq!(kinds, [&[StateFileKind::Base][..], &[StateFileKind::Delta; 5]].concat());
}

#[test]
fn a_restored_state_continues_its_chain_with_exactly_what_changed_since() {
    let (_sim, world) = world();
    let mut state = counts();
    for key in 0..1_000 {
        state.insert(key, key);
    }
    let base = world.write(1, &mut state, StateFileKind::Base).expect("a base has a file");

    let mut restored = counts();
    assert_eq!(load(&world.store, &base, &mut restored, &ownership(1, 0)).expect("whole"), 1_000);
    restored.continue_chain();
    assert!(world.write(2, &mut restored, StateFileKind::Delta).is_none(), "nothing changed: no file");
    restored.update(&5, |n| *n += 1);
    restored.remove(&6);
    let delta = world.write(3, &mut restored, StateFileKind::Delta).expect("two entries");
    assert_eq!((delta.entries, delta.kind), (2, StateFileKind::Delta));

    let mut fresh = counts();
    load(&world.store, &base, &mut fresh, &ownership(1, 0)).expect("whole");
    let rebased = world.write(4, &mut fresh, StateFileKind::Delta).expect("a base");
    assert_eq!((rebased.entries, rebased.kind), (1_000, StateFileKind::Base), "a chain not continued starts anew");
}

#[test]
fn freezes_that_overtake_a_sweep_come_out_in_order_and_exact() {
    let (_sim, world) = world();
    let (mut state, mut expected, mut sets) = (counts(), Vec::new(), Vec::new());
    for round in 1..=3u64 {
        for key in 0..500 * round {
            state.update(&key, |n| *n += round);
        }
        state.freeze(StateFileKind::Delta);
        expected.push(contents(&state));
    }
    state.update(&1, |n| *n += 100);
    while state.is_sweeping() {
        sets.extend(state.sweep(2));
    }
    assert_eq!(sets.len(), 3);
    let mut restored = counts();
    for (index, (frozen, expected)) in sets.into_iter().zip(expected).enumerate() {
        let origin = origin(index as u64 + 1, 1, 0);
        let file = write((&world.store, world.owner, &world.platform), origin, frozen).file.expect("it has entries");
        load(&world.store, &file, &mut restored, &ownership(1, 0)).expect("whole");
        assert_eq!(contents(&restored), expected, "checkpoint {}", index + 1);
    }
}

#[test]
fn state_is_found_again_by_any_number_of_workers() {
    let (_sim, world) = world();
    let mut all = BTreeMap::new();
    for (old, new) in [(1, 2), (2, 3), (3, 1), (4, 4)] {
        let mut random = SplitMix::new(u64::from(old));
        all.clear();
        let mut files = Vec::new();
        for worker in 0..old {
            let mut state: MapState<String, i64, u64> = MapState::new(name(&format!("windows-{old}")), 1);
            for n in 0..900u64 {
                let (key, window) = (format!("airport-{}", random.below(300)), random.below(5) as i64);
                if owns(old, worker, &key) {
                    state.insert(key.clone(), window, n);
                    all.insert((key, window), n);
                }
            }
            files.extend(world.write_of(1, old, worker, &mut state, StateFileKind::Base));
            for n in 0..90u64 {
                let (key, window) = (format!("airport-{}", random.below(300)), random.below(7) as i64);
                if owns(old, worker, &key) && n % 3 == 0 {
                    state.remove(&key, &window);
                    all.remove(&(key, window));
                } else if owns(old, worker, &key) {
                    state.insert(key.clone(), window, n);
                    all.insert((key, window), n);
                }
            }
            files.extend(world.write_of(2, old, worker, &mut state, StateFileKind::Delta));
        }
        let mut found = BTreeMap::new();
        for worker in 0..new {
            let mut state: MapState<String, i64, u64> = MapState::new(name(&format!("windows-{old}")), 1);
            for file in &files {
                load(&world.store, file, &mut state, &ownership(new, worker)).expect("whole");
            }
            for (key, window, value) in state.iter() {
                assert!(owns(new, worker, &Scoped { key: key.clone(), scope: *window }), "the map key moves nothing");
                assert_eq!(found.insert((key.clone(), *window), *value), None, "owned once");
            }
        }
        assert_eq!(found, all, "{old} -> {new} workers");
    }
}

/// A small file with two blocks, and its bytes.
fn small(world: &World) -> (StateFile, Vec<u8>) {
    let mut state: State<u64, String> = State::new(name("names"), 1);
    for key in 0..6 {
        state.insert(key, format!("name {key}"));
    }
    let file = world.write(1, &mut state, StateFileKind::Base).expect("a base");
    let path = format!("checkpoints/state/{}", file.name);
    let bytes = world.platform.files.read(path.as_ref(), 1 << 20).expect("readable");
    (file, bytes)
}

fn reread(world: &World, file: &StateFile, bytes: &[u8]) -> Result<u64, StateLoadError> {
    let path = format!("checkpoints/state/{}", file.name);
    let path: &std::path::Path = path.as_ref();
    world.platform.files.remove_file(path).expect("it was there");
    let out = world.platform.files.open(path, cutwater_platform::Open::CreateNew).expect("free");
    out.write_all_at(bytes, 0).expect("written");
    let mut state: State<u64, String> = State::new(name("names"), 1);
    load(&world.store, file, &mut state, &ownership(1, 0))
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_state_file_is_refused() {
    let (_sim, world) = world();
    let (file, bytes) = small(&world);
    assert_eq!(reread(&world, &file, &bytes).expect("whole"), 6);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = reread(&world, &file, &bad).expect_err("damaged");
        assert!(error.to_string().contains(&file.name), "bit {bit}: {error}");
    }
    for len in 0..bytes.len() {
        // Also when the manifest agrees about the length: the file must notice by itself.
        for expected in [file.bytes, len as u64] {
            let expected = StateFile { bytes: expected, ..file.clone() };
            reread(&world, &expected, &bytes[..len]).expect_err("cut short");
        }
    }
    reread(&world, &file, &[&bytes[..], &[0]].concat()).expect_err("added to");
}

/// A state of several blocks, and its file.
fn large(world: &World) -> (StateFile, Vec<u8>) {
    let mut state: State<u64, String> = State::new(name("names"), 1);
    for key in 0..5 {
        state.insert(key, format!("{key}").repeat(300_000));
    }
    let file = world.write(1, &mut state, StateFileKind::Base).expect("a base");
    let path = format!("checkpoints/state/{}", file.name);
    let bytes = world.platform.files.read(path.as_ref(), 1 << 22).expect("readable");
    (file, bytes)
}

#[test]
fn a_large_state_is_written_in_whole_units_and_every_kind_of_damage_to_it_is_refused() {
    const UNIT: usize = 4096;
    let (_sim, world) = world();
    let (file, bytes) = large(&world);
    assert_eq!((bytes[8], bytes.len() % UNIT, bytes.len() as u64), (4, 0, file.bytes), "format 4");
    assert_eq!(reread(&world, &file, &bytes).expect("whole"), 5);
    // In the header, the zeros behind it, each block's header, payload and padding, the zeros before the footer, and the footer.
    let block = (16 + 300_000 + 18usize).next_multiple_of(UNIT);
    assert_eq!(bytes.len(), UNIT + 5 * block + UNIT);
    let in_block = [0, 5, 9, 16, 200_000, 16 + 300_000, block - 1];
    let blocks = (0..5).flat_map(|n| in_block.map(|at| UNIT + n * block + at));
    let ends = [0, 9, 13, 17, 30, UNIT - 1, bytes.len() - UNIT, bytes.len() - 49, bytes.len() - 48, bytes.len() - 1];
    for at in blocks.chain(ends) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        let error = reread(&world, &file, &bad).expect_err("damaged");
        assert!(error.to_string().contains(&file.name), "byte {at}: {error}");
    }
    for len in [0, UNIT - 1, UNIT, 2 * UNIT, UNIT + block, bytes.len() - UNIT, bytes.len() - 48, bytes.len() - 1] {
        // Also when the manifest agrees about the length: the file must notice by itself.
        for expected in [file.bytes, len as u64] {
            let expected = StateFile { bytes: expected, ..file.clone() };
            reread(&world, &expected, &bytes[..len]).expect_err("cut short");
        }
    }
    let longer = [&bytes[..], &[0; UNIT]].concat();
    reread(&world, &file, &longer).expect_err("added to");
    reread(&world, &StateFile { bytes: longer.len() as u64, ..file.clone() }, &longer).expect_err("added to");
    let mut swapped = bytes.clone();
    swapped.copy_within(UNIT + block..UNIT + 2 * block, UNIT);
    swapped[UNIT + block..UNIT + 2 * block].copy_from_slice(&bytes[UNIT..UNIT + block]);
    reread(&world, &file, &swapped).expect_err("not where it belongs");
}

#[test]
fn large_states_are_exact_checkpoint_after_checkpoint_with_the_memory_of_the_one_before() {
    let (_sim, world) = world();
    let (mut state, mut random) = (counts(), SplitMix::new(5));
    let mut chain = Chain::new(name("counts"), state.schema());
    for checkpoint in 1..=5u64 {
        // Few in the last but one: the memory is let go, and taken anew.
        for _ in 0..if checkpoint == 4 { 100 } else { 150_000 } {
            state.update(&random.below(100_000), |n| *n += checkpoint);
        }
        let at_barrier = contents(&state);
        let kind = if checkpoint % 2 == 0 { StateFileKind::Delta } else { StateFileKind::Base };
        let frozen = frozen(&mut state, kind);
        let written = write((&world.store, world.owner, &world.platform), origin(checkpoint, 1, 0), frozen);
        chain.push(written).expect("nothing was lost");
        let mut restored = counts();
        for file in &chain.to_ref().files {
            load(&world.store, file, &mut restored, &ownership(1, 0)).expect("whole");
        }
        assert!(contents(&restored) == at_barrier, "checkpoint {checkpoint}");
    }
}

#[test]
fn a_file_that_is_whole_but_not_the_named_one_is_refused() {
    let (_sim, world) = world();
    let (file, bytes) = small(&world);
    let wrong = [
        StateFile { checksum: file.checksum ^ 1, ..file.clone() },
        StateFile { entries: 5, ..file.clone() },
        StateFile { kind: StateFileKind::Delta, ..file.clone() },
    ];
    for expected in wrong {
        let error = reread(&world, &expected, &bytes).expect_err("another file");
        assert!(matches!(error, StateLoadError::Read(ReadError::Other { .. })), "{error}");
    }
    let gone = StateFile { name: "000000000009-a000001-o0002-w0000-names.base".to_owned(), ..file };
    let error = world.store.open_state_file(&gone.name).expect_err("no such file");
    assert!(error.to_string().contains(&gone.name), "{error}");
}

#[test]
fn blocks_that_were_swapped_or_come_from_another_file_are_refused() {
    let (_sim, world) = world();
    // Large values: every block holds one entry, and all blocks are equally long.
    let build = |checkpoint| {
        let mut state: State<u64, String> = State::new(name("names"), 1);
        for key in 0..3 {
            state.insert(key, "x".repeat(300_000));
        }
        let file = world.write(checkpoint, &mut state, StateFileKind::Base).expect("a base");
        let path = format!("checkpoints/state/{}", file.name);
        (file, world.platform.files.read(path.as_ref(), 1 << 22).expect("readable"))
    };
    let ((file, bytes), (_, other)) = (build(1), build(2));
    let starts: Vec<usize> = {
        let header = 24 + u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        let len = 16 + u32::from_le_bytes(bytes[header..header + 4].try_into().expect("four bytes")) as usize;
        (0..3).map(|n| header + n * len).collect()
    };
    let len = starts[1] - starts[0];
    assert_eq!(bytes.len(), starts[2] + len + 48);
    assert_eq!(reread(&world, &file, &bytes).expect("whole"), 3);
    let mut swapped = bytes.clone();
    swapped.copy_within(starts[1]..starts[1] + len, starts[0]);
    swapped[starts[1]..starts[1] + len].copy_from_slice(&bytes[starts[0]..starts[0] + len]);
    let mut foreign = bytes.clone();
    foreign[starts[1]..starts[1] + len].copy_from_slice(&other[starts[1]..starts[1] + len]);
    for bad in [swapped, foreign] {
        let error = reread(&world, &file, &bad).expect_err("not where it belongs");
        assert!(matches!(error, StateLoadError::Read(ReadError::Damaged { .. })), "{error}");
    }
}

#[test]
fn other_types_another_version_and_another_state_are_refused_by_name() {
    let (_sim, world) = world();
    let mut state = counts();
    state.insert(1, 1);
    let file = world.write(1, &mut state, StateFileKind::Base).expect("a base");
    let all: Ownership = ownership(1, 0);
    let mut signed: State<u64, i64> = State::new(name("counts"), 1);
    let mut version: Counts = State::new(name("counts"), 2);
    let mut other: Counts = State::new(name("sums"), 1);
    let schema = load(&world.store, &file, &mut signed, &all).expect_err("i64 is not u64");
    assert!(matches!(&schema, StateLoadError::Schema { state, .. } if state == "counts"), "{schema}");
    let version = load(&world.store, &file, &mut version, &all).expect_err("version 2 is not 1");
    assert!(matches!(version, StateLoadError::Schema { .. }), "{version}");
    let other = load(&world.store, &file, &mut other, &all).expect_err("another state");
    assert!(matches!(other, StateLoadError::OtherState { .. }), "{other}");
}

#[test]
fn another_format_and_a_foreign_file_are_called_by_name() {
    let (_sim, world) = world();
    let (file, bytes) = small(&world);
    let mut newer = bytes.clone();
    newer[8..12].copy_from_slice(&9u32.to_le_bytes());
    let newer = reread(&world, &file, &newer).expect_err("newer");
    assert!(matches!(newer, StateLoadError::Read(ReadError::Newer { found: 9, .. })), "{newer}");
    let mut older = bytes.clone();
    older[8..12].copy_from_slice(&1u32.to_le_bytes());
    let older = reread(&world, &file, &older).expect_err("older");
    assert!(matches!(older, StateLoadError::Read(ReadError::Older { found: 1, .. })), "{older}");
    let foreign = reread(&world, &file, &vec![b'x'; bytes.len()]).expect_err("foreign");
    assert!(matches!(foreign, StateLoadError::Read(ReadError::Foreign { .. })), "{foreign}");
}

#[test]
fn a_file_verifies_without_its_types() {
    let (_sim, world) = world();
    let (file, _) = small(&world);
    let bytes = world.store.open_state_file(&file.name).expect("it is there");
    let header = StateFileReader::open(bytes, &file).expect("whole").verify().expect("whole to the end");
    assert_eq!((header.state.as_str(), header.entries, header.instance), ("names", 6, instance(0)));
}

#[test]
fn a_state_beyond_its_limit_says_how_large_it_is() {
    let mut state: State<String, String> = State::new(name("big"), 1);
    for key in 0..10_000u64 {
        state.insert(format!("key {key:020}"), "v".repeat(200));
    }
    let bytes = state.bytes_estimate();
    // 10,000 times 24 + 200 bytes on the heap, and 16,384 slots.
    assert!((2_000_000..5_000_000).contains(&bytes), "{bytes}");
    state.check_limit(bytes).expect("at the limit");
    let error = state.check_limit(1_000_000).expect_err("beyond it");
    assert_eq!((error.entries, error.limit), (10_000, 1_000_000));
    assert!(error.to_string().contains("\"big\""), "{error}");
}
