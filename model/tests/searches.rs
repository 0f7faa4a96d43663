//! The protocol as it is: every state of every small search is visited, and no promise is broken in any.

use cutwater_model::{Config, Protocol, Visited, catalogue, search};

/// Far above what any small search needs.
const STATES_MAX: usize = 2_000_000;

fn assert_nothing_is_found(config: Config) -> Visited {
    let name = config.name;
    let visited = search(&Protocol::new(config), STATES_MAX);
    if let Some(broken) = &visited.broken {
        panic!("{name}: {}: {}\n{}", broken.violation.promise, broken.violation.found, broken.trace.join("\n"));
    }
    assert!(visited.exhausted, "{name}: only {STATES_MAX} states were visited");
    assert!(visited.finals > 0, "{name}: no run comes to an end");
    assert!(visited.states > 1_000, "{name}: {} states aren't a search", visited.states);
    visited
}

/// Every `of`-th search: tests run beside each other.
fn part(number: usize, of: usize) {
    let all = catalogue::small();
    assert!(all.len() >= 15);
    all.into_iter().skip(number).step_by(of).for_each(|config| _ = assert_nothing_is_found(config));
}

#[test]
fn no_promise_is_broken_in_any_state_of_the_first_half_of_the_small_searches() {
    part(0, 2);
}

#[test]
fn no_promise_is_broken_in_any_state_of_the_second_half_of_the_small_searches() {
    part(1, 2);
}

#[test]
fn leaving_out_orders_that_make_no_difference_makes_no_difference() {
    for name in ["a crash", "a zombie and a crash", "a failed write", "publishing beside commits"] {
        let config = catalogue::small().into_iter().find(|config| config.name == name).expect("a small search");
        let some = assert_nothing_is_found(config.clone());
        let every = assert_nothing_is_found(Config { reduced: false, ..config });
        assert!(every.states > some.states, "{name}: {} states are no reduction of {}", some.states, every.states);
        assert_eq!(every.finals, some.finals, "{name}: every end is still reached");
    }
}

#[test]
fn barriers_that_wait_for_credit_delay_checkpoints_and_deadlock_nothing() {
    let diamond = catalogue::small().into_iter().find(|config| config.name == "diamond").expect("a small search");
    assert_nothing_is_found(Config { barriers_wait: true, ..diamond });
}
