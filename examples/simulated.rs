//! How a job tests itself: the very function that describes it, in a simulated world, struck at every crash point.
//!
//! ```text
//! cargo run --example simulated              # every crash point alone
//! cargo run --example simulated -- 7 200     # 200 seeds from 7 on, up to four crashes each
//! ```
//!
//! In a project of your own this stands in a test: `build.simulate().crash(EveryPoint).run(&input)?.assert_exactly_once()`, with
//! `cutwater-simulate` among the dev-dependencies.

#![expect(clippy::print_stdout, reason = "a program shows what it did")]

use std::error::Error;

use cutwater::connectors::log::LogRecord;
use cutwater::prelude::*;
use cutwater_simulate::{Crash, Input, Simulate};

/// Orders, one a line: "customer cents". What comes out is what each customer has spent so far, after each order.
fn build(job: &Job) -> Result<(), BuildError> {
    let (orders, bad) = job.source("orders", job.log().read("orders").until_latest()).try_map(order);
    bad.sink("bad", job.log().write("orders.bad"));
    orders
        .key_value(|order| order)
        .reduce("spent", |so_far, cents| *so_far += cents)
        .map(|(customer, cents)| format!("{customer} {cents}"))
        .sink("totals", job.log().write("totals"));
    Ok(())
}

fn order(record: &LogRecord) -> Result<(String, u64), String> {
    let line = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
    let (customer, cents) = line.split_once(' ').ok_or_else(|| format!("no amount in {line:?}"))?;
    Ok((customer.to_string(), cents.parse().map_err(|_| format!("no number in {line:?}"))?))
}

/// Three partitions; a customer's orders are all in one, so their order is theirs alone.
fn orders() -> Input {
    let line = |partition: usize, i: usize| match i % 11 {
        10 => "not an order".to_string(),
        _ => format!("customer-{}{} {}", partition, i % 4, 100 + i),
    };
    Input::new().partitions("orders", (0..3).map(|p| (0..30).map(|i| line(p, i)).collect::<Vec<_>>()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let (seed, schedules) = (args.next().transpose()?, args.next().transpose()?);
    let crash = schedules.map_or(Crash::EveryPoint, |schedules| Crash::Drawn { schedules });
    let seen = build.simulate().seed(seed.unwrap_or(7)).crash(crash).run(&orders())?;
    println!("{seen}");
    for topic in seen.output.topics.keys() {
        println!("{topic}: {} rows, seen exactly once each time", seen.output.rows(topic).len());
    }
    seen.assert_exactly_once();
    Ok(())
}
