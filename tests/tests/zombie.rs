//! An old attempt that comes back: paused at each step of the protocol, overtaken by a new attempt, then let go. It must be told
//! that it is fenced, each time, and nothing of what it does afterwards may be seen (I-7).

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutwater_engine::error::RunError;
use cutwater_partition_log::{Log, LogOptions};
use cutwater_sources_sinks::log::LogHandle;
use cutwater_testkit::CrashAction;
use cutwater_tests::Machine;
use cutwater_tests::golden::{Expected, Input, live_on};

/// Where the old attempt is paused. Points inside the log aren't among them: there it may hold the log's own locks, and both
/// attempts share the log.
const PAUSES: [&str; 21] = [
    "worker.restored",
    "source.opened",
    "trigger.fired",
    "source.cut",
    "operator.barrier-on-some-inputs",
    "operator.cut",
    "sink.sealed",
    "sink.prepared",
    "snapshot.file-written",
    "snapshot.file-synced",
    "snapshot.dir-synced",
    "coordinator.report-came",
    "coordinator.all-reported",
    "manifest.tmp-written",
    "manifest.durable",
    "coordinator.published",
    "committer.permitted",
    "group.commit-sent",
    "committer.committed",
    "janitor.recorded",
    "retire.manifest-removed",
];

#[test]
fn an_attempt_paused_at_any_step_and_overtaken_is_fenced_and_leaves_no_trace() {
    let input = Input::new(11);
    let expected = Expected::of(&input);
    let loaded = Machine::new(11);
    input.load(&loaded);
    for (number, point) in PAUSES.into_iter().enumerate() {
        let old = loaded.fork(number as u64);
        // The new attempt lives on the same disk with the same open log, in a world of its own without pauses.
        let new = old.share(number as u64 + 1000);
        let log = Log::open(&new.platform(), &new.dir().join("log"), LogOptions::default()).expect("it opens");
        // A handle each, as two processes would have: each knows only its own claim.
        let (of_old, of_new) =
            (LogHandle::of(&old.platform(), log.clone()), LogHandle::of(&new.platform(), log.clone()));

        let (paused, wait_for_pause) = mpsc::channel();
        let (release, wait_for_release) = mpsc::channel::<()>();
        let pause = move || {
            let _ = paused.send(());
            // An error means that the test has ended: then there is nothing to wait for.
            let _ = wait_for_release.recv();
        };
        old.call_at(point, 2, CrashAction::Call(Box::new(pause)));
        let result: Arc<Mutex<Option<Result<_, RunError>>>> = Arc::default();
        std::thread::scope(|scope| {
            let (old, of_old, result) = (&old, &of_old, result.clone());
            let runner = scope.spawn(move || *result.lock().expect("alone") = Some(live_on(old, 2, of_old)));
            wait_for_pause
                .recv_timeout(Duration::from_secs(60))
                .unwrap_or_else(|_| panic!("{point} was never reached twice"));
            let report = live_on(&new, 3, &of_new).unwrap_or_else(|e| panic!("{point}: the new attempt: {e}"));
            assert!(report.finished, "{point}: the new attempt finishes the job");
            release.send(()).expect("the old attempt waits");
            runner.join().expect("no panic");
        });
        let result = result.lock().expect("alone").take().expect("the old attempt has ended");
        assert!(matches!(result, Err(RunError::Fenced)), "{point}: the old attempt ended as {result:?}");
        log.close().expect("a clean close");
        expected.assert_seen(&new, &format!("the old attempt was paused at {point}"));
    }
}
