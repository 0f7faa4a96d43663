//! Our broker beside Apache Kafka and tansu on this machine: one client, the same settings, in turn, round by round.
//!
//! `benches/rivals/wire/run` builds and fetches what this needs, and runs it. The client is the leanest there can be (it makes
//! its batches once and stamps them), so that the server's processor time says what the server takes. Client and server share
//! the machine: rates by the wall are those of both together.

#![forbid(unsafe_code)]

mod contender;
mod load;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use contender::{Programs, Server, Who};
use load::Mode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Our broker beside Apache Kafka and tansu: the same client, the same settings, one run")]
struct Arguments {
    /// The `cutwater` command.
    #[arg(long)]
    cutwater: PathBuf,
    /// A file that holds the class path of Kafka's server.
    #[arg(long)]
    kafka_classpath: Option<PathBuf>,
    /// The `tansu` command.
    #[arg(long)]
    tansu: Option<PathBuf>,
    /// Where the servers keep their data: a directory on the disk to be measured.
    #[arg(long, default_value = ".")]
    data: PathBuf,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Megabytes written and read in each bulk measurement.
    #[arg(long, default_value_t = 1_000)]
    megabytes: u64,
    /// Seconds of each commit measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Gigabytes that are there when a server is killed and started again; 0 leaves that out.
    #[arg(long, default_value_t = 10)]
    restart_gigabytes: u64,
    /// Only measurements whose name has this in it, as the table has them: "1000 B, plain", "read".
    #[arg(long)]
    only: Option<String>,
    /// Only one of the contenders: the first word of its name.
    #[arg(long)]
    who: Option<String>,
}

impl Arguments {
    fn wants(&self, what: &str) -> bool {
        self.only.as_ref().is_none_or(|only| what.contains(only.as_str()))
    }
}

/// Partitions of a bulk topic, each with a connection of its own.
const PARTITIONS: i32 = 2;

/// One figure of one contender in one round.
struct Row {
    what: String,
    who: Who,
    /// In the unit of `what`.
    rate: f64,
    /// The same for each second of the server's processor.
    per_cpu: Option<f64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let programs = Programs {
        cutwater: arguments.cutwater.clone(),
        kafka_classpath: arguments.kafka_classpath.clone(),
        tansu: arguments.tansu.clone(),
    };
    let mut contenders = vec![Who::Cutwater];
    if programs.kafka_classpath.is_some() {
        contenders.extend([Who::Kafka, Who::KafkaFlush]);
    }
    if programs.tansu.is_some() {
        contenders.push(Who::Tansu);
    }
    contenders.retain(|who| arguments.who.as_ref().is_none_or(|name| who.name().starts_with(name.as_str())));
    println!(
        "{} rounds in turn, medians; {PARTITIONS} partitions with a connection each, batches of 64 KiB, 5 in flight, acks=all; {} MB each",
        arguments.rounds, arguments.megabytes
    );
    println!(
        "transactions of {} records; records random, not compressed; readers read committed\n",
        load::RECORDS_IN_TRANSACTION
    );
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for at in 0..contenders.len() {
            // In a different order each round.
            let who = contenders[(at + round) % contenders.len()];
            eprintln!("round {}, {}", round + 1, who.name());
            match measure(who, &programs, &arguments) {
                Ok(measured) => rows.extend(measured),
                Err(e) => println!("{} gave up in round {}: {e:#}", who.name(), round + 1),
            }
        }
    }
    print(&rows, &contenders);
    if arguments.restart_gigabytes > 0 {
        println!();
        for &who in contenders.iter().filter(|who| who.keeps()) {
            restart(who, &programs, &arguments)?;
        }
    }
    Ok(())
}

fn measure(who: Who, programs: &Programs, arguments: &Arguments) -> Result<Vec<Row>> {
    let server = Server::start(who, programs, &arguments.data)?;
    let address = server.address();
    let mut rows = Vec::new();
    let mut row = |what: String, rate, per_cpu| rows.push(Row { what, who, rate, per_cpu });
    let total = arguments.megabytes * 1_000_000;
    // Code is compiled and memory touched before anything counts.
    load::write(address, "warm-up", PARTITIONS, 1_000, total / 4, Mode::Plain)?;
    load::read(address, "warm-up", PARTITIONS, written(total / 4, 1_000))?;
    let begun = server.used()?;
    for size in [100, 1_000] {
        for mode in [Mode::Plain, Mode::Idempotent, Mode::Transactional] {
            let what = format!("write {size} B, {}, MB/s", format!("{mode:?}").to_lowercase());
            let reading = format!("read {size} B, committed, MB/s");
            let reads = mode == Mode::Transactional && arguments.wants(&reading);
            if !arguments.wants(&what) && !reads {
                continue;
            }
            let topic = format!("{mode:?}-{size}");
            let before = server.used()?.cpu;
            let (records, took) = load::write(address, &topic, PARTITIONS, size, total, mode)
                .with_context(|| format!("{mode:?} records of {size} bytes"))?;
            let cpu = (server.used()?.cpu - before).as_secs_f64();
            let megabytes = (records * size as u64) as f64 / 1e6;
            row(what, megabytes / took.as_secs_f64(), Some(megabytes / cpu));
            if reads {
                let before = server.used()?.cpu;
                let took =
                    load::read(address, &topic, PARTITIONS, records).with_context(|| format!("reading {topic}"))?;
                let cpu = (server.used()?.cpu - before).as_secs_f64();
                row(reading, megabytes / took.as_secs_f64(), Some(megabytes / cpu));
            }
        }
    }
    for producers in [1, 64] {
        let what = format!("commits of one record, {producers} producers, 1/s");
        if !arguments.wants(&what) {
            continue;
        }
        let before = server.used()?.cpu;
        let (commits, again, took) = load::commits(address, producers, Duration::from_secs(arguments.seconds))
            .with_context(|| format!("{producers} producers that commit"))?;
        let cpu = (server.used()?.cpu - before).as_secs_f64();
        row(what, commits as f64 / took.as_secs_f64(), Some(commits as f64 / cpu));
        row(format!("  asked again per commit, {producers} producers"), again as f64 / commits.max(1) as f64, None);
    }
    if arguments.wants("one at a time") {
        let times = load::one_at_a_time(address, 100, 2_000)?;
        for (name, at) in [("p50", times.len() / 2), ("p99", times.len() * 99 / 100)] {
            row(format!("one at a time, {name}, ms"), times[at].as_secs_f64() * 1e3, None);
        }
    }
    let used = server.used()?;
    row("memory at the end, MB".into(), used.memory as f64 / 1e6, None);
    row("memory at most, MB".into(), used.most as f64 / 1e6, None);
    row("processor of the server in all, s".into(), (used.cpu - begun.cpu).as_secs_f64(), None);
    Ok(rows)
}

/// Records that `load::write` makes of so many bytes.
fn written(total: u64, size: u64) -> u64 {
    let each = (load::BATCH_BYTES as u64 / size).max(1);
    total / size / each / PARTITIONS as u64 * each * PARTITIONS as u64
}

fn restart(who: Who, programs: &Programs, arguments: &Arguments) -> Result<()> {
    let mut server = Server::start(who, programs, &arguments.data)?;
    load::write(
        server.address(),
        "large",
        PARTITIONS,
        1_000,
        arguments.restart_gigabytes * 1_000_000_000,
        Mode::Idempotent,
    )?;
    let took = server.kill_and_restart()?;
    println!(
        "{}: killed with {} GB, first write acknowledged {:.2} s after its new start",
        who.name(),
        arguments.restart_gigabytes,
        took.as_secs_f64()
    );
    Ok(())
}

/// Medians of the rounds, a line for each measurement, and how ours relates to each of the others.
fn print(rows: &[Row], contenders: &[Who]) {
    let mut whats: Vec<&str> = Vec::new();
    for row in rows {
        if !whats.contains(&row.what.as_str()) {
            whats.push(&row.what);
        }
    }
    for what in whats {
        println!("{what}");
        let of = |who: Who, figure: fn(&Row) -> Option<f64>| {
            median(rows.iter().filter(|row| row.what == what && row.who == who).filter_map(figure))
        };
        let ours = of(Who::Cutwater, |row| row.per_cpu);
        for &who in contenders {
            let Some(rate) = of(who, |row| Some(row.rate)) else { continue };
            let per_cpu = of(who, |row| row.per_cpu);
            let cpu = per_cpu.map_or(String::new(), |rate| format!("{rate:>12.1} per CPU-second of the server"));
            let times = match (ours, per_cpu) {
                (Some(ours), Some(theirs)) if who != Who::Cutwater => format!(", ours {:.2} x", ours / theirs),
                _ => String::new(),
            };
            println!("  {:<28}{rate:>12.2}{cpu}{times}", who.name());
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
