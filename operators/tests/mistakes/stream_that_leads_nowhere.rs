#![deny(unused_must_use)]

use cutwater_engine::graph::Stream;
use cutwater_operators::prelude::*;

fn build(numbers: Stream<u64>) {
    numbers.map(|n| n + 1);
}

fn main() {}
