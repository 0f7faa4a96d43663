//! Two jobs, each a process of its own, that share topics through a broker: one writes sales, the other counts them per shop.
//!
//! ```text
//! cutwater broker --data data/broker                                                        in one terminal
//! cargo run --example shared_topics -- sell  --broker 127.0.0.1:9092 --dir data/sell        in another
//! cargo run --example shared_topics -- count --broker 127.0.0.1:9092 --dir data/count       in a third
//! ```
//!
//! Kill any of the three whenever you like and start it again with the same command: no sale is lost, and none is counted twice.
//! Without `--broker` each job would have a log of its own, in its `--dir`; the build functions don't know the difference.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use cutwater::connectors::generator::generate;
use cutwater::prelude::*;

#[derive(Parser)]
struct Args {
    /// Which of the two jobs
    which: Which,
    /// Sales to make
    #[arg(long, default_value_t = 100_000)]
    sales: u64,
    /// Sales per second
    #[arg(long, default_value_t = 2_000)]
    rate: u64,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    Sell,
    Count,
}

fn main() -> ExitCode {
    let Args { which, sales, rate, flags } = Args::parse();
    match which {
        Which::Sell => flags.run("sell", move |job| sell(job, sales, rate)),
        Which::Count => flags.run("count", count),
    }
}

/// How many shops there are.
pub(crate) const SHOPS: u64 = 8;

/// Makes sales, of one shop after the other. A line of the topic `sales` is a shop and the number of the sale in it.
pub(crate) fn sell(job: &Job, sales: u64, rate: u64) -> Result<(), BuildError> {
    let made = generate(job, sales, |n| format!("{} {}", n % SHOPS, n / SHOPS)).in_splits(2).per_second(rate);
    job.source("made", made)
        .sink("sales", job.log().write("sales").partitions(2).key_into(|line: &String, key| shop(line, key)));
    Ok(())
}

/// Counts the sales of each shop, for ever. A line of the topic `counts` is a shop and how many sales it has had.
pub(crate) fn count(job: &Job) -> Result<(), BuildError> {
    let log = job.log();
    // Either job may be the first one: both say how many partitions the topic has.
    // As the group "count" it can be seen from outside how far the job has come.
    let sales = job.source("sales", log.read("sales").partitions(2).group("count"));
    let counts = sales.map(|sale| sale.key.unwrap_or_default()).key_by(|shop| shop.clone()).count("counts");
    let rows = counts.map(|(shop, count)| format!("{} {count}", String::from_utf8_lossy(&shop)));
    rows.sink("counts-out", log.write("counts").partitions(2).key_into(|line: &String, key| shop(line, key)));
    Ok(())
}

/// The shop at the front of a line is its key.
fn shop(line: &str, key: &mut Vec<u8>) {
    key.extend_from_slice(line.split(' ').next().unwrap_or_default().as_bytes());
}
