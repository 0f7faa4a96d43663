use cutwater_engine::graph::Stream;
use cutwater_operators::prelude::*;

fn build(numbers: Stream<u64>) {
    let _ = numbers.key_by(|n| *n).window(Tumbling::seconds(1));
}

fn main() {}
