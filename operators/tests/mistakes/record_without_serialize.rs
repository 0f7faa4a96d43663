use cutwater_engine::graph::Stream;
use cutwater_operators::prelude::*;

struct Flight {
    origin: String,
}

fn build(flights: Stream<Flight>) {
    let _ = flights.key_by(|flight| flight.origin.clone());
}

fn main() {}
