use cutwater_engine::graph::Stream;
use cutwater_operators::prelude::*;

fn build(numbers: Stream<f64>) {
    let _ = numbers.key_by(|n| *n);
}

fn main() {}
