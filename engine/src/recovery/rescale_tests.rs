use super::*;
use crate::exchange::KeyGroup;

fn workers(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

#[test]
fn every_group_of_every_old_worker_goes_to_its_one_new_owner() {
    for groups in [1, 2, 5, 16, 61] {
        let groups = KeyGroups::new(groups).unwrap();
        for old in 1..=9 {
            for new in 1..=9 {
                let before = GroupAssignment::new(groups, workers(old));
                let after = GroupAssignment::new(groups, workers(new));
                let mut moved: Vec<(KeyGroup, WorkerIndex, WorkerIndex)> = vec![];
                for worker in (0..new).map(WorkerIndex) {
                    for piece in state_pieces(groups, workers(old), workers(new), worker) {
                        assert!(!piece.groups.is_empty());
                        assert_eq!(piece.whole, piece.groups == before.range_of(piece.from));
                        moved.extend(piece.groups.groups().map(|group| (group, piece.from, worker)));
                    }
                }
                let expected: Vec<_> = (0..groups.count())
                    .map(|group| KeyGroup(group as u16))
                    .map(|group| (group, before.worker_of(group), after.worker_of(group)))
                    .collect();
                assert_eq!(moved, expected, "{} groups from {old} to {new} workers", groups.count());
            }
        }
    }
}

#[test]
fn with_the_same_number_of_workers_everyone_gets_back_what_it_had() {
    let groups = KeyGroups::default();
    for count in 1..=8 {
        for worker in (0..count).map(WorkerIndex) {
            let had = GroupAssignment::new(groups, workers(count)).range_of(worker);
            let pieces = state_pieces(groups, workers(count), workers(count), worker);
            assert_eq!(pieces, [StatePiece { from: worker, groups: had, whole: true }]);
        }
    }
}
