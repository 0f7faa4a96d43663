use std::collections::{HashSet, VecDeque};

use super::*;

fn name(checkpoint: u64, attempt: u64) -> ManifestName {
    ManifestName { checkpoint: CheckpointId(checkpoint), attempt: Attempt(attempt) }
}

fn good(is_final: bool) -> ManifestContent {
    ManifestContent::Good { is_final }
}

/// Facts as attempt `own` finds them, all attempts up to it claimed.
fn facts(own: u64) -> Facts {
    Facts {
        own: Attempt(own),
        claimed: (1..=own).map(Attempt).collect(),
        bases: BTreeMap::new(),
        manifests: BTreeMap::new(),
        committed: BTreeSet::new(),
        highest_named: CheckpointId(0),
    }
}

fn base(from: Option<ManifestName>) -> BaseFact {
    BaseFact { from, forked: false }
}

/// Attempt 1 from nothing, with manifests 1 to `newest`, all but the last committed.
fn one_life(newest: u64) -> Facts {
    let mut facts = facts(2);
    facts.bases.insert(Attempt(1), base(None));
    for n in 1..=newest {
        facts.manifests.insert(name(n, 1), good(false));
        if n < newest {
            facts.committed.insert(name(n, 1));
        }
    }
    facts
}

fn resumed(resolution: Resolution) -> Resume {
    match resolution {
        Resolution::Resume(resume) => resume,
        other => panic!("expected to resume, got {other:?}"),
    }
}

fn refused(resolution: Resolution) -> Refusal {
    match resolution {
        Resolution::Refuse(refusal) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn an_empty_store_is_a_fresh_start() {
    assert_eq!(resolve(&facts(1), Want::Newest), Resolution::Fresh { next: CheckpointId(1), orphaned: vec![] });
}

#[test]
fn the_newest_manifest_is_the_base_and_what_is_not_recorded_as_committed_is_committed_again_in_order() {
    let mut facts = one_life(5);
    facts.committed.remove(&name(4, 1));
    let resume = resumed(resolve(&facts, Want::Newest));
    assert_eq!(resume.manifest, name(5, 1));
    assert_eq!(resume.recommit, [name(4, 1), name(5, 1)]);
    assert_eq!(resume.orphaned, []);
    assert_eq!((resume.forks, resume.is_final, resume.next), (false, false, CheckpointId(6)));
}

#[test]
fn a_manifest_that_a_dead_attempt_publishes_late_is_orphaned() {
    let mut facts = one_life(3);
    facts.own = Attempt(3);
    facts.claimed.insert(Attempt(3));
    facts.bases.insert(Attempt(2), base(Some(name(3, 1))));
    facts.manifests.insert(name(4, 1), good(false));
    let resume = resumed(resolve(&facts, Want::Newest));
    assert_eq!(resume.manifest, name(3, 1));
    assert_eq!(resume.orphaned, [name(4, 1)]);
    assert_eq!(resume.next, CheckpointId(5), "the orphan's number is never used again");

    // Attempt 2 published under the same number: that one counts.
    facts.manifests.insert(name(4, 2), good(false));
    let resume = resumed(resolve(&facts, Want::Newest));
    assert_eq!((resume.manifest, resume.orphaned), (name(4, 2), vec![name(4, 1)]));
}

#[test]
fn numbers_never_return_whatever_name_they_were_seen_in() {
    let mut facts = one_life(3);
    facts.highest_named = CheckpointId(9);
    assert_eq!(resumed(resolve(&facts, Want::Newest)).next, CheckpointId(10));
    // The manifest is long gone, the record of its commit isn't.
    facts.committed.insert(name(3, 1));
    facts.bases.insert(Attempt(2), base(Some(name(3, 1))));
    facts.own = Attempt(3);
    facts.claimed.insert(Attempt(3));
    facts.highest_named = CheckpointId(0);
    assert_eq!(next_checkpoint(&facts), CheckpointId(4));
}

#[test]
fn a_job_whose_final_manifest_is_committed_is_finished_and_one_whose_is_not_commits_first() {
    let mut facts = one_life(3);
    facts.manifests.insert(name(3, 1), good(true));
    let resume = resumed(resolve(&facts, Want::Newest));
    assert!(resume.is_final);
    assert_eq!(resume.recommit, [name(3, 1)]);
    facts.committed.insert(name(3, 1));
    assert_eq!(resolve(&facts, Want::Newest), Resolution::Finished { manifest: name(3, 1) });
}

#[test]
fn a_newer_claim_or_somebody_elses_base_under_our_number_fences() {
    let mut newer = one_life(3);
    newer.claimed.insert(Attempt(7));
    assert_eq!(resolve(&newer, Want::Newest), Resolution::Fenced { by: Attempt(7) });
    let mut own = one_life(3);
    own.bases.insert(Attempt(2), base(None));
    assert_eq!(resolve(&own, Want::Newest), Resolution::Fenced { by: Attempt(2) });
}

#[test]
fn going_back_behind_committed_output_is_refused_and_lists_it_unless_a_fork_is_meant() {
    let facts = one_life(4);
    let want = |fork| Want::Exactly { checkpoint: CheckpointId(2), fork };
    let refusal = refused(resolve(&facts, want(false)));
    let expected = Refusal::Forks { asked: CheckpointId(2), committed: vec![name(3, 1)], undecided: vec![name(4, 1)] };
    assert_eq!(refusal, expected);
    let resume = resumed(resolve(&facts, want(true)));
    assert_eq!((resume.manifest, resume.forks), (name(2, 1), true));
    assert_eq!(resume.orphaned, [name(3, 1), name(4, 1)]);
    assert_eq!(resume.recommit, [], "what lies beyond is for the fork to abort");

    // The next life finds the recorded fork and goes on from there, without asking again.
    let mut after = facts;
    after.bases.insert(Attempt(2), BaseFact { from: Some(name(2, 1)), forked: true });
    (after.own, _) = (Attempt(3), after.claimed.insert(Attempt(3)));
    let resume = resumed(resolve(&after, Want::Newest));
    assert_eq!((resume.manifest, resume.forks), (name(2, 1), false));
}

#[test]
fn asking_for_the_newest_by_its_number_is_no_fork_and_asking_for_none_lists_what_there_is() {
    let facts = one_life(3);
    let exactly = |n| Want::Exactly { checkpoint: CheckpointId(n), fork: false };
    assert!(!resumed(resolve(&facts, exactly(3))).forks);
    let there = [1, 2, 3].map(CheckpointId).to_vec();
    assert_eq!(refused(resolve(&facts, exactly(9))), Refusal::NoSuchCheckpoint { asked: CheckpointId(9), there });
}

#[test]
fn a_damaged_manifest_is_never_stepped_over_when_its_output_may_be_undecided() {
    let damaged = || ManifestContent::Damaged { reason: "checksum".to_owned() };
    let mut newest = one_life(3);
    newest.manifests.insert(name(3, 1), damaged());
    assert!(
        matches!(refused(resolve(&newest, Want::Newest)), Refusal::Damaged { manifest, .. } if manifest == name(3, 1))
    );
    let mut older = one_life(3);
    older.manifests.insert(name(1, 1), damaged());
    assert_eq!(resumed(resolve(&older, Want::Newest)).manifest, name(3, 1), "an old committed one isn't needed");
    older.committed.remove(&name(1, 1));
    assert!(
        matches!(refused(resolve(&older, Want::Newest)), Refusal::Damaged { manifest, .. } if manifest == name(1, 1))
    );
}

#[test]
fn another_plan_is_refused_with_what_differs() {
    let mut facts = one_life(3);
    facts.manifests.insert(name(3, 1), ManifestContent::Foreign { reason: "512 key groups, expected 256".to_owned() });
    assert_eq!(
        refused(resolve(&facts, Want::Newest)).to_string(),
        "this program can't go on from manifest 000000000003-a000001: 512 key groups, expected 256"
    );
}

#[test]
fn deleted_manifests_are_noticed_instead_of_starting_from_nothing() {
    let mut facts = one_life(3);
    facts.bases.insert(Attempt(2), base(Some(name(3, 1))));
    (facts.own, _) = (Attempt(3), facts.claimed.insert(Attempt(3)));
    facts.manifests.clear();
    assert_eq!(refused(resolve(&facts, Want::Newest)), Refusal::Lost { expected: CheckpointId(3), newest: None });

    let mut facts = one_life(3);
    facts.manifests.remove(&name(3, 1));
    facts.committed.insert(name(3, 1));
    let expected = Refusal::Lost { expected: CheckpointId(3), newest: Some(name(2, 1)) };
    assert_eq!(refused(resolve(&facts, Want::Newest)), expected);
}

// ---- every small store ----

/// Where the timeline of an attempt runs, said again, recursively: a manifest counts for attempt `of` if it is its own
/// and above its base, or if it counts for the attempt it started from and isn't above that base.
fn counts_for(facts: &Facts, of: Attempt, manifest: ManifestName) -> bool {
    match facts.bases.get(&of).map(|base| base.from) {
        None => false,
        Some(None) => manifest.attempt == of,
        Some(Some(from)) if manifest.checkpoint > from.checkpoint => manifest.attempt == of,
        Some(Some(from)) => from.attempt < of && counts_for(facts, from.attempt, manifest),
    }
}

fn counts(facts: &Facts, manifest: ManifestName) -> bool {
    facts.bases.keys().next_back().is_some_and(|tip| counts_for(facts, *tip, manifest))
}

/// Checks an answer against what it claims, in words of its own.
fn assert_sound(facts: &Facts, want: Want, answer: &Resolution) {
    let counting: Vec<ManifestName> = facts.manifests.keys().copied().filter(|m| counts(facts, *m)).collect();
    let numbers =
        facts.manifests.keys().chain(&facts.committed).chain(facts.bases.values().filter_map(|b| b.from.as_ref()));
    let highest = numbers.map(|m| m.checkpoint).max().unwrap_or_default().max(facts.highest_named);
    let story = || format!("{facts:?}\n{want:?}\n{answer:?}");
    match answer {
        Resolution::Fresh { next, orphaned } => {
            assert!(orphaned.iter().eq(facts.manifests.keys()), "{}", story());
            assert!(counting.is_empty() && want == Want::Newest, "{}", story());
            assert_eq!(*next, highest.next(), "{}", story());
            for manifest in &facts.committed {
                let forked = facts.bases.iter().any(|(a, b)| *a > manifest.attempt && b.forked);
                assert!(forked, "committed output would be written again: {}", story());
            }
        }
        Resolution::Resume(resume) => {
            assert!(counting.contains(&resume.manifest), "resumes from an orphan: {}", story());
            let above: Vec<_> = counting.iter().filter(|m| **m > resume.manifest).collect();
            match want {
                Want::Newest => assert!(above.is_empty() && !resume.forks, "{}", story()),
                Want::Exactly { checkpoint, fork } => {
                    assert_eq!(resume.manifest.checkpoint, checkpoint);
                    assert!(above.is_empty() || fork, "a fork that nobody asked for: {}", story());
                    assert_eq!(resume.forks, !above.is_empty(), "{}", story());
                }
            }
            let expected: Vec<_> =
                counting.iter().copied().filter(|m| *m <= resume.manifest && !facts.committed.contains(m)).collect();
            assert_eq!(resume.recommit, expected, "{}", story());
            let off = facts.manifests.keys().filter(|m| !counting.contains(m) || **m > resume.manifest);
            assert_eq!(resume.orphaned, off.copied().collect::<Vec<_>>(), "{}", story());
            assert_eq!(resume.next, highest.next(), "{}", story());
            assert!(resume.recommit.iter().all(|m| !matches!(facts.manifests[m], ManifestContent::Damaged { .. })));
            assert!(
                matches!(&facts.manifests[&resume.manifest], ManifestContent::Good { is_final } if *is_final == resume.is_final)
            );
        }
        Resolution::Finished { manifest } => {
            assert_eq!(counting.last(), Some(manifest), "{}", story());
            assert!(facts.committed.contains(manifest) && facts.manifests[manifest] == good(true), "{}", story());
        }
        Resolution::Fenced { .. } => panic!("nobody has taken over: {}", story()),
        Resolution::Refuse(refusal) => assert_refusal_is_true(facts, &counting, refusal, &story),
    }
}

fn assert_refusal_is_true(facts: &Facts, counting: &[ManifestName], refusal: &Refusal, story: &dyn Fn() -> String) {
    let truth = match refusal {
        Refusal::NotClaimed { .. } | Refusal::Unclaimed { .. } => false,
        Refusal::Impossible { manifest, .. } => facts
            .bases
            .get(&manifest.attempt)
            .is_none_or(|base| base.from.is_some_and(|from| from.checkpoint >= manifest.checkpoint)),
        Refusal::BrokenChain { attempt, from } => {
            facts.bases[attempt].from == Some(*from)
                && facts.bases.get(&from.attempt).is_none_or(|older| older.from >= Some(*from))
        }
        Refusal::Lost { expected, newest } => {
            let known = facts.committed.iter().copied().chain(facts.bases.values().filter_map(|b| b.from));
            counting.last() == newest.as_ref()
                && newest.is_none_or(|newest| newest.checkpoint < *expected)
                && known.map(|m| m.checkpoint).any(|n| n == *expected)
        }
        Refusal::CommittedOrphan { manifest, by } => {
            let unforked = by.as_ref().is_none_or(|by| *by > manifest.attempt && !facts.bases[by].forked);
            facts.committed.contains(manifest) && !counts(facts, *manifest) && unforked
        }
        Refusal::Damaged { manifest, .. } => {
            matches!(facts.manifests[manifest], ManifestContent::Damaged { .. }) && counting.contains(manifest)
        }
        Refusal::Foreign { manifest, .. } => matches!(facts.manifests[manifest], ManifestContent::Foreign { .. }),
        Refusal::NoSuchCheckpoint { asked, .. } => counting.iter().all(|m| m.checkpoint != *asked),
        Refusal::Forks { asked, committed, undecided } => {
            let beyond: Vec<_> = counting.iter().copied().filter(|m| m.checkpoint > *asked).collect();
            let mut named: Vec<_> = committed.iter().chain(undecided).copied().collect();
            named.sort();
            named == beyond && !beyond.is_empty() && committed.iter().all(|m| facts.committed.contains(m))
        }
    };
    assert!(truth, "the refusal isn't true: {}", story());
}

#[test]
fn for_every_small_store_the_answer_is_what_it_claims_to_be() {
    let all = [name(1, 1), name(2, 1), name(3, 1), name(2, 2), name(3, 2), name(4, 2)];
    let mut second_bases: Vec<Option<BaseFact>> = vec![None];
    for from in [None, Some(name(1, 1)), Some(name(2, 1)), Some(name(3, 1))] {
        second_bases.extend([false, true].map(|forked| Some(BaseFact { from, forked })));
    }
    let mut wants = vec![Want::Newest];
    for n in 1..=4 {
        wants.extend([false, true].map(|fork| Want::Exactly { checkpoint: CheckpointId(n), fork }));
    }
    let subset = |bits: u32| all.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, m)| *m);
    let mut answers = [0u32; 4];
    for present in 0..64u32 {
        for committed in 0..64u32 {
            for first_base in [None, Some(base(None))] {
                for second_base in &second_bases {
                    let mut facts = facts(3);
                    facts.bases.extend(first_base.map(|base| (Attempt(1), base)));
                    facts.bases.extend(second_base.map(|base| (Attempt(2), base)));
                    // The contents are drawn from the bits, so that each kind stands in each place.
                    facts.manifests.extend(subset(present).zip(0u32..).map(|(manifest, i)| {
                        let content = match (present * 7 + committed * 3 + i * 5) % 8 {
                            0 => ManifestContent::Damaged { reason: String::new() },
                            1 => ManifestContent::Foreign { reason: String::new() },
                            2 | 3 => good(true),
                            _ => good(false),
                        };
                        (manifest, content)
                    }));
                    facts.committed.extend(subset(committed));
                    for want in &wants {
                        let answer = resolve(&facts, *want);
                        assert_sound(&facts, *want, &answer);
                        answers[match answer {
                            Resolution::Fresh { .. } => 0,
                            Resolution::Resume(_) => 1,
                            Resolution::Finished { .. } => 2,
                            _ => 3,
                        }] += 1;
                    }
                }
            }
        }
    }
    assert!(answers.iter().all(|count| *count > 50), "each kind of answer was met: {answers:?}");
}

// ---- every interleaving of a small protocol ----
//
// Up to three attempts run against one store and one transactional sink. A later one may begin at any moment, and the
// older one may go on as a zombie for as long as it likes: that is also what a crash looks like, with the zombie never
// moving again. Each checkpoint takes in one more record; its output is that record's number.

/// What an attempt is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Claim,
    Fence,
    Read,
    RecordBase(Plan),
    /// Commits these one after the other; the flag says that the first is committed and not yet recorded.
    Recommit(Plan, VecDeque<ManifestName>, bool),
    AbortOthers(Plan),
    /// Looks whether a newer attempt is claimed; only then
    CheckOwner(Plan),
    /// sweeps,
    Sweep(Plan),
    /// loads its state, and runs.
    Load(Plan),
    Run(Run),
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Plan {
    from: Option<ManifestName>,
    recommit: VecDeque<ManifestName>,
    next: CheckpointId,
    timeline: Vec<ManifestName>,
    orphaned: Vec<ManifestName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    next: CheckpointId,
    /// Records taken in so far.
    position: u64,
    checkpoints_left: u32,
    /// Prepared, not yet published.
    prepared: Option<ManifestName>,
    /// Published, not yet recorded as committed; the flag says that the first is committed.
    uncommitted: VecDeque<ManifestName>,
    first_is_committed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Transaction {
    Prepared,
    Committed,
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    attempts: Vec<Step>,
    // The checkpoint store.
    claimed: BTreeSet<Attempt>,
    bases: BTreeMap<Attempt, Option<ManifestName>>,
    manifests: BTreeSet<ManifestName>,
    recorded: BTreeSet<ManifestName>,
    /// State files, one for each manifest that names it.
    files: BTreeSet<ManifestName>,
    // The sink.
    fence: Attempt,
    /// How many checkpoints each attempt takes.
    checkpoints: u32,
    /// Whether they sweep. With four attempts they don't: it would be too much to visit, and three show it.
    sweeping: bool,
    /// Whether the sink is a transactional one. A plain one fences nobody: then the checkpoint store is on its own.
    transactional: bool,
    transactions: BTreeMap<ManifestName, (Transaction, u64)>,
}

impl World {
    fn new(attempts: usize, checkpoints: u32, sweeping: bool, transactional: bool) -> World {
        World {
            attempts: vec![Step::Claim; attempts],
            claimed: BTreeSet::new(),
            bases: BTreeMap::new(),
            manifests: BTreeSet::new(),
            recorded: BTreeSet::new(),
            files: BTreeSet::new(),
            fence: Attempt(0),
            checkpoints,
            sweeping,
            transactional,
            transactions: BTreeMap::new(),
        }
    }

    /// The sink commits, unless the one who asks is fenced; `None` then.
    fn commit(&mut self, by: Attempt, manifest: ManifestName) -> Option<()> {
        if by < self.fence {
            return None;
        }
        if !self.transactional {
            return Some(());
        }
        assert!(self.manifests.contains(&manifest), "a commit before its manifest (I-6)");
        let (state, _) = self.transactions.get_mut(&manifest).expect("what is listed was prepared");
        assert_ne!(*state, Transaction::Aborted, "{manifest} is committed after it was aborted: its output is lost");
        *state = Transaction::Committed;
        self.assert_output();
        Some(())
    }

    /// The store looks for a newer claim before it records a commit. A transactional sink has refused a zombie before
    /// that, so there it isn't needed, and left out, so that the test shows it.
    fn may_record(&self, own: Attempt) -> bool {
        self.transactional || self.claimed.last() == Some(&own)
    }

    /// What readers see is a prefix of the records, each once.
    fn assert_output(&self) {
        let mut seen: Vec<u64> = self
            .transactions
            .values()
            .filter(|(s, _)| *s == Transaction::Committed)
            .map(|(_, record)| *record)
            .collect();
        seen.sort_unstable();
        let expected: Vec<u64> = (1..=seen.len() as u64).collect();
        assert_eq!(seen, expected, "lost or doubled output: {self:?}");
    }

    /// All worlds that one more step of attempt `index` can lead to.
    fn after_step_of(&self, index: usize) -> Vec<World> {
        let own = Attempt(index as u64 + 1);
        let become_ = |mut world: World, step: Step| {
            world.attempts[index] = step;
            world
        };
        let dead = || become_(self.clone(), Step::Dead);
        match self.attempts[index].clone() {
            Step::Claim => {
                if own.0 > 1 && !self.claimed.contains(&Attempt(own.0 - 1)) {
                    return vec![];
                }
                let mut world = self.clone();
                world.claimed.insert(own);
                vec![become_(world, Step::Fence)]
            }
            Step::Fence => {
                if own < self.fence {
                    return vec![dead()];
                }
                let mut world = self.clone();
                if self.transactional {
                    world.fence = own;
                }
                vec![become_(world, Step::Read)]
            }
            Step::Read => {
                let facts = Facts {
                    own,
                    claimed: self.claimed.clone(),
                    bases: self.bases.iter().map(|(attempt, from)| (*attempt, base(*from))).collect(),
                    manifests: self.manifests.iter().map(|m| (*m, good(false))).collect(),
                    committed: self.recorded.clone(),
                    highest_named: CheckpointId(0),
                };
                match resolve(&facts, Want::Newest) {
                    Resolution::Fresh { next, orphaned } => {
                        let plan = Plan { from: None, recommit: VecDeque::new(), next, orphaned, timeline: vec![] };
                        vec![become_(self.clone(), Step::RecordBase(plan))]
                    }
                    Resolution::Resume(resume) => {
                        let from = resume.manifest;
                        let found = self.manifests.iter().copied();
                        let plan = Plan {
                            from: Some(from),
                            recommit: resume.recommit.into(),
                            next: resume.next,
                            timeline: found.filter(|m| *m <= from && !resume.orphaned.contains(m)).collect(),
                            orphaned: resume.orphaned,
                        };
                        vec![become_(self.clone(), Step::RecordBase(plan))]
                    }
                    Resolution::Fenced { .. } => vec![dead()],
                    other => panic!("{other:?} in a world without faults: {self:?}"),
                }
            }
            Step::RecordBase(plan) => {
                let mut world = self.clone();
                world.bases.insert(own, plan.from);
                let list = plan.recommit.clone();
                vec![become_(world, Step::Recommit(plan, list, false))]
            }
            Step::Recommit(plan, mut list, committed) => {
                let mut world = self.clone();
                let Some(first) = list.front().copied() else {
                    return vec![become_(world, Step::AbortOthers(plan))];
                };
                if !committed {
                    return match world.commit(own, first) {
                        Some(()) => vec![become_(world, Step::Recommit(plan, list, true))],
                        None => vec![dead()],
                    };
                }
                if !self.may_record(own) {
                    return vec![dead()];
                }
                world.recorded.insert(first);
                list.pop_front();
                vec![become_(world, Step::Recommit(plan, list, false))]
            }
            Step::AbortOthers(plan) => {
                if own < self.fence {
                    return vec![dead()];
                }
                let mut world = self.clone();
                for (state, _) in world.transactions.values_mut() {
                    if *state == Transaction::Prepared && self.transactional {
                        *state = Transaction::Aborted;
                    }
                }
                let next = if self.sweeping { Step::CheckOwner(plan) } else { Step::Load(plan) };
                vec![become_(world, next)]
            }
            Step::CheckOwner(plan) => match self.claimed.last() {
                Some(newest) if *newest > own => vec![dead()],
                _ => vec![become_(self.clone(), Step::Sweep(plan))],
            },
            Step::Sweep(plan) => {
                let mut world = self.clone();
                for manifest in &plan.orphaned {
                    world.manifests.remove(manifest);
                }
                world.files.retain(|file| file.attempt >= own || plan.timeline.contains(file));
                vec![become_(world, Step::Load(plan))]
            }
            Step::Load(plan) => {
                if self.claimed.last().is_some_and(|newest| *newest > own) {
                    // A successor may have swept what this one stands on.
                    return vec![dead()];
                }
                let there = plan.from.is_none_or(|from| self.files.contains(&from));
                assert!(there, "the base's files are gone: {self:?}");
                let position = plan.from.map_or(0, |from| self.transactions[&from].1);
                let visible = self.transactions.values().filter(|(s, _)| *s == Transaction::Committed).count();
                assert!(
                    !self.transactional || visible as u64 == position,
                    "the state and the output are of different moments: {self:?}"
                );
                let run = Run {
                    next: plan.next,
                    position,
                    checkpoints_left: self.checkpoints,
                    prepared: None,
                    uncommitted: VecDeque::new(),
                    first_is_committed: false,
                };
                vec![become_(self.clone(), Step::Run(run))]
            }
            Step::Run(run) => self.after_run(own, &run).into_iter().map(|(w, s)| become_(w, s)).collect(),
            Step::Dead => vec![],
        }
    }

    fn after_run(&self, own: Attempt, run: &Run) -> Vec<(World, Step)> {
        let mut all = vec![];
        if run.prepared.is_none() && run.checkpoints_left > 0 {
            let manifest = ManifestName { checkpoint: run.next, attempt: own };
            let (mut world, mut after) = (self.clone(), run.clone());
            after.position += 1;
            after.next = run.next.next();
            after.checkpoints_left -= 1;
            after.prepared = Some(manifest);
            if own < self.fence {
                all.push((world, Step::Dead));
            } else {
                world.files.insert(manifest);
                world.transactions.insert(manifest, (Transaction::Prepared, after.position));
                all.push((world, Step::Run(after)));
            }
        }
        if let Some(manifest) = run.prepared {
            // Nothing stops a zombie from publishing.
            let (mut world, mut after) = (self.clone(), run.clone());
            world.manifests.insert(manifest);
            after.prepared = None;
            after.uncommitted.push_back(manifest);
            all.push((world, Step::Run(after)));
        }
        if let Some(manifest) = run.uncommitted.front().copied() {
            let (mut world, mut after) = (self.clone(), run.clone());
            if run.first_is_committed && !self.may_record(own) {
                all.push((world, Step::Dead));
            } else if run.first_is_committed {
                world.recorded.insert(manifest);
                after.uncommitted.pop_front();
                after.first_is_committed = false;
                all.push((world, Step::Run(after)));
            } else {
                match world.commit(own, manifest) {
                    Some(()) => {
                        after.first_is_committed = true;
                        all.push((world, Step::Run(after)));
                    }
                    None => all.push((world, Step::Dead)),
                }
            }
        }
        all
    }
}

/// Visits every world that can come about, and answers how many there are.
fn all_interleavings(attempts: usize, checkpoints: u32, sweeping: bool, transactional: bool) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![World::new(attempts, checkpoints, sweeping, transactional)];
    while let Some(world) = open.pop() {
        let after: Vec<World> = (0..attempts).flat_map(|index| world.after_step_of(index)).collect();
        if after.is_empty() {
            // All have come to their end; the last one to have taken over can't be dead.
            assert!(matches!(world.attempts.last(), Some(Step::Run(_))), "{world:?}");
        }
        for world in after {
            if seen.insert(world.clone()) {
                open.push(world);
            }
        }
    }
    seen.len()
}

#[test]
fn however_three_attempts_interleave_no_output_is_lost_or_doubled() {
    let worlds = all_interleavings(3, 2, true, true);
    assert!(worlds > 10_000, "{worlds}");
}

/// A fourth one finds what the third left behind: here a base that the second recorded late would otherwise cut the
/// third off.
#[test]
fn however_four_attempts_interleave_no_output_is_lost_or_doubled() {
    let worlds = all_interleavings(4, 1, false, true);
    assert!(worlds > 10_000, "{worlds}");
}

/// Here only the look for a newer claim, after the base is recorded and before anything is swept, protects the files on
/// which a successor stands.
#[test]
fn however_three_attempts_of_a_job_with_a_plain_sink_interleave_none_sweeps_what_another_stands_on() {
    let worlds = all_interleavings(3, 1, true, false);
    assert!(worlds > 5_000, "{worlds}");
}
