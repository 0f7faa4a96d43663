//! Why to believe the searches that find nothing: each planted mistake is found, and where it is found nothing is found without it.

use std::collections::BTreeSet;

use cutwater_model::{Config, Fault, Protocol, catalogue, search};

const STATES_MAX: usize = 1_000_000;

#[test]
fn every_planted_fault_is_found_with_a_trace_that_ends_in_it() {
    assert_eq!(Fault::ALL.len(), 26, "docs/model.md says how many");
    for fault in Fault::ALL {
        let visited = search(&Protocol::new(catalogue::finds(*fault)), STATES_MAX);
        let broken = visited.broken.unwrap_or_else(|| panic!("{fault:?} is not found in {} states", visited.states));
        assert!(!broken.trace.is_empty(), "{fault:?} is found before anything happens");
        assert!(broken.trace.iter().all(|step| !step.is_empty()), "{fault:?}: a step says nothing");
    }
}

#[test]
fn the_searches_that_find_the_faults_find_nothing_without_them() {
    let small: BTreeSet<&str> = catalogue::small().iter().map(|config| config.name).collect();
    let mut seen = BTreeSet::new();
    for fault in Fault::ALL {
        let config = catalogue::finds(*fault);
        // The small ones are searched anyway.
        if small.contains(config.name) || !seen.insert(config.name) {
            continue;
        }
        let visited = search(&Protocol::new(Config { fault: None, ..config.clone() }), STATES_MAX);
        assert_eq!(visited.broken, None, "{}", config.name);
        assert!(visited.exhausted && visited.finals > 0, "{}: {visited:?}", config.name);
    }
    assert!(!seen.is_empty(), "some faults have a search of their own");
}

#[test]
fn most_promises_have_a_fault_that_breaks_them() {
    let mut broken = BTreeSet::new();
    for fault in Fault::ALL {
        broken.extend(search(&Protocol::new(catalogue::finds(*fault)), STATES_MAX).broken.map(|b| b.violation.promise));
    }
    for number in ["I-1", "I-4", "I-5", "I-6", "I-7", "nothing deadlocks", "a finished job", "an End never"] {
        assert!(broken.iter().any(|promise| promise.starts_with(number)), "{number} is not among {broken:?}");
    }
}
