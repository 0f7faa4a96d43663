use super::*;
use crate::graph::{PlanEdge, PlanNode, Role};

/// numbers -> (by key) count -> out, on two workers.
fn layout() -> Layout {
    let node = |id, name: &str, inputs| PlanNode {
        id: OperatorId(id),
        name: name.into(),
        kind: name.into(),
        inputs,
        outputs: 1,
        role: Role::Operator,
    };
    let edge = |from, by_key| PlanEdge { from: OperatorId(from), port: 0, by_key };
    let nodes =
        vec![node(0, "numbers", vec![]), node(1, "count", vec![edge(0, true)]), node(2, "out", vec![edge(1, false)])];
    Layout::of(&Plan { nodes }, 2)
}

fn id(operator: u32, worker: u32) -> InstanceId {
    InstanceId { operator: OperatorId(operator), worker: WorkerIndex(worker) }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn part([reached, cut, sealed, encoded, written]: [u64; 5]) -> PartTimes {
    PartTimes { reached: ms(reached), cut: ms(cut), sealed: ms(sealed), encoded: ms(encoded), written: ms(written) }
}

fn history(keep: usize) -> History {
    let mut history = History::default();
    history.begin(Attempt(1), layout(), keep);
    history
}

#[test]
fn each_phase_names_the_instance_that_held_it_up() {
    let mut history = history(4);
    let n = CheckpointId(5);
    history.triggered(n, ms(100), 77);
    for (instance, times) in [
        (id(0, 0), [101, 101, 101, 101, 101]),
        (id(0, 1), [102, 102, 102, 102, 102]),
        // The barrier stood before count on worker 1; out on worker 1 got it even later, and for no fault of its own.
        (id(1, 0), [103, 110, 111, 115, 120]),
        (id(1, 1), [141, 142, 145, 146, 190]),
        (id(2, 0), [112, 112, 112, 112, 113]),
        (id(2, 1), [143, 143, 143, 143, 150]),
    ] {
        history.reported(n, instance, part(times), None);
    }
    history.complete(n, ms(191));
    history.published(n, ms(195));
    history.committed(n, ms(198));
    let record = &history.records()[0];
    let name = |operator: &str, worker| Some(InstanceName { operator: operator.into(), worker });
    use CheckpointPhase::*;
    let expected = [
        (Barrier, 43, name("count", 1)),
        (Alignment, 7, name("count", 0)),
        (Seal, 3, name("count", 1)),
        (Encode, 4, name("count", 0)),
        (Write, 44, name("count", 1)),
        (Publish, 4, None),
        (Commit, 3, None),
    ];
    let expected: Vec<PhaseTime> =
        expected.into_iter().map(|(phase, took, by)| PhaseTime { phase, took: ms(took), by }).collect();
    assert_eq!(record.phases, expected);
    assert_eq!((record.triggered_ms, record.took, &record.state), (77, Some(ms(98)), &CheckpointState::Committed));
    assert_eq!(record.longest().map(|p| p.phase), Some(Write));
    assert_eq!(
        record.to_string(),
        "checkpoint 5 of attempt 1: committed after 98.0 ms; barrier 43.0 (count on worker 1), alignment 7.0 (count on \
         worker 0), seal 3.0 (count on worker 1), encode 4.0 (count on worker 0), write 44.0 (count on worker 1), publish \
         4.0, commit 3.0"
    );
}

#[test]
fn only_the_last_ones_are_kept_and_the_newest_of_a_number_is_meant() {
    let mut history = history(2);
    for n in 1..=3 {
        history.triggered(CheckpointId(n), ms(n), 0);
    }
    history.committed(CheckpointId(1), ms(9));
    history.begin(Attempt(2), layout(), 2);
    history.triggered(CheckpointId(3), ms(10), 0);
    history.declined(CheckpointId(3), "the disk is full", ms(12));
    let seen: Vec<_> = history.records().into_iter().map(|r| (r.checkpoint.0, r.attempt.0, r.state)).collect();
    let declined = CheckpointState::Declined("the disk is full".into());
    assert_eq!(seen, [(3, 1, CheckpointState::InFlight), (3, 2, declined)]);
}

#[test]
fn without_a_history_nothing_is_kept() {
    let mut history = history(0);
    history.triggered(CheckpointId(1), ms(1), 0);
    history.complete(CheckpointId(1), ms(2));
    assert_eq!(history.records(), []);
}
