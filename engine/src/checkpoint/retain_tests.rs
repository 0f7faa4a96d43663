use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::checkpoint::test_parts::part;
use crate::checkpoint::{Ledger, Pace, Published, SnapshotReport};
use crate::id::{CheckpointId, InstanceId, OperatorId, WorkerIndex};

fn name(checkpoint: u64, attempt: u64) -> ManifestName {
    ManifestName { checkpoint: CheckpointId(checkpoint), attempt: Attempt(attempt) }
}

fn names(bits: u32) -> BTreeSet<String> {
    (0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("file{bit}")).collect()
}

/// Checks one answer against the rules, each said again in its own words.
fn assert_rules(manifests: &[StoredManifest], keep: usize, live: &BTreeSet<String>, released: &BTreeSet<String>) {
    let retirement = retire(manifests, keep, live, released);
    let going = retirement.manifests().to_vec();
    let told = retirement.clone();
    let story = || format!("{manifests:?} keep {keep}, live {live:?}, released {released:?}: {told:?}");
    assert!(going.is_sorted(), "oldest first: {}", story());
    for manifest in manifests {
        let newer_committed = manifests.iter().filter(|m| m.committed && m.name > manifest.name).count();
        let may_go = manifest.committed && !manifest.pinned && newer_committed >= keep;
        assert_eq!(going.contains(&manifest.name), may_go, "{}: {}", manifest.name, story());
    }
    let still = retirement.still_named().clone();
    let files = retirement.files_after_manifests();
    let staying = manifests.iter().filter(|m| !going.contains(&m.name));
    let named_by_manifests: BTreeSet<&String> = staying.flat_map(|m| &m.files).collect();
    let candidates: BTreeSet<&String> =
        manifests.iter().filter(|m| going.contains(&m.name)).flat_map(|m| &m.files).chain(released).collect();
    for bit in 0..4 {
        let file = &format!("file{bit}");
        let named = named_by_manifests.contains(file) || live.contains(file);
        assert_eq!(files.contains(file), candidates.contains(file) && !named, "{file}: {}", story());
        let only_live = live.contains(file) && !named_by_manifests.contains(file);
        assert_eq!(still.contains(file), candidates.contains(file) && only_live, "{file}: {}", story());
    }
}

#[test]
fn for_every_small_store_exactly_what_nobody_needs_goes() {
    let mut stores = 0;
    for count in 0..=3u32 {
        // Commits run in order, but that is for others to see to: any of them may be committed.
        for committed in 0..1u32 << count {
            for pinned in 0..1u32 << count.min(2) {
                // With three manifests every fifth way to share out the files: all would take a minute.
                for files in (0..16u32.pow(count)).step_by(if count < 3 { 1 } else { 5 }) {
                    let manifests: Vec<StoredManifest> = (0..count)
                        .map(|i| StoredManifest {
                            name: name(10 + u64::from(i), 1),
                            committed: committed >> i & 1 == 1,
                            pinned: pinned >> i & 1 == 1,
                            files: names(files >> (4 * i) & 15),
                        })
                        .collect();
                    let sets: &[u32] = if count < 3 { &[0, 1, 2, 3, 5, 8, 12, 15] } else { &[0, 3, 6] };
                    for live in sets {
                        for released in sets {
                            assert_rules(&manifests, 1 + (files % 2) as usize, &names(*live), &names(*released));
                            stores += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(stores > 200_000, "only {stores}");
}

#[test]
fn a_file_that_a_pending_part_names_stays_though_its_manifest_goes() {
    let manifests: Vec<StoredManifest> = [(1, "old"), (2, "new")]
        .map(|(n, file)| StoredManifest {
            name: name(n, 1),
            committed: true,
            pinned: false,
            files: [file.to_owned()].into(),
        })
        .into();
    let live = ["old".to_owned()].into();
    let retirement = retire(&manifests, 1, &live, &BTreeSet::new());
    assert_eq!(retirement.manifests(), [name(1, 1)]);
    assert_eq!(retirement.still_named(), &live, "it may go once the part is done with");
    assert!(retirement.files_after_manifests().is_empty());
}

#[test]
fn a_sweep_takes_what_older_attempts_left_and_nothing_of_the_live_one() {
    let timeline =
        [StoredManifest { name: name(3, 1), committed: false, pinned: false, files: ["a".to_owned()].into() }];
    let orphaned = [name(5, 2), name(4, 1), name(6, 3)];
    let listed = [("a", Attempt(1)), ("b", Attempt(1)), ("c", Attempt(2)), ("d", Attempt(3)), ("e", Attempt(4))];
    let swept = sweep(BaseRecorded::durable(Attempt(3)), &timeline, orphaned, listed);
    assert_eq!(swept.manifests(), [name(4, 1), name(5, 2)]);
    assert_eq!(swept.files_after_manifests(), ["b", "c"].map(str::to_owned).into());
}

/// What happens to one checkpoint of one instance.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// A new base instead of one more delta.
    base: bool,
    /// Another instance fails, so that the checkpoint is declined.
    declined: bool,
    /// The commits are recorded late.
    commit: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    (prop::bool::weighted(0.3), prop::bool::weighted(0.3), prop::bool::weighted(0.7))
        .prop_map(|(base, declined, commit)| Turn { base, declined, commit })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A run with a ledger: at each moment every file that something names is on the disk, and once the janitor has
    /// been round nothing else is.
    #[test]
    fn over_a_whole_run_no_named_file_goes_and_nothing_leaks(turns in prop::collection::vec(turn(), 1..40), keep in 1usize..4) {
        let who = |operator| InstanceId { operator: OperatorId(operator), worker: WorkerIndex(0) };
        let pace = Pace {
            interval: Duration::ZERO,
            in_flight_max: 1,
            uncommitted_max: 3,
            timeout: Duration::from_secs(1),
            pause: Duration::ZERO,
        };
        let mut ledger = Ledger::new(pace, vec![who(0), who(1)], [], CheckpointId(1), Duration::ZERO);
        let mut disk: BTreeSet<String> = BTreeSet::new();
        let mut manifests: Vec<StoredManifest> = vec![];
        let mut chain: Vec<String> = vec![];
        for turn in turns {
            if ledger.uncommitted().count() >= 2 || turn.commit {
                for n in ledger.uncommitted().collect::<Vec<_>>() {
                    ledger.committed(n);
                    manifests.iter_mut().filter(|m| m.name.checkpoint == n).for_each(|m| m.committed = true);
                }
            }
            let n = ledger.start(Duration::ZERO);
            if turn.base {
                chain.clear();
            }
            chain.push(format!("{n}"));
            disk.insert(format!("{n}"));
            let files: Vec<&str> = chain.iter().map(String::as_str).collect();
            ledger.report(n, SnapshotReport::Durable(part(who(0), &files, &[])));
            ledger.report(n, match turn.declined {
                false => SnapshotReport::Durable(part(who(1), &[], &[])),
                true => SnapshotReport::Failed { instance: who(1), reason: String::new() },
            });
            ledger.frontier(Some(n.next())).unwrap();
            if let Some(draft) = ledger.next_publication() {
                let attempt = Attempt(1);
                manifests.push(StoredManifest {
                    name: ManifestName { checkpoint: n, attempt },
                    committed: false,
                    pinned: false,
                    files: chain.iter().cloned().collect(),
                });
                ledger.published(Published::durable(draft.checkpoint, attempt, 0));
            }
            // The janitor.
            let live = ledger.live_files();
            let retirement = retire(&manifests, keep, &live, &ledger.take_released());
            manifests.retain(|m| !retirement.manifests().contains(&m.name));
            ledger.release(retirement.still_named().clone());
            for file in retirement.files_after_manifests() {
                prop_assert!(disk.remove(&file), "{} was deleted twice", file);
            }
            let named: BTreeSet<String> = manifests.iter().flat_map(|m| m.files.clone()).chain(live).collect();
            prop_assert_eq!(&disk, &named);
        }
    }
}
