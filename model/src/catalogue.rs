//! The searches: small ones for every change, large ones by command, and for each fault the one that finds it.

use crate::config::{Config, Role};
use crate::fault::Fault;

/// Not divided: records stay on their worker.
const LOCAL: bool = false;
/// Divided by key group.
const KEYED: bool = true;

/// Source and sink, nothing in between.
fn shortest(name: &'static str, records: &[u16]) -> Config {
    Config::new(name, vec![Role::Source(vec![records.to_vec()]), Role::Sink], &[(0, 1, LOCAL)])
}

/// A source, keyed state, a sink.
fn counting(name: &'static str, splits: &[&[u16]]) -> Config {
    let splits = splits.iter().map(|records| records.to_vec()).collect();
    Config::new(name, vec![Role::Source(splits), Role::Count, Role::Sink], &[(0, 1, KEYED), (1, 2, LOCAL)])
}

/// Two ways from one operator to another, of different lengths.
fn diamond(name: &'static str, records: &[u16]) -> Config {
    let roles = vec![Role::Source(vec![records.to_vec()]), Role::Pass, Role::Pass, Role::Count, Role::Sink];
    let edges = [(0, 1, LOCAL), (1, 2, LOCAL), (1, 3, LOCAL), (2, 3, LOCAL), (3, 4, LOCAL)];
    Config::new(name, roles, &edges)
}

/// Two sources, two sinks.
fn two_by_two(name: &'static str, one: &[u16], other: &[u16]) -> Config {
    let source = |records: &[u16]| Role::Source(vec![records.to_vec()]);
    let roles = vec![source(one), source(other), Role::Count, Role::Sink, Role::Sink];
    let edges = [(0, 2, KEYED), (1, 2, KEYED), (2, 3, LOCAL), (2, 4, LOCAL)];
    Config::new(name, roles, &edges)
}

/// What every change is tested with.
pub fn small() -> Vec<Config> {
    vec![
        Config { crashes: 1, restarts: 1, ..counting("a crash", &[&[0, 1]]) },
        Config { crashes: 2, ..counting("two crashes", &[&[0]]) },
        Config { crashes: 1, ..two_by_two("two sources, two sinks", &[0], &[0, 1]) },
        Config { workers: vec![2], ..counting("two workers", &[&[0, 3], &[3, 0]]) },
        Config { workers: vec![2, 1], crashes: 1, ..counting("from two workers to one", &[&[0, 3], &[3]]) },
        Config { workers: vec![1, 2], crashes: 1, ..counting("from one worker to two", &[&[0, 3]]) },
        diamond("diamond", &[0, 1, 0]),
        Config { checkpoints: 2, in_flight: 2, ..diamond("diamond, two checkpoints at once", &[0, 1]) },
        Config { crashes: 2, power: true, ..counting("power cuts", &[&[0, 1]]) },
        Config { zombies: 1, ..counting("a zombie", &[&[0]]) },
        Config { checkpoints: 0, zombies: 1, crashes: 1, ..counting("a zombie and a crash", &[&[0]]) },
        Config { checkpoints: 0, zombies: 2, restarts: 1, ..shortest("two zombies", &[0]) },
        Config { checkpoints: 2, failed_writes: 1, ..counting("a failed write", &[&[0, 1]]) },
        Config { timeouts: 1, crashes: 1, ..counting("a time-out", &[&[0]]) },
        Config {
            checkpoints: 2,
            failed_writes: 1,
            timeouts: 1,
            refused_manifests: 1,
            ..counting("three ways to decline", &[&[0, 0]])
        },
        Config { refused_manifests: 1, crashes: 1, ..counting("a refused manifest", &[&[0]]) },
        Config { lost_acks: 1, repeated_acks: 1, ..counting("a lost and a repeated report", &[&[0, 1]]) },
        Config { parallel_io: true, crashes: 1, ..shortest("publishing beside commits", &[0, 1]) },
    ]
}

/// What takes minutes.
pub fn large() -> Vec<Config> {
    vec![
        Config { checkpoints: 2, crashes: 2, restarts: 1, ..counting("large: two crashes", &[&[0, 1]]) },
        Config {
            checkpoints: 2,
            failed_writes: 1,
            timeouts: 1,
            refused_manifests: 1,
            crashes: 1,
            ..counting("large: declined and a crash", &[&[0, 0]])
        },
        Config { workers: vec![2], crashes: 1, ..counting("large: two workers", &[&[0, 3], &[3, 0]]) },
        Config { workers: vec![2, 1, 2], crashes: 2, ..counting("large: other workers twice", &[&[0], &[3]]) },
        Config { workers: vec![3], ..counting("large: three workers", &[&[0], &[1], &[3]]) },
        Config { checkpoints: 2, ..diamond("large: diamond", &[0, 0, 1, 0]) },
        Config { barriers_wait: true, checkpoints: 2, ..diamond("large: diamond, barriers wait", &[0, 0, 1, 0]) },
        Config { checkpoints: 2, in_flight: 2, ..diamond("large: diamond, two at once", &[0, 1, 0]) },
        Config { zombies: 1, crashes: 1, ..counting("large: a zombie and a crash", &[&[0]]) },
        Config { checkpoints: 0, zombies: 2, crashes: 1, ..shortest("large: two zombies and a crash", &[0]) },
        Config { zombies: 1, crashes: 1, power: true, ..shortest("large: a zombie and a power cut", &[0]) },
    ]
}

/// The search that finds a fault.
pub fn finds(fault: Fault) -> Config {
    let named = |name: &str| {
        let known = small().into_iter().find(|config| config.name == name);
        known.unwrap_or_else(|| panic!("there is no search {name:?}"))
    };
    let config = match fault {
        Fault::PermitBeforePublish
        | Fault::CommitTwice
        | Fault::ForgetAtCommit
        | Fault::NumbersRestart
        | Fault::EndBeforeCommit
        | Fault::RecordBeforeManifest => named("a crash"),
        // A base retires when two others have followed it.
        Fault::FilesBeforeManifests => Config { checkpoints: 2, crashes: 1, ..counting("three bases", &[&[0, 1, 0]]) },
        Fault::PermitBeforeSync | Fault::ReaderDoesNotSync | Fault::ReportBeforeSync => named("power cuts"),
        Fault::FrontierAlone | Fault::ReportsCounted => named("a lost and a repeated report"),
        Fault::CommitOneByOne => named("two sources, two sinks"),
        Fault::SinkNotFenced | Fault::SweepBeforeBase => named("a zombie and a crash"),
        Fault::StoreNotFenced => Config { crashes: 1, zombies: 1, ..shortest("empty checkpoints of a zombie", &[]) },
        Fault::ListedOnce => Config { zombies: 1, ..shortest("a zombie that retires", &[]) },
        Fault::OldTimeline => named("two zombies"),
        Fault::BaseRecommittedOnly => named("publishing beside commits"),
        Fault::AbortByGuess => named("from two workers to one"),
        Fault::BarrierOneByOne | Fault::CreditKept => named("diamond"),
        Fault::EndAtExhaustion | Fault::HeldProcessed => named("two workers"),
        Fault::CarriedDropped => named("a time-out"),
        // A base, a delta that fails, another delta.
        Fault::DirtySetLost => named("a failed write"),
    };
    config.with(fault)
}
