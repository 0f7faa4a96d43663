//! A job is stopped with a savepoint, from within its program, and another one begins from it: in a second directory, with another number
//! of workers, over the same real log. Together they write what one would have written, each record once and in order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cutwater_engine::observe::Control;
use cutwater_engine::snapshot::SavepointState;
use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::CrashAction;
use cutwater_tests::Machine;
use cutwater_tests::golden::{Expected, Input, live_in};

/// Where the savepoint is put.
const FOLDER: &str = "backup/before-the-move";

/// The committed values of each partition that the job writes, in order.
fn committed(log: &Log) -> BTreeMap<(String, u32), Vec<Vec<u8>>> {
    let mut seen = BTreeMap::new();
    for topic in log.topics().into_iter().filter(|topic| !["clicks", "events"].contains(&topic.name.as_str())) {
        for partition in 0..topic.partitions {
            let reader = log.consumer(topic.id, partition, Offset::ZERO, Isolation::ReadCommitted);
            let mut reader = reader.expect("a consumer");
            let values: &mut Vec<Vec<u8>> = seen.entry((topic.name.clone(), partition)).or_default();
            while reader.position() < reader.readable_end() {
                let fetched = reader.poll(1 << 20).expect("readable");
                fetched.for_each(|r| values.push(r.value.unwrap_or_default().to_vec())).expect("whole batches");
            }
        }
    }
    seen
}

#[test]
fn a_job_stopped_with_a_savepoint_goes_on_from_it_in_a_second_directory_over_the_same_log() {
    let loaded = Machine::new(29);
    let input = Input::new(29);
    input.load(&loaded);
    let expected = Expected::of(&input);
    for (number, (workers, later, stop_at)) in [(2, 3, 2), (3, 1, 4), (1, 2, 3)].into_iter().enumerate() {
        let story = format!("{workers} workers, stopped behind checkpoint {stop_at}, then {later}");
        let machine = loaded.fork(number as u64);
        let log = Log::open(&machine.platform(), Path::new("data/log"), LogOptions::default()).expect("it opens");
        let (control, ticket) = (Control::new(), Arc::new(Mutex::new(None)));
        let (order, given) = (control.clone(), ticket.clone());
        let stop = move || *given.lock().expect("alone") = Some(order.stop_with_savepoint(FOLDER, 1));
        machine.call_at("coordinator.published", stop_at, CrashAction::Call(Box::new(stop)));

        // A handle each, as two programs would have.
        let of_first = LogHandle::of(&machine.platform(), log.clone());
        let first = live_in(&machine, "data", workers, &of_first, None, &control)
            .unwrap_or_else(|e| panic!("{story}: the first job: {e}"));
        let state = ticket.lock().expect("alone").take().expect("it was ordered").state();
        assert!(matches!(state, SavepointState::Taken(_)), "{story}: {state:?}");
        assert!(!first.finished, "{story}: it was stopped in the middle: {first}");
        assert!(log.transactions().is_empty(), "{story}: a stop leaves nothing prepared: {:?}", log.transactions());
        let before = committed(&log);
        assert!(before.values().any(|values| !values.is_empty()), "{story}: it has written something");

        // Another program on the same disk, with random numbers of its own: a job id is one.
        let other = machine.share(number as u64 + 1000);
        let of_second = LogHandle::of(&other.platform(), log.clone());
        let second = live_in(&other, "second", later, &of_second, Some(FOLDER), &Control::new())
            .unwrap_or_else(|e| panic!("{story}: the second job: {e}"));
        assert!(second.finished && second.job != first.job, "{story}: {second}");
        let after = committed(&log);
        for (partition, values) in &before {
            assert!(after[partition].starts_with(values), "{story}: {partition:?} changed behind its readers");
        }
        assert!(after != before, "{story}: the second job had something left to write");

        // The same command line again: it has finished, and nothing is written twice.
        let again = live_in(&other, "second", 2, &of_second, Some(FOLDER), &Control::new());
        let again = again.unwrap_or_else(|e| panic!("{story}: again: {e}"));
        assert!(again.already_finished && committed(&log) == after, "{story}: {again}");
        log.close().expect("a clean close");
        drop((of_first, of_second));
        expected.assert_seen(&machine, &story);
    }
}
