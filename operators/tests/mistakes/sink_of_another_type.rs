use std::sync::{Arc, Mutex};

use cutwater_engine::graph::Stream;
use cutwater_operators::prelude::*;
use cutwater_sources_sinks::collection::collect;

fn build(numbers: Stream<u64>, names: Arc<Mutex<Vec<String>>>) {
    numbers.map(|n| n + 1).sink("names", collect(names));
}

fn main() {}
