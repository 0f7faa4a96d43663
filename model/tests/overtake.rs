//! Barriers that overtake records: every state of every search is visited, and each slip in the wiring is found.

use cutwater_model::overtake::{Overtaking, Slip, searches};
use cutwater_model::search;

const STATES_MAX: usize = 2_000_000;

#[test]
fn overtaken_records_are_neither_lost_nor_repeated_nor_out_of_order_in_any_state() {
    for config in searches() {
        let name = config.name;
        let visited = search(&config, STATES_MAX);
        if let Some(broken) = &visited.broken {
            panic!("{name}: {}: {}\n{}", broken.violation.promise, broken.violation.found, broken.trace.join("\n"));
        }
        assert!(visited.exhausted && visited.finals > 0, "{name}: {visited:?}");
        assert!(visited.states > 200, "{name}: {} states aren't a search", visited.states);
    }
}

#[test]
fn every_slip_is_found_by_some_search() {
    for slip in Slip::ALL {
        let found = searches().into_iter().any(|config| {
            let visited = search(&Overtaking { slip: Some(slip), ..config }, STATES_MAX);
            visited.broken.is_some()
        });
        assert!(found, "{slip:?} is found by none");
    }
}
