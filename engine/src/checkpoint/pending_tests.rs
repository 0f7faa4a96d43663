use super::*;
use crate::checkpoint::test_parts::part;
use crate::id::{OperatorId, WorkerIndex};

const N: CheckpointId = CheckpointId(7);

fn instance(operator: u32) -> InstanceId {
    InstanceId { operator: OperatorId(operator), worker: WorkerIndex(0) }
}

fn snapshot(of: InstanceId) -> SnapshotRef {
    part(of, &[], &[&of.operator.to_string()])
}

/// What one message can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Durable(u32),
    Failed(u32),
    TimeOut,
}

fn report(message: Message) -> Option<SnapshotReport> {
    match message {
        Message::Durable(operator) => Some(SnapshotReport::Durable(snapshot(instance(operator)))),
        Message::Failed(operator) => {
            Some(SnapshotReport::Failed { instance: instance(operator), reason: "disk full".to_owned() })
        }
        Message::TimeOut => None,
    }
}

/// All words of up to `length` messages.
fn words(alphabet: &[Message], length: usize) -> Vec<Vec<Message>> {
    let mut all = vec![vec![]];
    let mut last = all.clone();
    for _ in 0..length {
        last = last
            .iter()
            .flat_map(|word| {
                alphabet.iter().map(move |message| {
                    let mut longer: Vec<Message> = word.clone();
                    longer.push(*message);
                    longer
                })
            })
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// Two instances in the plan, messages also from a third, every word of up to five: a checkpoint is complete if and
/// only if each instance of the plan said exactly once that its part is durable, nobody else said anything, and it
/// wasn't too late.
#[test]
fn complete_means_exactly_one_part_of_each_instance_and_nothing_else() {
    use Message::{Durable, Failed, TimeOut};
    let plan = [instance(0), instance(1)];
    let alphabet = [Durable(0), Durable(1), Durable(2), Failed(0), Failed(1), TimeOut];
    let (mut complete, mut declined, mut incomplete) = (0, 0, 0);
    for word in words(&alphabet, 5) {
        let mut pending = PendingCheckpoint::new(N, &plan);
        let mut heard: Vec<InstanceId> = vec![];
        for message in &word {
            let Some(report) = report(*message) else {
                pending.time_out(10);
                continue;
            };
            let who = report.instance();
            let expected = match who {
                who if !plan.contains(&who) => Accepted::Unknown,
                who if heard.contains(&who) => Accepted::Duplicate,
                _ => Accepted::Accepted,
            };
            assert_eq!(pending.accept(report), expected, "{message:?} in {word:?}");
            heard.push(who);
        }
        let of = |operator| heard.iter().filter(|who| **who == instance(operator)).count();
        let one_each = of(0) == 1 && of(1) == 1 && of(2) == 0;
        let all_well = !word.iter().any(|m| matches!(m, Failed(_) | TimeOut));
        match pending.frontier_passed() {
            Ok(Settled::Complete(parts)) => {
                assert!(one_each && all_well, "{word:?} must not be complete");
                assert_eq!(parts, plan.map(snapshot));
                complete += 1;
            }
            Ok(Settled::Declined { reasons, durable }) => {
                assert!(one_each && !all_well, "{word:?} must not be a mere decline");
                assert_eq!(reasons.len(), word.iter().filter(|m| matches!(m, Failed(_) | TimeOut)).count());
                let expected = plan.iter().filter(|who| word.contains(&Durable(who.operator.0)));
                assert_eq!(durable, expected.map(|who| snapshot(*who)).collect::<Vec<_>>());
                declined += 1;
            }
            Err(Incomplete { missing, repeated, unknown, checkpoint }) => {
                assert!(!one_each, "{word:?} has a report of each");
                assert_eq!(checkpoint, N);
                assert_eq!(
                    missing.iter().map(|i| i.operator.0).collect::<Vec<_>>(),
                    (0..2).filter(|o| of(*o) == 0).collect::<Vec<_>>()
                );
                assert_eq!(repeated.len() + unknown.len() + 2 - missing.len(), heard.len());
                incomplete += 1;
            }
        }
    }
    assert_eq!(complete, 2, "the two orders of one report each");
    assert!(declined > 20 && incomplete > 1_000, "{declined} declined, {incomplete} incomplete");
}

#[test]
fn a_frontier_that_passes_with_a_lost_acknowledgement_names_who_is_missing() {
    let mut pending = PendingCheckpoint::new(N, &[instance(0), instance(1)]);
    pending.accept(SnapshotReport::Durable(snapshot(instance(1))));
    let error = pending.frontier_passed().unwrap_err();
    assert_eq!(
        error.to_string(),
        "checkpoint 7 was given up as done, but operator 0 on worker 0 said nothing; it is not published and the attempt ends"
    );
}

#[test]
fn who_is_awaited_and_which_files_are_named_is_known_while_pending() {
    let mut pending = PendingCheckpoint::new(N, &[instance(0), instance(1)]);
    pending.accept(SnapshotReport::Durable(part(instance(1), &["base", "delta"], &[])));
    assert_eq!(pending.awaited().collect::<Vec<_>>(), [instance(0)]);
    assert_eq!(pending.files().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["base", "delta"]);
}
