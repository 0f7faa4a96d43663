//! States that forget and states that are lists, through real state files: bases, deltas, other numbers of workers.

mod store_support;

use std::time::Duration;

use cutwater_engine::checkpoint::{StateFile, StateFileKind};
use cutwater_engine::snapshot::{Chain, FsStore, Owner};
use cutwater_engine::state::{ExpiringState, KeyedState, ListState, Since, Ttl};
use cutwater_engine::time::EventTime;
use cutwater_platform::{Platform, SplitMix};
use cutwater_testkit::SimPlatform;
use store_support::*;

fn expiring() -> ExpiringState<u64, u64> {
    ExpiringState::new(name("kept"), 1, Ttl::new(Duration::from_millis(100)).since(Since::LastWrite))
}

/// What is there for a record at `at`.
fn there(state: &mut ExpiringState<u64, u64>, at: i64) -> Vec<Option<u64>> {
    (0..2_000).map(|key| state.get(&key, EventTime(at)).copied()).collect()
}

struct World {
    platform: Platform,
    store: std::sync::Arc<FsStore>,
    owner: Owner,
}

impl World {
    fn write_of(&self, checkpoint: u64, workers: u32, worker: u32, state: &mut dyn KeyedState) -> StateFile {
        let frozen = frozen(state, StateFileKind::Base);
        let origin = origin(checkpoint, workers, worker);
        write((&self.store, self.owner, &self.platform), origin, frozen).file.expect("a base has a file")
    }
}

fn world() -> (SimPlatform, World) {
    let sim = SimPlatform::new(1);
    let platform = sim.platform();
    let (store, owner) = claimed(&platform, "checkpoints");
    (sim, World { platform, store, owner })
}

#[test]
fn what_expired_is_a_removal_in_the_next_delta_and_what_is_restored_expires_when_it_would_have() {
    let (_sim, world) = world();
    let (mut state, mut random) = (expiring(), SplitMix::new(3));
    let mut chain = Chain::new(name("kept"), state.schema());
    for checkpoint in 1..=8u64 {
        let now = checkpoint as i64 * 40;
        for _ in 0..500 {
            *state.entry(&random.below(2_000), EventTime(now), || 0) += 1;
        }
        // Some of what is over goes, the rest waits for the next time.
        state.expire(EventTime(now), 300);
        let frozen = frozen(&mut state, StateFileKind::Delta);
        let written = write((&world.store, world.owner, &world.platform), origin(checkpoint, 1, 0), frozen);
        chain.push(written).expect("nothing was lost");

        let mut restored = expiring();
        for file in &chain.to_ref().files {
            load(&world.store, file, &mut restored, &ownership(1, 0)).expect("whole");
        }
        assert_eq!(restored.len(), state.len(), "checkpoint {checkpoint}: expired entries are gone from the chain");
        for later in [0, 30, 70, 99] {
            assert_eq!(there(&mut restored, now + later), there(&mut state, now + later), "checkpoint {checkpoint}");
        }
        while !restored.expire(EventTime(now + 98), 7) {}
        let left = there(&mut state, now + 98).into_iter().flatten().count();
        assert!(left > 0 && restored.len() >= left, "what lives on is kept");
        assert!(restored.expire(EventTime(now + 100), usize::MAX));
        assert!(restored.is_empty(), "its index was made from the entries");
    }
    let kinds: Vec<StateFileKind> = chain.to_ref().files.iter().map(|file| file.kind).collect();
    assert_eq!(kinds[..3], [StateFileKind::Base, StateFileKind::Delta, StateFileKind::Delta]);
}

#[test]
fn lists_and_expiring_entries_are_found_again_by_any_number_of_workers() {
    let (_sim, world) = world();
    let (mut state, mut lists) = (expiring(), ListState::<u64, u64>::new(name("lists"), 1));
    for key in 0..2_000 {
        state.insert(&key, EventTime(key as i64 % 50), key);
        (0..key % 5).for_each(|n| lists.push(&key, n));
    }
    let kept = world.write_of(1, 1, 0, &mut state);
    let listed = world.write_of(1, 1, 0, &mut lists);
    for workers in [1, 2, 3, 5] {
        let (mut found, mut elements) = (0, 0);
        for worker in 0..workers {
            let owned = ownership(workers, worker);
            let (mut state, mut lists) = (expiring(), ListState::<u64, u64>::new(name("lists"), 1));
            load(&world.store, &kept, &mut state, &owned).expect("whole");
            load(&world.store, &listed, &mut lists, &owned).expect("whole");
            for key in 0..2_000u64 {
                let is_ours = owns(workers, worker, &key);
                assert_eq!(state.get(&key, EventTime(99)).copied(), is_ours.then_some(key), "{workers} workers");
                let expected: Vec<u64> = if is_ours { (0..key % 5).collect() } else { vec![] };
                assert_eq!(lists.iter(&key).copied().collect::<Vec<_>>(), expected, "{workers} workers");
            }
            (found, elements) = (found + state.len(), elements + KeyedState::len(&lists));
        }
        assert_eq!((found, elements), (2_000, 4_000), "{workers} workers");
    }
}
