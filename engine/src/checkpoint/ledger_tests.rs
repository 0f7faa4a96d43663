use std::collections::HashSet;

use super::*;
use crate::checkpoint::test_parts::{committable, part};
use crate::id::{Attempt, OperatorId, WorkerIndex};

const INTERVAL: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST: CheckpointId = CheckpointId(4);
const ATTEMPT: Attempt = Attempt(2);

fn source() -> InstanceId {
    InstanceId { operator: OperatorId(0), worker: WorkerIndex(0) }
}

fn sink() -> InstanceId {
    InstanceId { operator: OperatorId(1), worker: WorkerIndex(0) }
}

fn ledger(in_flight_max: usize, uncommitted_max: usize) -> Ledger {
    let pace = Pace { interval: INTERVAL, in_flight_max, uncommitted_max, timeout: TIMEOUT, pause: Duration::ZERO };
    Ledger::new(pace, vec![source(), sink()], [source()], FIRST, Duration::ZERO)
}

fn durable(instance: InstanceId, checkpoint: CheckpointId, exhausted: bool) -> SnapshotReport {
    let name = format!("{checkpoint}/{}", instance.operator);
    let mut part = part(instance, &[&name], &[&name]);
    part.exhausted = exhausted || instance == sink();
    SnapshotReport::Durable(part)
}

fn failed(instance: InstanceId) -> SnapshotReport {
    SnapshotReport::Failed { instance, reason: "no space".to_owned() }
}

fn proof(checkpoint: CheckpointId) -> Published {
    Published::durable(checkpoint, ATTEMPT, 99)
}

/// Takes one checkpoint through to its draft.
fn complete(ledger: &mut Ledger, now: Duration) -> ManifestDraft {
    let n = ledger.start(now);
    assert_eq!(ledger.report(n, durable(source(), n, false)), Accepted::Accepted);
    assert_eq!(ledger.report(n, durable(sink(), n, false)), Accepted::Accepted);
    assert_eq!(ledger.frontier(Some(n.next())), Ok(vec![]));
    ledger.next_publication().expect("complete")
}

#[test]
fn a_declined_checkpoint_loses_no_output_the_next_permit_covers_it() {
    let mut ledger = ledger(1, 2);
    let n = ledger.start(INTERVAL);
    ledger.report(n, durable(sink(), n, false));
    ledger.report(n, failed(source()));
    let declined = ledger.frontier(Some(n.next())).unwrap();
    let reason = DeclineReason::Failed { instance: source(), reason: "no space".to_owned() };
    assert_eq!(declined, [Declined { checkpoint: n, reasons: vec![reason] }]);
    assert_eq!(ledger.next_publication(), None);

    let draft = complete(&mut ledger, INTERVAL * 2);
    let expected = ["4/1", "5/0", "5/1"].map(committable);
    assert_eq!(draft.carried, [committable("4/1")]);
    assert_eq!(draft.committables(), expected);
    let permit = ledger.published(proof(draft.checkpoint));
    assert_eq!(permit.committables(), expected);
    assert_eq!((permit.checkpoint(), permit.attempt(), permit.manifest_checksum()), (CheckpointId(5), ATTEMPT, 99));
    let handles: Vec<&[u8]> = permit.handles_of("log").collect();
    assert_eq!(handles, [b"4/1", b"5/0", b"5/1"]);
    assert_eq!(permit.handles_of("files").count(), 0);
}

#[test]
fn what_came_after_a_time_out_is_carried_too() {
    let mut ledger = ledger(1, 2);
    let n = ledger.start(INTERVAL);
    assert_eq!(ledger.next_timeout(), Some(INTERVAL + TIMEOUT));
    assert_eq!(ledger.overdue(INTERVAL + TIMEOUT - Duration::from_nanos(1)), []);
    assert_eq!(ledger.time_out(INTERVAL + TIMEOUT - Duration::from_nanos(1)), []);
    assert_eq!(ledger.time_out(INTERVAL + TIMEOUT), [n]);
    assert_eq!(ledger.time_out(INTERVAL + TIMEOUT), [], "once is enough");
    let late = INTERVAL + TIMEOUT * 3;
    let overdue = |times| vec![Overdue { checkpoint: n, times, missing: vec![source(), sink()] }];
    assert_eq!((ledger.overdue(INTERVAL + TIMEOUT), ledger.overdue(late)), (overdue(1), overdue(3)));
    assert_eq!(ledger.next_overdue(late), Some(late + TIMEOUT), "it is still in flight, and may be stuck");
    assert_eq!(ledger.poll(INTERVAL * 1000), Trigger::Wait, "it is still in flight");
    ledger.report(n, durable(source(), n, false));
    ledger.report(n, durable(sink(), n, false));
    assert_eq!(ledger.frontier(None).unwrap().len(), 1);
    let draft = complete(&mut ledger, INTERVAL * 1000);
    assert_eq!(draft.carried, ["4/0", "4/1"].map(committable));
}

#[test]
fn a_lost_acknowledgement_ends_publishing_for_good() {
    let mut ledger = ledger(2, 2);
    let first = ledger.start(INTERVAL);
    let second = ledger.start(INTERVAL * 2);
    for instance in [source(), sink()] {
        ledger.report(second, durable(instance, second, false));
    }
    ledger.report(first, durable(source(), first, false));
    // An empty frontier, as after a worker that died: it proves nothing.
    assert_eq!(ledger.frontier(None).unwrap_err().missing, [sink()]);
    assert_eq!(ledger.frontier(None), Ok(vec![]));
    assert_eq!(ledger.next_publication(), None, "the second must not be published over the first");
}

#[test]
fn a_report_for_what_is_not_in_flight_is_discarded() {
    let mut ledger = ledger(1, 2);
    assert_eq!(ledger.report(FIRST, durable(sink(), FIRST, false)), Accepted::Discarded);
    let n = complete(&mut ledger, INTERVAL).checkpoint;
    assert_eq!(ledger.report(n, failed(sink())), Accepted::Discarded);
}

#[test]
fn a_checkpoint_waits_for_its_time_unless_every_source_is_exhausted() {
    let mut ledger = ledger(1, 3);
    assert_eq!(ledger.poll(Duration::ZERO), Trigger::WaitUntil(INTERVAL));
    assert_eq!(ledger.poll(INTERVAL), Trigger::Start);
    ledger.ready(sink());
    assert_eq!(ledger.poll(Duration::ZERO), Trigger::WaitUntil(INTERVAL), "a sink has no say");
    ledger.ready(source());
    assert_eq!(ledger.poll(Duration::ZERO), Trigger::Start);

    // The last one fails: another is needed, but not in a busy loop.
    let n = ledger.start(Duration::ZERO);
    ledger.report(n, durable(source(), n, true));
    ledger.report(n, failed(sink()));
    ledger.frontier(Some(n.next())).unwrap();
    assert_eq!(ledger.poll(Duration::ZERO), Trigger::WaitUntil(INTERVAL));
}

#[test]
fn a_checkpoint_with_records_in_flight_is_never_the_last_one() {
    for stopped in [true, false] {
        let mut ledger = ledger(1, 3);
        match stopped {
            true => ledger.request_stop(),
            false => ledger.ready(source()),
        }
        let last = |ledger: &mut Ledger, now: Duration, in_flight: bool| {
            let n = ledger.start(now);
            ledger.report(n, durable(source(), n, !stopped));
            let SnapshotReport::Durable(mut part) = durable(sink(), n, true) else { unreachable!("durable") };
            if in_flight {
                part.chains[0].name = crate::checkpoint::CHANNEL_STATE.to_owned();
                part.exhausted = false;
            }
            ledger.report(n, SnapshotReport::Durable(part));
            ledger.frontier(Some(n.next())).expect("whole");
            let draft = ledger.next_publication().expect("complete");
            ledger.published(proof(n));
            ledger.committed(n);
            draft.is_final
        };
        assert!(!last(&mut ledger, Duration::ZERO, true));
        assert_eq!(ledger.poll(Duration::ZERO), Trigger::WaitUntil(INTERVAL), "another one, in its time");
        assert_eq!(last(&mut ledger, INTERVAL, false), !stopped);
        assert_eq!(ledger.poll(INTERVAL), Trigger::Close);
    }
}

#[test]
fn files_of_a_declined_checkpoint_stay_alive_as_long_as_their_instance_builds_on_them() {
    let mut ledger = ledger(1, 3);
    let n = ledger.start(INTERVAL);
    ledger.report(n, SnapshotReport::Durable(part(sink(), &["base", "delta4"], &[])));
    ledger.report(n, failed(source()));
    ledger.frontier(Some(n.next())).unwrap();
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(ledger.live_files(), names(&["base", "delta4"]));
    assert_eq!(ledger.next_publication(), None);
    assert_eq!(ledger.live_files(), names(&["base", "delta4"]), "the next delta stands on them");
    assert_eq!(ledger.take_released(), names(&["base", "delta4"]), "but when nobody does, they may go");

    let n = ledger.start(INTERVAL * 2);
    ledger.report(n, SnapshotReport::Durable(part(sink(), &["base5"], &[])));
    assert_eq!(ledger.live_files(), names(&["base5"]));
    assert_eq!(ledger.take_released(), names(&[]));
}

#[test]
#[should_panic(expected = "commits run in the order of checkpoints")]
fn a_commit_out_of_order_is_our_own_mistake() {
    let mut ledger = ledger(1, 2);
    for turn in 1..=2 {
        let n = complete(&mut ledger, INTERVAL * turn).checkpoint;
        ledger.published(proof(n));
    }
    ledger.committed(FIRST.next());
}

#[test]
#[should_panic(expected = "is said to be published")]
fn a_permit_for_what_was_not_being_published_is_our_own_mistake() {
    let mut ledger = ledger(1, 2);
    complete(&mut ledger, INTERVAL);
    ledger.published(proof(FIRST.next()));
}

// ---- every small story ----

/// A ledger with the world around it, which remembers what was prepared, listed and committed.
#[derive(Clone, Debug)]
struct World {
    ledger: Ledger,
    now: Duration,
    /// Per instance the next checkpoint it will report about.
    reports_next: BTreeMap<InstanceId, CheckpointId>,
    source_ready: bool,
    /// Checkpoints started after the source was exhausted: its part must say so.
    exhausted_from: Option<CheckpointId>,
    stopped: bool,
    draft: Option<ManifestDraft>,
    prepared: Vec<(CheckpointId, Committable)>,
    /// In the order of publication.
    listed: Vec<(CheckpointId, Committable)>,
    published: Vec<(CheckpointId, bool)>,
    committed: Vec<CheckpointId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Start,
    Tick,
    Durable(u32),
    Failed(u32),
    TimeOut,
    Pass,
    Draft,
    Published,
    NotPublished,
    Committed,
    Ready,
    Stop,
}

const EVENTS: [Event; 14] = [
    Event::Start,
    Event::Durable(0),
    Event::Durable(1),
    Event::Pass,
    Event::Draft,
    Event::Published,
    Event::Committed,
    Event::Tick,
    Event::Ready,
    Event::Failed(0),
    Event::Failed(1),
    Event::TimeOut,
    Event::NotPublished,
    Event::Stop,
];

impl World {
    fn new(in_flight_max: usize, uncommitted_max: usize) -> World {
        World {
            ledger: ledger(in_flight_max, uncommitted_max),
            now: Duration::ZERO,
            reports_next: [(source(), FIRST), (sink(), FIRST)].into(),
            source_ready: false,
            exhausted_from: None,
            stopped: false,
            draft: None,
            prepared: vec![],
            listed: vec![],
            published: vec![],
            committed: vec![],
        }
    }

    /// Does it, if it can happen now.
    fn apply(&mut self, event: Event) -> bool {
        let instance = |operator| if operator == 0 { source() } else { sink() };
        match event {
            Event::Start => {
                if self.ledger.poll(self.now) != Trigger::Start {
                    return false;
                }
                let n = self.ledger.start(self.now);
                if self.source_ready {
                    self.exhausted_from.get_or_insert(n);
                }
            }
            Event::Tick => match self.ledger.poll(self.now) {
                Trigger::WaitUntil(due) => self.now = due,
                _ => return false,
            },
            Event::Durable(operator) | Event::Failed(operator) => {
                let who = instance(operator);
                let n = self.reports_next[&who];
                if n >= self.ledger.next() {
                    return false;
                }
                self.reports_next.insert(who, n.next());
                let exhausted = self.exhausted_from.is_some_and(|from| n >= from);
                let report = match event {
                    Event::Failed(_) => failed(who),
                    _ => {
                        self.prepared.push((n, committable(&format!("{n}/{}", who.operator))));
                        durable(who, n, exhausted)
                    }
                };
                assert_eq!(self.ledger.report(n, report), Accepted::Accepted);
            }
            Event::TimeOut => return !self.ledger.time_out(self.now + TIMEOUT * 2).is_empty(),
            Event::Pass => {
                let through = self.reports_next.values().min().copied().expect("two instances");
                let before = self.ledger.in_flight.len();
                self.ledger.frontier(Some(through)).expect("all have reported");
                return self.ledger.in_flight.len() < before;
            }
            Event::Draft => {
                let before = self.ledger.settled.len();
                let draft = self.ledger.next_publication();
                if draft.is_some() {
                    assert!(self.draft.is_none(), "two manifests at once");
                    self.draft = draft;
                }
                return self.ledger.settled.len() < before;
            }
            Event::Published => {
                let Some(draft) = self.draft.take() else { return false };
                let permit = self.ledger.published(proof(draft.checkpoint));
                assert_eq!(permit.committables(), draft.committables());
                self.listed.extend(permit.committables().iter().map(|c| (draft.checkpoint, c.clone())));
                self.published.push((draft.checkpoint, draft.is_final));
                self.assert_nothing_lost(draft.checkpoint);
            }
            Event::NotPublished => {
                let Some(draft) = self.draft.take() else { return false };
                self.ledger.not_published(draft.checkpoint);
            }
            Event::Committed => {
                let Some((next, _)) = self.published.get(self.committed.len()).copied() else { return false };
                self.ledger.committed(next);
                self.committed.push(next);
            }
            Event::Ready => {
                if std::mem::replace(&mut self.source_ready, true) {
                    return false;
                }
                self.ledger.ready(source());
            }
            Event::Stop => {
                if std::mem::replace(&mut self.stopped, true) {
                    return false;
                }
                self.ledger.request_stop();
            }
        }
        true
    }

    /// Manifest m lists all prepared since the last manifest: so after it the manifests together list everything
    /// prepared for checkpoints up to m, each once, and in the order of checkpoints.
    fn assert_nothing_lost(&self, m: CheckpointId) {
        let mut expected: Vec<_> = self.prepared.iter().filter(|(n, _)| *n <= m).map(|(n, c)| (*n, c)).collect();
        expected.sort();
        let listed: Vec<_> = self.listed.iter().map(|(_, c)| c).collect();
        let expected: Vec<_> = expected.into_iter().map(|(_, c)| c).collect();
        assert_eq!(listed, expected, "after manifest {m}: {self:?}");
        assert!(self.published.is_sorted());
    }

    fn assert_well(&self) {
        let ledger = &self.ledger;
        assert!(
            ledger.in_flight.len() <= ledger.pace.in_flight_max && ledger.open_count() <= ledger.pace.uncommitted_max
        );
        let live = ledger.live_files();
        let last_published = self.published.last().map(|(n, _)| *n);
        let unpublished = self.prepared.iter().filter(|(n, _)| {
            let settled_away = *n < self.ledger.in_flight.front().map_or(ledger.next(), |f| f.pending.checkpoint());
            last_published.is_none_or(|last| *n > last) && !settled_away
        });
        for (_, handle) in unpublished {
            let file = String::from_utf8(handle.handle.clone()).expect("text");
            assert!(live.contains(&file), "{file} of a pending part may be deleted: {self:?}");
        }
        if let Some(draft) = &self.draft {
            assert!(draft.snapshots.iter().flat_map(files_of).all(|file| live.contains(&file.name)));
        }
        if ledger.poll(self.now) == Trigger::Close {
            assert_eq!(self.committed.len(), self.published.len(), "closed with something uncommitted");
            let last = self.published.last().expect("closed without a manifest");
            assert!(last.1 || self.stopped, "closed although {last:?} is neither final nor asked for");
            let prepared: BTreeSet<_> = self.prepared.iter().map(|(_, c)| c).collect();
            let listed: BTreeSet<_> = self.listed.iter().map(|(_, c)| c).collect();
            assert_eq!(prepared, listed, "closed with output in no manifest");
        }
    }

    /// When nothing goes wrong any more and the source is exhausted, the job ends.
    fn assert_ends(mut self) {
        self.apply(Event::Ready);
        for _ in 0..60 {
            if self.ledger.poll(self.now) == Trigger::Close {
                return;
            }
            // The first eight are what happens when all goes well.
            assert!(EVENTS[..8].iter().any(|event| self.apply(*event)), "nothing can happen: {self:?}");
        }
        panic!("no end in sight: {self:?}");
    }
}

/// Visits every world that can come about with up to `checkpoints` checkpoints.
fn all_stories(in_flight_max: usize, uncommitted_max: usize, checkpoints: u64) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![World::new(in_flight_max, uncommitted_max)];
    while let Some(world) = open.pop() {
        for event in EVENTS {
            if event == Event::Start && world.ledger.next().0 >= FIRST.0 + checkpoints {
                continue;
            }
            let mut after = world.clone();
            if !after.apply(event) {
                continue;
            }
            if seen.insert(format!("{after:?}")) {
                after.assert_well();
                after.clone().assert_ends();
                open.push(after);
            }
        }
    }
    seen.len()
}

#[test]
fn whatever_fails_every_output_is_in_exactly_one_manifest_and_the_job_ends() {
    let one_at_a_time = all_stories(1, 2, 2);
    let two_at_a_time = all_stories(2, 2, 2);
    assert!(one_at_a_time > 1_000 && two_at_a_time > 1_000, "{one_at_a_time} and {two_at_a_time} worlds");
}
