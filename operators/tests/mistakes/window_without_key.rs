use cutwater_engine::graph::Stream;
use cutwater_engine::time::EventTime;
use cutwater_operators::prelude::*;

fn build(numbers: Stream<i64>) {
    let _ = numbers.timestamps(|n| EventTime(*n), Bounded::seconds(1)).window(Tumbling::seconds(1));
}

fn main() {}
