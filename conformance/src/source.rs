//! What is asked of a source.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use cutwater_engine::config::Options;
use cutwater_engine::error::SourceError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::id::WorkerIndex;
use cutwater_engine::source::split::splits_of;
use cutwater_engine::source::{Read, Reader, Replay, Source, Waker};
use cutwater_platform::Platform;

use crate::rule::{Conforms, Findings, Rule, Violation, Violations, works};

/// Looks at a source. Made by [`source()`].
#[derive(Debug)]
pub struct SourceKit<F> {
    make: F,
    options: Options,
    records_max: usize,
    places_max: usize,
    waits_max: u32,
}

/// Will look at the source that `make` makes: once per worker and attempt, as in a job. Nothing outside may change meanwhile.
pub fn source<S: Source>(make: impl Fn(&Job) -> S) -> SourceKit<impl Fn(&Job) -> S> {
    let options = Options::new("conformance", std::env::temp_dir().join("cutwater-conformance"));
    SourceKit { make, options, records_max: usize::MAX, places_max: 100, waits_max: 200 }
}

impl<F> SourceKit<F> {
    /// The job's data directory; below the system's directory for temporary files unless told otherwise. The kit writes nothing.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> SourceKit<F> {
        self.options.dir = dir.into();
        self
    }

    /// The job's world; the real one unless told otherwise.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> SourceKit<F> {
        self.options.platform = platform;
        self
    }

    /// The source has no end, or too many records: only so many of each split are looked at.
    #[must_use]
    pub fn records_max(mut self, records: usize) -> SourceKit<F> {
        self.records_max = records;
        self
    }

    /// At most so many places in each split are opened again, spread over it; 100 unless told otherwise.
    #[must_use]
    pub fn places_max(mut self, places: usize) -> SourceKit<F> {
        self.places_max = places.max(2);
        self
    }

    /// Looks.
    ///
    /// # Errors
    /// [`Violations`]: what is not as it should be.
    pub fn run<S>(self) -> Result<Conforms, Violations>
    where
        F: Fn(&Job) -> S,
        S: Source,
        S::Item: PartialEq + Debug,
    {
        let mut findings = Findings::default();
        let mut wholes = vec![];
        findings.part("reading everything", |f| {
            wholes = self.wholes(f)?;
            Ok(())
        });
        let replay = (self.make)(&self.job()).replay();
        if let Replay::Never(why) = replay {
            for rule in [Rule::PositionResumes, Rule::PositionIsPure, Rule::SplitsMove, Rule::BadPositionRefused] {
                findings.skip(rule, &why);
            }
            findings.part("opening what can't be read again", |f| self.never(f));
            return findings.end();
        }
        for whole in &wholes {
            findings.part(&format!("split {:?}", whole.split), |f| self.places(whole, f));
            findings.part(&format!("split {:?}, damaged positions", whole.split), |f| self.damaged(whole, f));
        }
        findings.part("moving splits between workers", |f| self.moves(&wholes, f));
        findings.end()
    }

    fn job(&self) -> Job {
        Job::new(Environment::new(&self.options))
    }

    /// Reads until the end, the limit of records, or nothing comes any more.
    fn drain<T>(
        &self,
        reader: &mut dyn Reader<Item = T>,
        step: usize,
        limit: usize,
    ) -> Result<Drained<T>, SourceError> {
        let (mut records, mut positions) = (vec![], vec![(0, reader.position())]);
        let (mut idle, mut overfull) = (0, None);
        while records.len() < limit {
            let before = records.len();
            let read = reader.read(&mut records, step)?;
            let got = records.len() - before;
            positions.push((records.len(), reader.position()));
            if got > step.saturating_mul(2).max(step + 16) {
                overfull = Some((step, got));
            }
            if read == Read::Exhausted {
                return Ok(Drained { records, positions, exhausted: true, overfull });
            }
            idle = if got == 0 { idle + 1 } else { 0 };
            if idle > self.waits_max {
                break;
            }
            if let (0, Read::Wait | Read::WaitMs(_)) = (got, read) {
                let ms = if let Read::WaitMs(ms) = read { ms.min(50) } else { 1 };
                self.options.platform.clock.sleep(Duration::from_millis(ms));
            }
        }
        Ok(Drained { records, positions, exhausted: false, overfull })
    }

    fn open<S: Source>(
        &self,
        source: &S,
        split: &str,
        position: Option<&[u8]>,
    ) -> Result<Box<dyn Reader<Item = S::Item>>, Violation> {
        let at = if position.is_some() { "where a reader stood" } else { "at its beginning" };
        works(format!("opening split {split:?} {at}"), source.open(split, position, Waker::noop()))
    }

    /// All records of each split.
    fn wholes<S>(&self, findings: &mut Findings) -> Result<Vec<Whole<S::Item>>, Violation>
    where
        F: Fn(&Job) -> S,
        S: Source,
        S::Item: PartialEq + Debug,
    {
        let source = (self.make)(&self.job());
        let splits = works("listing the splits", source.splits())?;
        let again = works("listing the splits again", (self.make)(&self.job()).splits())?;
        let (mut one, mut two) = (splits.clone(), again);
        one.sort();
        two.sort();
        let unique = one.windows(2).all(|w| w[0] != w[1]);
        findings.expect(Rule::SplitsStable, one == two && unique, || format!("first {one:?}, then {two:?}"));
        let mut wholes = vec![];
        for split in splits {
            let mut reader = self.open(&source, &split, None)?;
            let whole = works("reading one by one", self.drain(reader.as_mut(), 1, self.records_max))?;
            let complete = whole.exhausted || self.records_max < usize::MAX;
            findings.expect(Rule::Ends, complete, || {
                let n = whole.records.len();
                format!(
                    "split {split:?}: after {n} records it gave nothing for {} reads and never said Exhausted",
                    self.waits_max
                )
            });
            if whole.exhausted {
                for _ in 0..2 {
                    let mut more = vec![];
                    let read = works("reading behind the end", reader.read(&mut more, 10))?;
                    let stays = read == Read::Exhausted && more.is_empty();
                    findings.expect(Rule::ExhaustedStays, stays, || {
                        format!("split {split:?}: behind its end it answered {read:?} with {} records", more.len())
                    });
                }
            }
            wholes.push(Whole { split, drained: whole });
        }
        if (self.make)(&self.job()).replay() == Replay::FromPosition {
            for whole in &wholes {
                for step in [2, 7, 1000] {
                    let source = (self.make)(&self.job());
                    let mut reader = self.open(&source, &whole.split, None)?;
                    let again =
                        works("reading again", self.drain(reader.as_mut(), step, whole.drained.records.len().max(1)))?;
                    let n = whole.drained.records.len().min(again.records.len());
                    let alike = again.records[..n] == whole.drained.records[..n] && n == whole.drained.records.len();
                    let bounded = again.overfull.is_none() && whole.drained.overfull.is_none();
                    findings.expect(Rule::ReadsAlike, alike && bounded, || {
                        let first = first_difference(&whole.drained.records, &again.records);
                        format!(
                            "split {:?}, {step} at a time: {first}; batches too large: {:?}",
                            whole.split, again.overfull
                        )
                    });
                }
            }
        }
        Ok(wholes)
    }

    /// Opens a split again at many places.
    fn places<S>(&self, whole: &Whole<S::Item>, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Source,
        S::Item: PartialEq + Debug,
    {
        let all = &whole.drained.records;
        for (k, position) in spread(&whole.drained.positions, self.places_max) {
            let source = (self.make)(&self.job());
            let mut reader = self.open(&source, &whole.split, Some(position))?;
            let (same, twice) = (reader.position(), reader.position());
            let rest =
                works(format!("reading on behind record {k}"), self.drain(reader.as_mut(), 3, all.len() - k + 1))?;
            let follows = prefix_of(&rest.records, &all[*k..], whole.drained.exhausted);
            findings.expect(Rule::PositionResumes, follows, || {
                let first = first_difference(&all[*k..], &rest.records);
                format!("opened where a reader stood after {k} records: {first}")
            });
            findings.expect(Rule::ExhaustedStays, rest.exhausted || !whole.drained.exhausted, || {
                format!("opened where a reader stood after {k} records, it doesn't come to its end")
            });
            let mut again = self.open(&source, &whole.split, Some(&same))?;
            let again = works("reading on from there", self.drain(again.as_mut(), 5, all.len() - k + 1))?;
            let pure = same == twice && prefix_of(&again.records, &all[*k..], whole.drained.exhausted);
            findings.expect(Rule::PositionIsPure, pure, || {
                let first = first_difference(&all[*k..], &again.records);
                format!(
                    "opened after {k} records, asked twice where it stands without reading, and opened there: {first}"
                )
            });
        }
        Ok(())
    }

    /// Positions that are none.
    fn damaged<S>(&self, whole: &Whole<S::Item>, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Source,
    {
        let source = (self.make)(&self.job());
        let middle = &whole.drained.positions[whole.drained.positions.len() / 2].1;
        for bad in [vec![], vec![0xFF; 64]] {
            let refused = source.open(&whole.split, Some(&bad), Waker::noop()).is_err();
            findings.expect(Rule::BadPositionRefused, refused, || format!("it opened at {bad:?}"));
        }
        // What these mean nobody knows; they must not panic, nor ask for endless memory.
        let mut others: Vec<Vec<u8>> = (0..middle.len()).map(|len| middle[..len].to_vec()).collect();
        others.push([&middle[..], b"x"].concat());
        others.extend((0..middle.len()).map(|at| {
            let mut flipped = middle.clone();
            flipped[at] ^= 0x80 >> (at % 8);
            flipped
        }));
        for bad in others {
            if let Ok(mut reader) = source.open(&whole.split, Some(&bad), Waker::noop()) {
                let _ = reader.read(&mut vec![], 3);
                let _ = reader.position();
            }
        }
        Ok(())
    }

    /// Two workers read parts of all splits, three others go on.
    fn moves<S>(&self, wholes: &[Whole<S::Item>], findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Source,
        S::Item: PartialEq + Debug,
    {
        let names: Vec<String> = wholes.iter().map(|w| w.split.clone()).collect();
        let mut positions: Vec<(usize, usize, Vec<u8>)> = vec![];
        for worker in 0..2 {
            let source = (self.make)(&self.job());
            let mut readers = vec![];
            for split in splits_of(&names, WorkerIndex(worker), 2) {
                let index = names.iter().position(|n| *n == split).expect("one of them");
                readers.push((index, self.open(&source, &split, None)?, vec![]));
            }
            // In turns, as the engine does, so that readers of one instance must not share what they shouldn't.
            for _ in 0..3 {
                for (_, reader, read) in &mut readers {
                    works("reading in turns", reader.read(read, 4))?;
                }
            }
            for (index, reader, read) in readers {
                let n = read.len().min(wholes[index].drained.records.len());
                let alike = read[..n] == wholes[index].drained.records[..n];
                findings.expect(Rule::SplitsMove, alike, || {
                    format!("split {:?}, read in turns with others, differs", names[index])
                });
                positions.push((index, read.len(), reader.position()));
            }
        }
        for worker in 0..3 {
            let source = (self.make)(&self.job());
            for split in splits_of(&names, WorkerIndex(worker), 3) {
                let (index, k, position) = positions.iter().find(|(i, ..)| names[*i] == split).expect("each was read");
                let whole = &wholes[*index].drained;
                let from = (*k).min(whole.records.len());
                let mut reader = self.open(&source, &split, Some(position))?;
                let rest = works("reading on", self.drain(reader.as_mut(), 6, whole.records.len() - from + 1))?;
                findings.expect(
                    Rule::SplitsMove,
                    prefix_of(&rest.records, &whole.records[from..], whole.exhausted),
                    || {
                        let first = first_difference(&whole.records[from..], &rest.records);
                        format!("split {split:?}, taken over by worker {worker} of 3 after {k} records: {first}")
                    },
                );
            }
        }
        Ok(())
    }

    /// A source that can't be read again.
    fn never<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Source,
    {
        let source = (self.make)(&self.job());
        for split in works("listing the splits", source.splits())? {
            let refused = source.open(&split, Some(&[]), Waker::noop()).is_err();
            findings.expect(Rule::NeverMeansNever, refused, || format!("split {split:?} was opened at a position"));
        }
        Ok(())
    }
}

/// A split, read from its beginning.
struct Whole<T> {
    split: String,
    drained: Drained<T>,
}

struct Drained<T> {
    records: Vec<T>,
    /// After how many records a reader stood where.
    positions: Vec<(usize, Vec<u8>)>,
    exhausted: bool,
    /// A read that gave far more than was asked for: asked, got.
    overfull: Option<(usize, usize)>,
}

/// At most `max` of them, both ends included.
fn spread<T>(all: &[T], max: usize) -> Vec<&T> {
    match all.len() {
        n if n <= max => all.iter().collect(),
        n => (0..max).map(|i| &all[i * (n - 1) / (max - 1)]).collect(),
    }
}

/// Whether these are the expected ones: all of them, or, of a split without an end, as many as there are of both.
fn prefix_of<T: PartialEq>(found: &[T], expected: &[T], exhausted: bool) -> bool {
    let n = found.len().min(expected.len());
    found[..n] == expected[..n] && (found.len() == expected.len() || !exhausted && found.len() >= expected.len())
}

fn first_difference<T: PartialEq + Debug>(expected: &[T], found: &[T]) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let (e, f) = (expected.get(at), found.get(at));
    format!(
        "{} records expected and {} found; the first difference is record {at}: {e:?} expected, {f:?} found",
        expected.len(),
        found.len()
    )
}
