//! Keyed counts over a million uniform keys: what barriers, frames and snapshots cost against plain timely with the same
//! hash and the same table.
//!
//! `cargo bench -p cutwater-benches --bench keyed_count [-- --records N --rounds N --workers N]`
//!
//! `.. -- --paired N [--records N]` compares exactly-once with at-least-once alone, N pairs of runs in turn: what the difference of the two
//! guarantees is can't be seen in a table whose rows stray by a tenth.
//!
//! A second table says what one checkpoint takes beside its floor: copying as many bytes once, writing them past the system's cache, and
//! syncing them, with nothing else.
//!
//! For a profile, one contender alone: `.. -- --workers 1 --only 4` (they are numbered from 1 in the order of the table).

#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]

use std::io::IoSlice;
use std::time::Duration;

use cutwater_benches::{Figure, UniformKeys, machine, measure, spread, table};
use cutwater_engine::config::{Guarantee, Options, Snapshots};
use cutwater_engine::error::BuildError;
use cutwater_engine::exchange::{CanonicalKey, GroupAssignment, KeyGroups, group_of};
use cutwater_engine::graph::Job;
use cutwater_engine::observe::Control;
use cutwater_engine::state::Table;
use cutwater_engine::worker::run;
use cutwater_operators::prelude::*;
use cutwater_platform::{AlignedBuf, Files, Open, OsFiles};
use cutwater_sources_sinks::codec::Bytes;
use cutwater_sources_sinks::log::JobLog;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::OutputBuilderSession;
use timely::dataflow::operators::generic::operator::{Operator, source};

const KEYS: u64 = 1_000_000;

fn main() {
    let mut records = 40_000_000;
    let mut rounds = 5;
    let (mut worker_counts, mut only, mut pairs) = (vec![1usize, 2], None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next().and_then(|v| v.parse::<u64>().ok())) {
            ("--records", Some(n)) => records = n,
            ("--rounds", Some(n)) => rounds = n,
            ("--workers", Some(n)) => worker_counts = vec![n as usize],
            ("--only", Some(n)) => only = Some(n as usize),
            ("--paired", Some(n)) => pairs = Some(n),
            ("--bench", _) => {}
            (other, _) => panic!("unknown argument {other}"),
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("keyed count, {KEYS} uniform u64 keys, {records} records a run, {rounds} rounds; {}", machine(dir.path()));

    for workers in worker_counts {
        let workload = UniformKeys { keys: KEYS, splits: workers as u64, per_split: records / workers as u64 };
        if let Some(pairs) = pairs {
            paired(workload, workers, pairs);
            continue;
        }
        let contenders: [(&str, &dyn Fn() -> Run); 8] = [
            ("plain timely", &|| plain(workload, workers).into()),
            ("no checkpoints", &|| count_at_end(workload, workers, Guarantee::AtMostOnce)),
            ("at-least-once, 1 s", &|| count_at_end(workload, workers, at_least_once(1000))),
            ("exactly-once, 1 s", &|| count_at_end(workload, workers, every(1000))),
            ("exactly-once, 100 ms", &|| count_at_end(workload, workers, every(100))),
            ("exactly-once, 10 ms", &|| count_at_end(workload, workers, every(10))),
            ("exactly-once, 1 s, running count", &|| running(workload, workers, every(1000))),
            ("no checkpoints, running count", &|| running(workload, workers, Guarantee::AtMostOnce)),
        ];
        if let Some((name, contender)) = only.and_then(|n| contenders.get(n - 1)) {
            for _ in 0..rounds {
                let Run { figure: Figure { wall, cpu }, checkpoints, bytes } = contender();
                let (ns, rate) = (cpu.as_nanos() as f64 / records as f64, records as f64 / wall.as_secs_f64() / 1e6);
                println!(
                    "{name}: {ns:.1} ns/record, {rate:.1} Mrec/s, {checkpoints} checkpoints of {bytes} bytes in all"
                );
            }
            continue;
        }
        // The first round warms up: first touch of memory costs more than the work itself.
        let mut figures = vec![vec![]; contenders.len()];
        for round in 0..=rounds {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                let run = (contender.1)();
                if round > 0 {
                    // Of the same bytes, a moment later.
                    figures.push((run, floor(&run)));
                }
            }
        }
        let runs: Vec<Vec<Run>> =
            figures.iter().map(|f: &Vec<(Run, Figure)>| f.iter().map(|f| f.0).collect()).collect();
        let mut rows = vec![
            ["", "CPU ns/record", "min", "max", "Mrec/s wall", "CPU ratio to plain", "to no checkpoints"]
                .map(String::from)
                .to_vec(),
        ];
        let ns = |r: &Run| r.figure.cpu.as_nanos() as f64 / records as f64;
        for (i, (name, _)) in contenders.iter().enumerate() {
            let cpu = spread(runs[i].iter().map(ns));
            let rate = spread(runs[i].iter().map(|r| records as f64 / r.figure.wall.as_secs_f64() / 1e6));
            // Work per CPU second, as a ratio within each round.
            let against = |other: usize| spread(runs[i].iter().zip(&runs[other]).map(|(a, b)| ns(b) / ns(a))).median;
            rows.push(vec![
                (*name).to_string(),
                format!("{:.1}", cpu.median),
                format!("{:.1}", cpu.min),
                format!("{:.1}", cpu.max),
                format!("{:.1}", rate.median),
                format!("{:.2}x", against(0)),
                format!("{:.2}x", against(1)),
            ]);
        }
        println!("\n{workers} worker(s)\n{}", table(&rows));
        let names: Vec<&str> = contenders.iter().map(|(name, _)| *name).collect();
        println!("{}", table(&of_checkpoints(&names, &figures, 1)));
    }
}

/// What a checkpoint takes, beside its floor; `without` is the contender without checkpoints.
fn of_checkpoints(names: &[&str], figures: &[Vec<(Run, Figure)>], without: usize) -> Vec<Vec<String>> {
    let title =
        ["a checkpoint", "a run has", "MB each", "CPU ms each", "floor, CPU ms", "floor, ratio to no checkpoints"];
    let mut rows = vec![title.map(String::from).to_vec()];
    let cpu = |figure: &Figure| figure.cpu.as_secs_f64() * 1e3;
    for (name, figures_of) in names.iter().zip(figures).filter(|(_, f)| f.iter().all(|f| f.0.checkpoints > 1)) {
        if name.ends_with("running count") {
            continue;
        }
        let each = |of: &dyn Fn(&Run, &Figure, &Run) -> f64| {
            spread(figures_of.iter().zip(&figures[without]).map(|((run, floor), (without, _))| of(run, floor, without)))
                .median
        };
        let count = |run: &Run| run.checkpoints as f64;
        rows.push(vec![
            (*name).to_string(),
            format!("{:.0}", each(&|run, _, _| count(run))),
            format!("{:.1}", each(&|run, _, _| run.bytes as f64 / count(run) / 1e6)),
            format!("{:.1}", each(&|run, _, without| (cpu(&run.figure) - cpu(&without.figure)) / count(run))),
            format!("{:.1}", each(&|run, floor, _| cpu(floor) / count(run))),
            format!("{:.2}x", each(&|_, floor, without| cpu(&without.figure) / (cpu(&without.figure) + cpu(floor)))),
        ]);
    }
    rows
}

/// A run, and the checkpoints that it took.
#[derive(Clone, Copy)]
struct Run {
    figure: Figure,
    checkpoints: u64,
    /// Of all state files.
    bytes: u64,
}

impl From<Figure> for Run {
    fn from(figure: Figure) -> Run {
        Run { figure, checkpoints: 0, bytes: 0 }
    }
}

/// As many checkpoints of as many bytes with nothing but what no checkpoint can do without: one copy of the bytes, one write past the
/// system's cache, one sync.
fn floor(run: &Run) -> Figure {
    const BLOCK: usize = 256 * 1024;
    if run.checkpoints == 0 {
        return Figure::default();
    }
    let blocks = (run.bytes / run.checkpoints) as usize / BLOCK;
    let state = vec![1u8; blocks * BLOCK];
    let mut copies: Vec<AlignedBuf> = (0..blocks).map(|_| AlignedBuf::with_capacity(BLOCK)).collect();
    copies.iter_mut().for_each(|copy| copy.grow_with_zeros(BLOCK));
    let (dir, files) = (tempfile::tempdir().expect("a temporary directory"), OsFiles::new());
    let name = |n: u64| dir.path().join(n.to_string());
    measure(|| {
        for n in 0..run.checkpoints {
            for (copy, part) in copies.iter_mut().zip(state.chunks(BLOCK)) {
                copy.clear();
                copy.extend_from_slice(part);
            }
            let parts: Vec<IoSlice<'_>> = copies.iter().map(|copy| IoSlice::new(copy.as_slice())).collect();
            let file = files.open(&name(n), Open::CreateNew).expect("creatable");
            file.write_past_cache_at(&parts, 0).expect("written");
            file.sync_data().expect("synced");
            if n >= 3 {
                files.remove_file(&name(n - 3)).expect("it was there");
            }
        }
    })
}

/// Exactly-once against at-least-once, run after run in turn; which comes first changes from pair to pair, so that a machine
/// that slows down is unjust to both. Once without output, and once with a sink, whose output is prepared and committed with each
/// checkpoint, or written at once.
fn paired(workload: UniformKeys, workers: usize, pairs: u64) {
    let records = workload.splits * workload.per_split;
    type Contender = fn(UniformKeys, usize, Guarantee) -> Run;
    for (name, contender) in [("nothing is written", count_at_end as Contender), ("to the log", sampled as Contender)] {
        let exactly = || contender(workload, workers, every(1000));
        let at_least = || contender(workload, workers, at_least_once(1000));
        exactly();
        at_least();
        let (mut ratios, mut checkpoints) = (vec![], vec![]);
        for pair in 0..pairs {
            let (exactly, at_least) = if pair % 2 == 0 {
                let first = exactly();
                (first, at_least())
            } else {
                let first = at_least();
                (exactly(), first)
            };
            ratios.push(exactly.figure.cpu.as_secs_f64() / at_least.figure.cpu.as_secs_f64());
            checkpoints.push(exactly.checkpoints as f64);
        }
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
        println!(
            "{workers} worker(s), {name}, {pairs} pairs, {records} records and about {:.0} checkpoints each: exactly-once takes {:.3} of \
             at-least-once's CPU (median; quartiles {:.3} and {:.3}, extremes {:.3} and {:.3})",
            spread(checkpoints).median,
            at(0.5),
            at(0.25),
            at(0.75),
            at(0.0),
            at(1.0)
        );
    }
}

fn every(ms: u64) -> Guarantee {
    Guarantee::ExactlyOnce(remembered(ms))
}

fn at_least_once(ms: u64) -> Guarantee {
    Guarantee::AtLeastOnce(remembered(ms))
}

/// Each checkpoint of the run is remembered, so that they can be counted.
fn remembered(ms: u64) -> Snapshots {
    Snapshots { history: 100_000, ..Snapshots::every(Duration::from_millis(ms)) }
}

fn job(
    workload: UniformKeys,
    workers: usize,
    guarantee: Guarantee,
    build: impl Fn(&Job, UniformKeys) -> Result<(), BuildError> + Send + Sync + 'static,
) -> Run {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::new("keyed-count", dir.path());
    options.workers = workers;
    options.guarantee = guarantee;
    let (mut checkpoints, mut bytes) = (0, 0);
    let figure = measure(|| {
        let report = run(move |job| build(job, workload), &options, &Control::new()).expect("it runs");
        report.assert_balanced();
        (checkpoints, bytes) = (report.committed, report.history.iter().map(|taken| taken.bytes).sum());
    });
    Run { figure, checkpoints, bytes }
}

fn count_at_end(workload: UniformKeys, workers: usize, guarantee: Guarantee) -> Run {
    job(workload, workers, guarantee, |job, workload| {
        job.source("keys", workload).key_value(|key| (key, ())).count_at_end("count").discard();
        Ok(())
    })
}

fn running(workload: UniformKeys, workers: usize, guarantee: Guarantee) -> Run {
    job(workload, workers, guarantee, |job, workload| {
        job.source("keys", workload).key_value(|key| (key, ())).count("count").discard();
        Ok(())
    })
}

/// Running counts, each thousandth key's of which goes to the log.
fn sampled(workload: UniformKeys, workers: usize, guarantee: Guarantee) -> Run {
    job(workload, workers, guarantee, |job, workload| {
        job.source("keys", workload)
            .key_value(|key| (key, ()))
            .count("count")
            .filter(|(key, _)| key % 1000 == 0)
            .map(|(key, count)| format!("{key} {count}").into_bytes())
            .sink("sample", job.log().write("sample").value(Bytes));
        Ok(())
    })
}

/// The same work written on timely alone: the same generator, hash, division by key group, table and ordered counts at the
/// end; no frames, no credits, no barriers, no snapshots.
fn plain(workload: UniformKeys, workers: usize) -> Figure {
    let config = match workers {
        1 => timely::Config::thread(),
        n => timely::Config::process(n),
    };
    measure(|| {
        let guards = timely::execute(config, move |worker| {
            if workers > 1 {
                cutwater_benches::pin(worker.index());
            }
            let index = worker.index() as u64;
            let groups = KeyGroups::default();
            let peers = std::num::NonZeroU32::new(workers as u32).expect("not 0");
            let owners: Vec<u64> =
                GroupAssignment::new(groups, peers).owners().iter().map(|w| u64::from(w.0)).collect();
            worker.dataflow::<u64, _, _>(|scope| {
                source(scope, "keys", |capability, info| {
                    let activator = scope.activator_for(info.address);
                    let mut capability = Some(capability);
                    let mut next = workload.generator(index, 0);
                    let mut left = workload.per_split;
                    move |output: &mut OutputBuilderSession<'_, u64, CapacityContainerBuilder<Vec<u64>>>| {
                        let Some(held) = &capability else { return };
                        for _ in 0..16 {
                            let count = left.min(1024);
                            output.session(held).give_iterator((0..count).map(|_| next()));
                            left -= count;
                        }
                        if left == 0 {
                            capability = None;
                        } else {
                            activator.activate();
                        }
                    }
                })
                .unary_frontier::<CapacityContainerBuilder<Vec<(u64, u64)>>, _, _, _>(
                    Exchange::new(move |key: &u64| owners[usize::from(group_of(key.key_hash(), groups).0)]),
                    "count",
                    |capability, _| {
                        let mut table: Table<u64, u64> = Table::new(CanonicalKey::key_hash, 1);
                        let mut capability = Some(capability);
                        move |(input, frontier), output| {
                            input.for_each(|_, keys| {
                                table.visit(keys, |key| *key, CanonicalKey::key_hash, || 0, |_, count| *count += 1);
                                keys.clear();
                            });
                            if let Some(held) = capability.take_if(|_| frontier.is_empty()) {
                                let mut counts = table.drain();
                                counts.sort_unstable();
                                output.session(&held).give_iterator(counts.into_iter());
                            }
                        }
                    },
                );
            });
        })
        .expect("timely starts");
        for result in guards.join() {
            result.expect("no panic");
        }
    })
}
