use super::*;
use crate::checkpoint::{Blob, Counters, SnapshotRef, StateChain};
use crate::exchange::KeyGroups;
use crate::id::{Attempt, InstanceId, JobId, WorkerIndex};
use crate::snapshot::{HashIdentity, OperatorEntry, PlanIdentity};
use crate::source::SplitState;

/// What an operator of a checkpoint kept.
#[derive(Clone, Copy)]
enum Kept<'a> {
    Nothing,
    States(&'a [(&'a str, u64)]),
    Splits(&'a [&'a str]),
    Small(&'a str),
}
use Kept::{Nothing, Small, Splits, States};

fn manifest(operators: &[(&str, Kept<'_>)]) -> Manifest {
    let id = |i: usize| OperatorId(u32::try_from(i).expect("few"));
    let entry = |(i, (name, _)): (usize, &(&str, Kept<'_>))| OperatorEntry { id: id(i), name: (*name).to_owned() };
    let snapshot = |(i, (_, kept)): (usize, &(&str, Kept<'_>))| SnapshotRef {
        instance: InstanceId { operator: id(i), worker: WorkerIndex(0) },
        chains: match kept {
            States(states) => states
                .iter()
                .map(|(name, schema)| StateChain { name: (*name).to_owned(), schema: *schema, files: vec![] })
                .collect(),
            _ => vec![],
        },
        blobs: match kept {
            Splits(splits) => splits
                .iter()
                .map(|split| {
                    let state = SplitState { split: (*split).to_owned(), position: None, exhausted: false };
                    let bytes = postcard::to_stdvec(&state).expect("it encodes");
                    Blob { name: (*split).to_owned(), bytes }
                })
                .collect(),
            Small(name) => vec![Blob { name: (*name).to_owned(), bytes: vec![1; 9] }],
            Nothing | States(_) => vec![],
        },
        committables: vec![],
        counters: Counters::default(),
        exhausted: false,
    };
    Manifest {
        job: JobId(1),
        attempt: Attempt(1),
        checkpoint: CheckpointId(7),
        is_final: false,
        exact: true,
        workers: 1,
        key_groups: KeyGroups::default(),
        hash: HashIdentity::of_this_program(),
        plan: PlanIdentity { fingerprint: 1, operators: operators.iter().enumerate().map(entry).collect() },
        snapshots: operators.iter().enumerate().map(snapshot).collect(),
        carried: vec![],
    }
}

/// A program whose operators stand in this order; sources have splits.
fn program(operators: &[(&str, Kept<'_>, &[&str])]) -> Program {
    let operator = |(i, (name, kept, was)): (usize, &(&str, Kept<'_>, &[&str]))| ProgramOperator {
        id: OperatorId(u32::try_from(i).expect("few")),
        name: (*name).to_owned(),
        role: if matches!(kept, Splits(_)) { Role::Source } else { Role::Operator },
        was: was.iter().map(|name| (*name).to_owned()).collect(),
        states: match kept {
            States(states) => states.iter().map(|(name, schema)| state(name, *schema, &[])).collect(),
            _ => vec![],
        },
        splits: match kept {
            Splits(splits) => Some(splits.iter().map(|split| (*split).to_owned()).collect()),
            _ => None,
        },
    };
    Program { fingerprint: 2, operators: operators.iter().enumerate().map(operator).collect() }
}

/// A state whose version is its schema.
fn state(name: &str, schema: u64, older: &[u64]) -> ProgramState {
    let version = |schema: &u64| SchemaVersion { version: u32::try_from(*schema).expect("few"), fingerprint: *schema };
    ProgramState { name: name.to_owned(), schema: version(&schema), older: older.iter().map(version).collect() }
}

fn compared(manifest: &Manifest, program: &Program) -> Upgrade {
    compare(manifest, program, &BTreeSet::new())
}

fn allowing(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// "operator part: change" of every row.
fn told(upgrade: &Upgrade) -> Vec<String> {
    upgrade.rows.iter().map(|row| format!("{} {}: {}", row.operator, row.part, row.change)).collect()
}

fn problem(upgrade: &Upgrade) -> &Problem {
    let problems: Vec<&UpgradeRow> = upgrade.problems().collect();
    match problems[..] {
        [UpgradeRow { change: Change::Refused(problem), .. }] => problem,
        _ => panic!("one problem expected: {upgrade}"),
    }
}

#[test]
fn stateless_steps_may_come_and_go_and_state_finds_its_operator_by_name() {
    let then = manifest(&[("in", Splits(&["a", "b"])), ("chain-1", Nothing), ("count", States(&[("counts", 5)]))]);
    let now = program(&[
        ("in", Splits(&["a", "b", "c"]), &[]),
        ("chain-1", Nothing, &[]),
        ("fork-2", Nothing, &[]),
        ("count", States(&[("counts", 5)]), &[]),
        ("sink", Nothing, &[]),
    ]);
    let upgrade = compared(&then, &now);
    assert_eq!(told(&upgrade), ["in 2 splits: kept", "count state counts: kept"]);
    assert_eq!(upgrade.origin(OperatorId(3)), Some(OperatorId(2)));
    assert!(!upgrade.same_graph && !upgrade.changes_something());
}

#[test]
fn in_the_same_graph_everything_is_where_it_was() {
    let then =
        manifest(&[("in", Splits(&["a"])), ("timestamps-1", Small("largest-time")), ("timestamps-2", Small("x"))]);
    let mut now =
        program(&[("in", Splits(&["a"]), &[]), ("timestamps-1", Nothing, &[]), ("timestamps-2", Nothing, &[])]);
    now.fingerprint = 1;
    let upgrade = compared(&then, &now);
    assert_eq!(upgrade.origins.len(), 3);
    assert_eq!(upgrade.problems().count(), 0, "{upgrade}");
}

#[test]
fn types_that_changed_are_migrated_if_a_migration_is_registered_and_refused_if_not() {
    let then = manifest(&[("count", States(&[("counts", 1)]))]);
    let mut now = program(&[("count", States(&[("counts", 3)]), &[])]);
    let refused = compared(&then, &now);
    assert_eq!(*problem(&refused), Problem::UnknownSchema { found: 1, known: vec![3] });
    now.operators[0].states = vec![state("counts", 3, &[1, 2])];
    let upgrade = compared(&then, &now);
    assert_eq!(upgrade.rows[0].change, Change::Migrated { from: 1, to: 3 });
    assert_eq!(upgrade.problems().count(), 0);
}

#[test]
fn what_the_program_does_not_have_is_never_dropped_in_silence() {
    let then = manifest(&[("in", Splits(&["a"])), ("count", States(&[("counts", 1), ("more", 2)]))]);
    let now = program(&[("in", Splits(&["a"]), &[]), ("other", States(&[("others", 9)]), &[])]);
    let refused = compared(&then, &now);
    assert_eq!(refused.problems().count(), 2, "{refused}");
    let rows = ["in 1 split: kept", "other state others: new", "count state counts: dropped, as allowed"];
    let upgrade = compare(&then, &now, &allowing(&["count"]));
    assert_eq!(told(&upgrade)[..3], rows);
    assert_eq!(upgrade.problems().count(), 0);
    let one_of_two = compare(&then, &now, &allowing(&["count/more"]));
    assert_eq!(*problem(&one_of_two), Problem::WouldBeDropped { candidates: vec![] });
}

#[test]
fn something_dropped_and_something_new_of_its_shape_look_like_a_rename_and_are_asked_about() {
    let then = manifest(&[("in", Splits(&["a"])), ("count", States(&[("counts", 1)]))]);
    let now = |was: &'static [&'static str]| {
        program(&[("in", Splits(&["a"]), &[]), ("clicks", States(&[("counts", 1)]), was)])
    };
    let refused = compared(&then, &now(&[]));
    assert_eq!(*problem(&refused), Problem::WouldBeDropped { candidates: vec!["clicks".to_owned()] });
    assert!(refused.to_string().contains(".was(\"count\")"), "{refused}");
    let renamed = compared(&then, &now(&["before", "count"]));
    assert_eq!(told(&renamed), ["in 1 split: kept", "clicks state counts: kept"]);
    assert_eq!(renamed.rows[1].was.as_deref(), Some("count"));
    let dropped = compare(&then, &now(&[]), &allowing(&["count"]));
    assert_eq!((dropped.problems().count(), dropped.origin(OperatorId(1))), (0, None));
}

#[test]
fn a_source_that_was_renamed_or_lost_a_split_is_asked_about() {
    let then = manifest(&[("in", Splits(&["a", "b"]))]);
    let renamed = compared(&then, &program(&[("lines", Splits(&["a", "b"]), &[])]));
    assert_eq!(*problem(&renamed), Problem::WouldBeDropped { candidates: vec!["lines".to_owned()] });
    let was = compared(&then, &program(&[("lines", Splits(&["a", "b"]), &["in"])]));
    assert_eq!(told(&was), ["lines 2 splits: kept"]);
    let fewer = program(&[("in", Splits(&["b"]), &[])]);
    let refused = compared(&then, &fewer);
    assert_eq!(*problem(&refused), Problem::WouldBeDropped { candidates: vec![] });
    assert!(refused.to_string().contains("--allow-dropped in/a"), "{refused}");
    let allowed = compare(&then, &fewer, &allowing(&["in/a"]));
    assert_eq!(allowed.problems().count(), 0);
    assert!(allowed.forgotten_splits.contains(&(OperatorId(0), "a".to_owned())));
}

#[test]
fn two_names_for_one_and_one_name_for_two_are_refused() {
    let then = manifest(&[("a", States(&[("s", 1)])), ("b", States(&[("s", 1)]))]);
    let both = compare(&then, &program(&[("b", States(&[("s", 1)]), &["a"])]), &allowing(&["a"]));
    assert_eq!(*problem(&both), Problem::SeveralOrigins { names: vec!["b".to_owned(), "a".to_owned()] });
    // Swapped names are such a case: nobody can tell whether the checkpoint is from before.
    let swapped = compared(&then, &program(&[("a", States(&[("s", 1)]), &["b"]), ("b", States(&[("s", 1)]), &["a"])]));
    assert_eq!(swapped.problems().count(), 2, "{swapped}");
    let then = manifest(&[("old", States(&[("s", 1)]))]);
    let twice =
        compared(&then, &program(&[("x", States(&[("s", 1)]), &["old"]), ("y", States(&[("s", 1)]), &["old"])]));
    assert_eq!(twice.problems().count(), 2, "{twice}");
}

#[test]
fn a_state_that_was_renamed_within_its_operator_is_asked_about() {
    let then = manifest(&[("p", States(&[("seen", 4)]))]);
    let refused = compared(&then, &program(&[("p", States(&[("known", 4)]), &[])]));
    assert_eq!(told(&refused), ["p state known: new", "p state seen: WOULD BE LOST"]);
    assert_eq!(*problem(&refused), Problem::WouldBeDropped { candidates: vec!["known".to_owned()] });
}

#[test]
fn a_source_can_not_become_an_operator_nor_the_other_way_round() {
    let source = manifest(&[("x", Splits(&["a"]))]);
    let refused = compared(&source, &program(&[("x", States(&[("s", 1)]), &[])]));
    assert_eq!(*problem(&refused), Problem::OtherRole { was_source: true });
    let operator = manifest(&[("x", States(&[("s", 1)]))]);
    let refused = compared(&operator, &program(&[("x", Splits(&["a"]), &[])]));
    assert_eq!(*problem(&refused), Problem::OtherRole { was_source: false });
}

#[test]
fn what_keeps_something_under_a_made_up_name_is_matched_in_one_way_or_asked_about() {
    let small = Small("largest-time");
    let then = manifest(&[("in", Splits(&["a"])), ("timestamps-1", small)]);
    let moved = compared(
        &then,
        &program(&[("in", Splits(&["a"]), &[]), ("chain-1", Nothing, &[]), ("timestamps-2", Nothing, &[])]),
    );
    assert_eq!(moved.origin(OperatorId(2)), Some(OperatorId(1)), "there is one then and now: {moved}");
    assert_eq!(moved.problems().count(), 0);

    let then = manifest(&[("timestamps-0", small), ("timestamps-1", small)]);
    let added = |was: &'static [&'static str]| {
        program(&[
            ("chain-0", Nothing, &[]),
            ("timestamps-1", Nothing, was),
            ("timestamps-2", Nothing, &["timestamps-1"]),
        ])
    };
    let refused = compared(&then, &added(&[]));
    assert_eq!(refused.problems().count(), 0, "one is left over on each side once the other is named: {refused}");
    let mut unnamed = added(&["timestamps-0"]);
    unnamed.operators[2].was.clear();
    unnamed.operators[1].was.clear();
    assert_eq!(compared(&then, &unnamed).problems().count(), 2);
    let gone = compared(&then, &program(&[("in", Splits(&["a"]), &[])]));
    assert_eq!(gone.problems().count(), 2, "nothing of its kind is left: {gone}");
}

#[test]
fn records_in_flight_have_no_place_in_another_graph_and_are_no_state_in_the_same_one() {
    let then = manifest(&[("in", Splits(&["a"])), ("count", States(&[("counts", 1), ("+in-flight", 9)]))]);
    let mut now = program(&[("in", Splits(&["a"]), &[]), ("count", States(&[("counts", 1)]), &[])]);
    assert_eq!(*problem(&compared(&then, &now)), Problem::InFlight);
    now.fingerprint = 1;
    assert_eq!(told(&compared(&then, &now)), ["in 1 split: kept", "count state counts: kept"]);
}
