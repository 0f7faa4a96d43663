//! Slices of the long runs, small enough for every commit, and planted faults that the verdict must find.

use std::process::Command;

/// What the program says, and whether it found nothing wrong.
fn chaos(arguments: &str) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater-chaos"));
    let output = command.args(arguments.split(' ')).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // A run with something wrong keeps its log, which nobody will look at here.
    if let Some(kept) = said.lines().find_map(|line| line.strip_prefix("the log is kept: ")) {
        let _ = std::fs::remove_dir_all(kept);
    }
    (said, output.status.success())
}

#[test]
fn a_round_of_chaos_finds_nothing_wrong() {
    let (said, clean) = chaos("run --operations 4000 --rounds 1 --round-seconds 12 --seed 7");
    assert!(clean && said.contains("anomalies found: 0"), "{said}");
}

#[test]
fn what_a_wrong_broker_would_show_is_found() {
    // Together in a round are those that don't meet: of different topics, or of different clients.
    let planted = [
        &[
            ("loses-a-batch", "uncommitted readers find None"),
            ("forgets-a-last-value", "the last value of key 7"),
            ("changes-a-record", "was written there"),
            ("takes-too-much", "a gap"),
            ("shows-the-deleted-topic", "acknowledged before that topic"),
        ][..],
        &[
            ("keeps-a-batch-twice", "Duplicated"),
            ("forgets-a-tombstone", "the last tombstone"),
            ("goes-on-with-offsets", "has nothing from 0 to 3"),
        ],
        &[("shows-aborted", "AbortedRead")],
        &[("changes-places", "InconsistentOffset")],
        &[("takes-the-stable-offset-back", "went back"), ("commits-what-was-aborted", "aborted by the administrator")],
    ];
    for together in planted {
        let faults: Vec<String> = together.iter().map(|(fault, _)| format!(" --plant {fault}")).collect();
        let (said, clean) =
            chaos(&format!("run --calm --operations 3000 --rounds 1 --round-seconds 15{}", faults.concat()));
        for (fault, found) in together {
            assert!(!clean && said.contains(found), "{fault}: {said}");
        }
    }
    let (said, clean) = chaos("run --calm --operations 3000 --rounds 1 --round-seconds 15");
    assert!(clean, "nothing planted, and something found: {said}");
}

#[test]
fn twenty_thousand_malformed_frames_leave_the_broker_up_and_a_good_client_undisturbed() {
    let (said, clean) = chaos("malformed --frames 20000 --seed 3");
    assert!(clean && said.contains("nothing is wrong"), "{said}");
}
