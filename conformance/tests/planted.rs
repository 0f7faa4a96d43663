//! Connectors with one mistake each. The kit must find every one by its rule, and nothing in those without one.

#[path = "planted/below.rs"]
mod below;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cutwater_conformance::{Rule, Violations, sink, source};
use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::{SinkError, SourceError};
use cutwater_engine::graph::Job;
use cutwater_engine::id::{Attempt, CheckpointId, JobId};
use cutwater_engine::sink::{CommitGroup, Committed, Honours, Prepare, Sink, SinkWriter, Visibility, WriterId};
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};

// Sources.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceFault {
    None,
    /// Its position is one record too early.
    Early,
    /// Its position is one record too late.
    Late,
    /// Its position is where its last batch began.
    BatchStart,
    /// Opened again, it begins at the beginning.
    Forgets,
    /// It gives a last record again after its end.
    Undead,
    /// It never says that it is at its end.
    Endless,
    /// Opened at its end, it waits for ever.
    WaitsAtEnd,
    /// It takes any bytes for a position.
    Gullible,
    /// It panics over a damaged position.
    Panics,
    /// Readers of one instance share where they are.
    Shares,
    /// It lists a split twice.
    TwinSplits,
    /// What it reads depends on how much is asked for.
    Greedy,
    /// Asking for its position moves it.
    Moves,
    /// Can't be read again, it says, and lets itself be opened anywhere.
    Lies,
}

/// The numbers 100 s to 100 s + 29 in each of three splits s.
struct Numbers {
    fault: SourceFault,
    shared: Arc<Mutex<u64>>,
}

struct Counter {
    fault: SourceFault,
    split: u64,
    next: Mutex<u64>,
    batch: u64,
    shared: Arc<Mutex<u64>>,
    opened_at_end: bool,
}

const LEN: u64 = 30;

impl Source for Numbers {
    type Item = u64;

    fn replay(&self) -> Replay {
        match self.fault {
            SourceFault::Lies => Replay::Never("it is gone once read".to_string()),
            _ => Replay::FromPosition,
        }
    }

    fn splits(&self) -> Result<Vec<String>, SourceError> {
        let mut splits: Vec<String> = (0..3).map(|s: u64| s.to_string()).collect();
        if self.fault == SourceFault::TwinSplits {
            splits.push("0".to_string());
        }
        Ok(splits)
    }

    fn open(&self, split: &str, at: Option<&[u8]>, _: Waker) -> Result<Box<dyn Reader<Item = u64>>, SourceError> {
        let refuse = || SourceError::fatal(split, "this is no position");
        let number = match at.map(<[u8; 8]>::try_from) {
            None => 0,
            Some(Ok(bytes)) => u64::from_le_bytes(bytes),
            Some(Err(_)) if matches!(self.fault, SourceFault::Gullible | SourceFault::Lies) => 0,
            Some(Err(_)) if self.fault == SourceFault::Panics => panic!("eight bytes were expected"),
            Some(Err(_)) => return Err(refuse()),
        };
        if number > LEN && self.fault != SourceFault::Gullible {
            return Err(refuse());
        }
        let next = if self.fault == SourceFault::Forgets { 0 } else { number.min(LEN) };
        *self.shared.lock().unwrap() = next;
        Ok(Box::new(Counter {
            fault: self.fault,
            split: split.parse().map_err(|_| refuse())?,
            next: Mutex::new(next),
            batch: next,
            shared: self.shared.clone(),
            opened_at_end: at.is_some() && next == LEN,
        }))
    }
}

impl Reader for Counter {
    type Item = u64;

    fn read(&mut self, out: &mut Vec<u64>, max: usize) -> Result<Read, SourceError> {
        if self.fault == SourceFault::WaitsAtEnd && self.opened_at_end {
            return Ok(Read::Wait);
        }
        let next = match self.fault {
            SourceFault::Shares => *self.shared.lock().unwrap(),
            _ => *self.next.lock().unwrap(),
        };
        if next == LEN && self.fault == SourceFault::Undead {
            out.push(self.split * 100 + LEN - 1);
            return Ok(Read::Exhausted);
        }
        let wanted = if self.fault == SourceFault::Greedy && max > 5 { max as u64 - 1 } else { max as u64 };
        let end = next.saturating_add(wanted).min(LEN);
        // A greedy one leaves out a record when much is asked for.
        let from = if self.fault == SourceFault::Greedy && max > 5 && next < LEN { next + 1 } else { next };
        out.extend((from..end).map(|n| self.split * 100 + n));
        self.batch = next;
        *self.next.lock().unwrap() = end;
        *self.shared.lock().unwrap() = end;
        Ok(match end == LEN {
            true if self.fault == SourceFault::Endless => Read::Wait,
            true => Read::Exhausted,
            false => Read::More,
        })
    }

    fn position(&self) -> Vec<u8> {
        let mut next = self.next.lock().unwrap();
        let position = match self.fault {
            SourceFault::Early => next.saturating_sub(1),
            SourceFault::Late => (*next + 1).min(LEN),
            SourceFault::BatchStart => self.batch,
            _ => *next,
        };
        if self.fault == SourceFault::Moves {
            *next = (*next + 1).min(LEN);
        }
        position.to_le_bytes().to_vec()
    }
}

fn look_at(fault: SourceFault) -> Result<cutwater_conformance::Conforms, Violations> {
    // Waiting costs nothing there.
    let platform = cutwater_testkit::SimPlatform::new(1).platform();
    source(move |_| Numbers { fault, shared: Arc::default() }).platform(platform).run()
}

#[test]
fn a_source_without_a_mistake_passes() {
    look_at(SourceFault::None).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn every_mistake_of_a_source_is_found_by_its_rule() {
    for (fault, rule) in [
        (SourceFault::Early, Rule::PositionResumes),
        (SourceFault::Late, Rule::PositionResumes),
        (SourceFault::BatchStart, Rule::PositionResumes),
        (SourceFault::Forgets, Rule::PositionResumes),
        (SourceFault::Undead, Rule::ExhaustedStays),
        (SourceFault::Endless, Rule::Ends),
        (SourceFault::WaitsAtEnd, Rule::ExhaustedStays),
        (SourceFault::Gullible, Rule::BadPositionRefused),
        (SourceFault::Panics, Rule::NoPanic),
        (SourceFault::Shares, Rule::SplitsMove),
        (SourceFault::TwinSplits, Rule::SplitsStable),
        (SourceFault::Greedy, Rule::ReadsAlike),
        (SourceFault::Moves, Rule::PositionIsPure),
        (SourceFault::Lies, Rule::NeverMeansNever),
    ] {
        let found = look_at(fault).expect_err(&format!("{fault:?} goes unnoticed"));
        assert!(found.breaks(rule), "{fault:?} should break {rule:?}: {found}");
    }
}

// Sinks, on a system of their own that outlives the job.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkFault {
    None,
    /// Records show when they are prepared.
    ShowsPrepared,
    /// A commit that is repeated shows everything again.
    CommitsTwice,
    /// A commit that is repeated says that it did it now.
    NeverAlready,
    /// What was written behind a seal goes with it.
    SealLeaks,
    /// It forgets what was prepared when a new attempt comes.
    LosesPrepared,
    /// It aborts nothing.
    AbortsNothing,
    /// It aborts everything.
    AbortsAll,
    /// Its fence keeps nobody out.
    NoFence,
    /// Its fence lets a lower attempt take over.
    LowerTakesOver,
    /// A handle that it doesn't know is committed, it says.
    UnknownIsFine,
    /// Of several handles it commits the last.
    OnlyNewest,
    /// It loses a writer's last record.
    DropsLast,
    /// It shows a writer's records backwards.
    Backwards,
    /// It forgets output along with handles.
    ForgetsOutput,
    /// It honours exactly-once and has no group.
    NoGroup,
    /// It counts nothing as prepared.
    CountsNothing,
    /// It panics over a handle that it can't read.
    PanicsOverHandles,
    /// It says Failed where it should say Fenced.
    WrongError,
    /// It counts a commit of nothing.
    CountsEmpty,
    /// Of a checkpoint it shows a half, and the rest with the next commit.
    ShowsHalves,
    /// It doesn't commit what an older attempt has prepared.
    DropsOld,
}

/// What outlives the job, by data directory.
#[derive(Default)]
struct System {
    attempt: u64,
    prepared: BTreeMap<u64, (u64, Vec<u64>)>,
    committed: BTreeSet<u64>,
    shown: Vec<(u64, Vec<u64>)>,
    /// The halves that wait for the next commit.
    halves: Vec<(u64, Vec<u64>)>,
    next: u64,
}

type Systems = Arc<Mutex<BTreeMap<String, System>>>;

#[derive(Clone)]
struct Table {
    fault: SinkFault,
    systems: Systems,
    dir: String,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?})", self.fault)
    }
}

impl Table {
    fn with<T>(&self, act: impl FnOnce(&mut System) -> T) -> T {
        act(self.systems.lock().unwrap().entry(self.dir.clone()).or_default())
    }

    fn check(&self, attempt: u64) -> Result<(), SinkError> {
        let newest = self.with(|system| system.attempt);
        let what = "table".to_string();
        match (attempt < newest, self.fault) {
            (false, _) | (true, SinkFault::NoFence) => Ok(()),
            (true, SinkFault::WrongError) => {
                Err(SinkError::Failed { what, reason: "it is somebody else's".to_string() })
            }
            (true, _) => Err(SinkError::Fenced { what }),
        }
    }
}

struct TableWriter {
    table: Table,
    attempt: u64,
    open: Vec<u64>,
}

impl Sink for Table {
    type Item = u64;

    fn honours(&self) -> Honours {
        Honours { guarantees: vec![GuaranteeKind::ExactlyOnce], reason: "it has transactions".to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        (self.fault != SinkFault::NoGroup).then(|| Arc::new(Group { table: self.clone(), attempt: Mutex::new(0) }) as _)
    }

    fn open(&self, writer: &WriterId) -> Result<Box<dyn SinkWriter<Item = u64>>, SinkError> {
        assert!(matches!(writer.visibility, Visibility::ByCheckpoint { .. }));
        self.check(writer.attempt.0)?;
        Ok(Box::new(TableWriter { table: self.clone(), attempt: writer.attempt.0, open: vec![] }))
    }
}

impl SinkWriter for TableWriter {
    type Item = u64;

    fn write(&mut self, batch: Vec<u64>) -> Result<(), SinkError> {
        self.open.extend(batch);
        if self.table.fault == SinkFault::SealLeaks {
            // What is sealed and not prepared yet is still being written to.
            let leaked = std::mem::take(&mut self.open);
            self.table.with(|system| match system.prepared.values_mut().last() {
                Some((_, rows)) => rows.extend(&leaked),
                None => self.open = leaked,
            });
        }
        Ok(())
    }

    fn seal(&mut self, _: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        let mut rows = std::mem::take(&mut self.open);
        if rows.is_empty() {
            return Ok(None);
        }
        match self.table.fault {
            SinkFault::DropsLast => _ = rows.pop(),
            SinkFault::Backwards => rows.reverse(),
            _ => {}
        }
        let (table, attempt) = (self.table.clone(), self.attempt);
        let leaks = self.table.fault == SinkFault::SealLeaks;
        let number = self.table.with(|system| {
            system.next += 1;
            if leaks {
                system.prepared.insert(system.next, (attempt, rows.clone()));
            }
            system.next
        });
        Ok(Some(Box::new(move || {
            table.check(attempt)?;
            table.with(|system| {
                if table.fault == SinkFault::ShowsPrepared {
                    system.shown.push((number, rows.clone()));
                }
                if !leaks {
                    system.prepared.insert(number, (attempt, rows));
                }
            });
            Ok(Some(number.to_le_bytes().to_vec()))
        })))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Group {
    table: Table,
    attempt: Mutex<u64>,
}

impl CommitGroup for Group {
    fn name(&self) -> &str {
        "table"
    }

    fn fence(&self, _: JobId, Attempt(attempt): Attempt) -> Result<(), SinkError> {
        if self.table.fault != SinkFault::LowerTakesOver {
            self.table.check(attempt)?;
        }
        *self.attempt.lock().unwrap() = attempt;
        self.table.with(|system| {
            system.attempt = attempt;
            if self.table.fault == SinkFault::LosesPrepared {
                system.prepared.clear();
            }
        });
        Ok(())
    }

    fn prepared(&self) -> Result<usize, SinkError> {
        match self.table.fault {
            SinkFault::CountsNothing => Ok(0),
            _ => Ok(self.table.with(|system| system.prepared.len())),
        }
    }

    fn commit(&self, handles: &[Vec<u8>]) -> Result<Committed, SinkError> {
        let mut committed = Committed::default();
        if self.table.fault == SinkFault::CountsEmpty && handles.is_empty() {
            committed.now = 1;
        }
        let newest = *self.attempt.lock().unwrap();
        self.table.with(|system| {
            let halves = std::mem::take(&mut system.halves);
            system.shown.extend(halves);
        });
        let handles = match self.table.fault {
            SinkFault::OnlyNewest => &handles[handles.len().saturating_sub(1)..],
            _ => handles,
        };
        for handle in handles {
            let lost = || SinkError::Fatal { what: "table".to_string(), reason: "this output is lost".to_string() };
            let number = match <[u8; 8]>::try_from(handle.as_slice()) {
                Ok(bytes) => u64::from_le_bytes(bytes),
                Err(_) if self.table.fault == SinkFault::PanicsOverHandles => panic!("eight bytes were expected"),
                Err(_) if self.table.fault == SinkFault::UnknownIsFine => continue,
                Err(_) => return Err(lost()),
            };
            self.table.with(|system| {
                if system.committed.contains(&number) {
                    match self.table.fault {
                        SinkFault::NeverAlready => committed.now += 1,
                        _ => committed.already += 1,
                    }
                    if self.table.fault == SinkFault::CommitsTwice {
                        let again = system.shown.iter().find(|(n, _)| *n == number).cloned();
                        system.shown.extend(again);
                    }
                    return Ok(());
                }
                match system.prepared.remove(&number) {
                    Some((attempt, _)) if self.table.fault == SinkFault::DropsOld && attempt < newest => Err(lost()),
                    Some((_, mut rows)) => {
                        if self.table.fault == SinkFault::ShowsHalves {
                            system.halves.push((number, rows.split_off(rows.len() / 2)));
                        }
                        if self.table.fault != SinkFault::ShowsPrepared {
                            system.shown.push((number, rows));
                        }
                        system.committed.insert(number);
                        committed.now += 1;
                        Ok(())
                    }
                    None if self.table.fault == SinkFault::UnknownIsFine => Ok(()),
                    None => Err(lost()),
                }
            })?;
        }
        Ok(committed)
    }

    fn abort_all_but(&self, keep: &[Vec<u8>]) -> Result<usize, SinkError> {
        let before = self.table.with(|system| system.prepared.len());
        self.table.with(|system| match self.table.fault {
            SinkFault::AbortsNothing => {}
            SinkFault::AbortsAll => system.prepared.clear(),
            _ => system.prepared.retain(|number, _| keep.contains(&number.to_le_bytes().to_vec())),
        });
        Ok(before - self.table.with(|system| system.prepared.len()))
    }

    fn forget(&self, handles: &[Vec<u8>]) -> Result<(), SinkError> {
        if self.table.fault == SinkFault::ForgetsOutput {
            self.table.with(|system| system.shown.retain(|(n, _)| !handles.contains(&n.to_le_bytes().to_vec())));
        }
        Ok(())
    }
}

fn look_into(fault: SinkFault) -> Result<cutwater_conformance::Conforms, Violations> {
    let systems: Systems = Arc::default();
    let (of_sink, of_reader) = (systems.clone(), systems);
    let dir = |job: &Job| job.environment().dir.display().to_string();
    let table = move |job: &Job| Table { fault, systems: of_sink.clone(), dir: dir(job) };
    let shown = move |job: &Job| {
        let systems = of_reader.lock().unwrap();
        systems.get(&dir(job)).map_or(vec![], |s| s.shown.iter().flat_map(|(_, rows)| rows.clone()).collect())
    };
    sink(table, |n| n, shown).run()
}

#[test]
fn a_sink_without_a_mistake_passes_and_power_cuts_that_could_not_strike_are_named() {
    let conforms = look_into(SinkFault::None).unwrap_or_else(|e| panic!("{e}"));
    assert!(conforms.skipped.iter().any(|(rule, _)| *rule == Rule::ExactThroughCrashes), "{conforms:?}");
}

#[test]
fn every_mistake_of_a_sink_is_found_by_its_rule() {
    for (fault, rule) in [
        (SinkFault::ShowsPrepared, Rule::NothingBeforeCommit),
        (SinkFault::CommitsTwice, Rule::CommitIdempotent),
        (SinkFault::NeverAlready, Rule::CommitIdempotent),
        (SinkFault::SealLeaks, Rule::SealDivides),
        (SinkFault::LosesPrepared, Rule::PreparedSurvives),
        (SinkFault::AbortsNothing, Rule::UnlistedAborted),
        (SinkFault::AbortsAll, Rule::UnlistedAborted),
        (SinkFault::NoFence, Rule::OldAttemptRefused),
        (SinkFault::LowerTakesOver, Rule::LowerFenceRefused),
        (SinkFault::UnknownIsFine, Rule::UnknownHandleFatal),
        (SinkFault::OnlyNewest, Rule::CarriedOver),
        (SinkFault::DropsLast, Rule::CommitShows),
        (SinkFault::Backwards, Rule::OrderKept),
        (SinkFault::ForgetsOutput, Rule::ForgetKeepsOutput),
        (SinkFault::NoGroup, Rule::GroupMatchesPromise),
        (SinkFault::CountsNothing, Rule::PreparedCounted),
        (SinkFault::PanicsOverHandles, Rule::NoPanic),
        (SinkFault::WrongError, Rule::OldAttemptRefused),
        (SinkFault::CountsEmpty, Rule::EmptyIsFine),
        (SinkFault::ShowsHalves, Rule::Atomic),
        (SinkFault::DropsOld, Rule::OldOutputSurvives),
    ] {
        let found = look_into(fault).expect_err(&format!("{fault:?} goes unnoticed"));
        assert!(found.breaks(rule), "{fault:?} should break {rule:?}: {found}");
    }
}
