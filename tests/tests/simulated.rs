//! The example `simulated` as a program: a job that tests itself.

mod example;

use std::process::Command;

use example::{Ran, program};

#[test]
fn a_job_tests_itself_at_every_crash_point_and_under_drawn_seeds() {
    let run =
        |args: &[&str]| -> Ran { Command::new(program("simulated")).args(args).output().expect("it starts").into() };
    for args in [&[][..], &["7", "20"]] {
        let ran = run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
        assert!(ran.out.contains("0 findings"), "{}", ran.out);
        assert!(ran.out.contains("totals: 84 rows") && ran.out.contains("orders.bad: 6 rows"), "{}", ran.out);
    }
}
