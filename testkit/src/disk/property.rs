//! Random programs on the simulated disk, crashed at every step: what was synced is there, under every policy.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use cutwater_platform::{Files, Open};
use proptest::prelude::*;

use super::tests::{blocks, content, p};
use super::{LossPolicy, SimDisk};

#[derive(Clone, Debug)]
enum Do {
    Write(usize, u16, u16),
    WriteSynced(usize, u8, u8),
    SetLen(usize, u16),
    Sync(usize),
    Create(usize),
    Rename(usize, usize),
    Remove(usize),
    SyncDir,
}

fn program() -> impl Strategy<Value = Vec<Do>> {
    let name = 0..3usize;
    let one = prop_oneof![
        4 => (name.clone(), 0..20_000u16, 1..9_000u16).prop_map(|(n, o, l)| Do::Write(n, o, l)),
        2 => (name.clone(), 0..4u8, 1..3u8).prop_map(|(n, o, l)| Do::WriteSynced(n, o, l)),
        1 => (name.clone(), 0..20_000u16).prop_map(|(n, l)| Do::SetLen(n, l)),
        3 => name.clone().prop_map(Do::Sync),
        3 => name.clone().prop_map(Do::Create),
        1 => (name.clone(), name.clone()).prop_map(|(a, b)| Do::Rename(a, b)),
        1 => name.prop_map(Do::Remove),
        2 => Just(Do::SyncDir),
    ];
    prop::collection::vec(one, 1..30)
}

fn run(disk: &SimDisk, program: &[Do]) -> std::io::Result<()> {
    let path = |n: &usize| PathBuf::from(format!("f{n}"));
    for (round, step) in program.iter().enumerate() {
        let byte = round as u8 + 1;
        let open = |n: &usize| disk.open(&path(n), Open::Write);
        let result = match step {
            Do::Write(n, offset, len) => {
                open(n).and_then(|f| f.write_all_at(&vec![byte; usize::from(*len)], u64::from(*offset)))
            }
            Do::WriteSynced(n, at, count) => open(n)
                .and_then(|f| f.write_synced_at(blocks(byte, usize::from(*count)).as_slice(), u64::from(*at) * 4096)),
            Do::SetLen(n, len) => open(n).and_then(|f| f.set_len(u64::from(*len))),
            Do::Sync(n) => open(n).and_then(|f| f.sync_data()),
            Do::Create(n) => disk.open(&path(n), Open::Create).map(|_| ()),
            Do::Rename(a, b) => disk.rename(&path(a), &path(b)),
            Do::Remove(n) => disk.remove_file(&path(n)),
            Do::SyncDir => disk.sync_dir(p("/")),
        };
        match result {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn everything(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.read_dir(p("/")).expect("readable");
    names.into_iter().map(|e| (e.name.clone(), content(disk, &e.name).expect("readable"))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn after_any_crash_and_policy_everything_that_was_synced_is_there(program in program(), seed in any::<u64>()) {
        // A second program after a full sync: what it doesn't touch must be as it was.
        let disk = SimDisk::new();
        run(&disk, &program).expect("no crash armed");
        for n in 0..3 {
            if let Ok(file) = disk.open(&PathBuf::from(format!("f{n}")), Open::Write) {
                file.sync_data().expect("synced");
            }
        }
        disk.sync_dir(p("/")).expect("synced");
        let synced = everything(&disk);
        for policy in LossPolicy::ALL {
            prop_assert_eq!(&everything(&disk.fork().restart(policy, seed)), &synced, "{:?}", policy);
        }

        let tail: Vec<Do> = program.iter().filter(|d| matches!(d, Do::Write(0, ..) | Do::Create(0) | Do::Sync(0))).cloned().collect();
        let dry = disk.fork();
        run(&dry, &tail).expect("no crash armed");
        for step in 1..=dry.steps() {
            let struck = disk.fork();
            struck.crash_at_step(step);
            run(&struck, &tail).expect_err("struck");
            for policy in LossPolicy::ALL {
                let next = struck.restart(policy, seed ^ step);
                let mut found = everything(&next);
                let mut expected = synced.clone();
                prop_assert!(found.remove("f0").is_some() || !expected.contains_key("f0"));
                expected.remove("f0");
                prop_assert_eq!(&found, &expected, "step {} {:?}", step, policy);
                let whole = everything(&next);
                prop_assert_eq!(everything(&next.restart(LossPolicy::AllLost, 0)), whole, "what was found is durable");
            }
        }
    }

    #[test]
    fn a_synced_write_survives_whatever_was_pending_around_it(program in program(), seed in any::<u64>()) {
        let disk = SimDisk::new();
        run(&disk, &[Do::Create(0), Do::SyncDir]).expect("no crash armed");
        // Only changes of file 0 that leave its name and the marked blocks alone.
        let around: Vec<Do> = program
            .into_iter()
            .filter(|d| matches!(d, Do::Write(0, ..) | Do::WriteSynced(0, ..) | Do::SetLen(0, _)))
            .collect();
        run(&disk, &around).expect("no crash armed");
        let file = disk.open(p("f0"), Open::Write).expect("there");
        file.write_synced_at(blocks(255, 2).as_slice(), 4096).expect("aligned");
        let before: Vec<u8> = content(&disk, "f0").expect("there");
        file.write_all_at(&[7; 4096], 3 * 4096).expect("written");
        for policy in LossPolicy::ALL {
            let found = content(&disk.restart(policy, seed), "f0").expect("the name is durable");
            prop_assert_eq!(&found[4096..3 * 4096], &before[4096..3 * 4096], "{:?}", policy);
        }
    }
}
