//! Small stories, each about one thing that a sink must do.

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::Job;
use cutwater_engine::id::Attempt;
use cutwater_engine::sink::{Committed, Sink};
use cutwater_testkit::LossPolicy;

use crate::rule::{Findings, Rule, Violation, works};
use crate::sink::SinkKit;
use crate::sink::world::{JOB, Life, World, Writer, prepare, sorted};

/// What a crash may leave of the cache, in the small stories.
const POLICIES: [LossPolicy; 3] = [LossPolicy::AllLost, LossPolicy::NoneLost, LossPolicy::Random];

fn must_prepare<T>(writer: &mut Writer<T>, checkpoint: u64) -> Result<Vec<u8>, Violation> {
    let handle = works(format!("preparing checkpoint {checkpoint}"), prepare(writer, checkpoint))?;
    let story = || format!("it prepared nothing for checkpoint {checkpoint}, though records were written");
    handle.ok_or_else(|| Violation { rule: Rule::CommitShows, story: story() })
}

impl<F, R, V> SinkKit<F, R, V> {
    pub(crate) fn exactly_once<S>(&self, findings: &mut Findings)
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        findings.part("a checkpoint's way", |f| self.straight(f));
        findings.part("declined checkpoints", |f| self.carried(f));
        for policy in POLICIES {
            findings.part(&format!("a crash after prepare, {policy:?}"), |f| self.survives(policy, f));
        }
        findings.part("what nobody lists", |f| self.unlisted(f));
        findings.part("an older attempt", |f| self.fenced(f));
        findings.part("handles of nobody", |f| self.unknown(f));
    }

    fn world(&self) -> World<'_, F, R, V> {
        World::new(self, GuaranteeKind::ExactlyOnce)
    }

    fn expect_shown(
        &self,
        life: &Life<'_, F, R, V>,
        expected: Vec<u64>,
        rule: Rule,
        when: &str,
        findings: &mut Findings,
    ) where
        V: Fn(&Job) -> Vec<u64>,
    {
        let found = sorted(life.shown());
        let expected = sorted(expected);
        findings
            .expect(rule, found == expected, || format!("{when}: {expected:?} expected to be shown, found {found:?}"));
    }

    fn straight<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let world = self.world();
        let life = world.life();
        let group = life.group()?;
        works("fencing the first attempt", group.fence(JOB, Attempt(1)))?;
        let mut a = works("opening a writer", life.writer(1, 0, Some(1)))?;
        let mut b = works("opening another writer", life.writer(1, 1, Some(1)))?;
        works("writing", life.write(&mut a, [0, 1, 2]).and_then(|()| life.write(&mut a, 3..40)))?;
        self.expect_shown(&life, vec![], Rule::NothingBeforeCommit, "after writing", findings);
        let nothing = works("preparing an interval without records", prepare(&mut b, 1))?;
        let sealed = works("sealing", a.seal(cutwater_engine::id::CheckpointId(1)))?;
        works("writing behind the seal", life.write(&mut a, [100]).and_then(|()| life.write(&mut b, [200])))?;
        self.expect_shown(&life, vec![], Rule::NothingBeforeCommit, "after sealing", findings);
        let sealed = sealed.map(|prepare| prepare()).transpose();
        let first = works("preparing", sealed)?.flatten();
        let handles: Vec<_> = [first, nothing].into_iter().flatten().collect();
        self.expect_shown(&life, vec![], Rule::NothingBeforeCommit, "after preparing", findings);
        let counted = works("counting what is prepared", group.prepared())?;
        findings.expect(Rule::PreparedCounted, counted >= 1, || format!("1 writer has prepared, {counted} counted"));
        works("committing", group.commit(&handles))?;
        let shown = life.shown();
        self.expect_shown(&life, (0..40).collect(), Rule::CommitShows, "after the commit", findings);
        self.expect_shown(
            &life,
            (0..40).collect(),
            Rule::SealDivides,
            "after the commit, with more written behind the seal",
            findings,
        );
        if self.ordered {
            let ascending = shown.windows(2).all(|w| w[0] < w[1]);
            findings.expect(Rule::OrderKept, ascending, || {
                format!("one writer took 0 to 39 in order, shown are {shown:?}")
            });
        }
        let again = works("committing again", group.commit(&handles))?;
        let already = again == Committed { now: 0, already: handles.len() };
        findings.expect(Rule::CommitIdempotent, already, || {
            format!("{} handles committed again answered {again:?}", handles.len())
        });
        self.expect_shown(&life, (0..40).collect(), Rule::CommitIdempotent, "after committing twice", findings);
        let second = [must_prepare(&mut a, 2)?, must_prepare(&mut b, 2)?];
        works("committing the next checkpoint", group.commit(&second))?;
        let all: Vec<u64> = (0..40).chain([100, 200]).collect();
        self.expect_shown(&life, all.clone(), Rule::SealDivides, "after the next checkpoint", findings);
        works("forgetting the first checkpoint", group.forget(&handles))?;
        self.expect_shown(&life, all, Rule::ForgetKeepsOutput, "after forgetting handles", findings);
        for writer in [&mut a, &mut b] {
            let empty = works("preparing an interval without records", prepare(writer, 3))?;
            let handles: Vec<_> = empty.into_iter().collect();
            works("committing it", group.commit(&handles))?;
            works("finishing", writer.finish())?;
        }
        findings.expect(Rule::EmptyIsFine, true, String::new);
        Ok(())
    }

    fn carried<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let mut world = self.world();
        let life = world.life();
        let group = life.group()?;
        works("fencing", group.fence(JOB, Attempt(1)))?;
        let mut writer = works("opening a writer", life.writer(1, 0, Some(4)))?;
        let mut handles = vec![];
        for checkpoint in [4, 5, 7] {
            works("writing", life.write(&mut writer, [checkpoint * 10, checkpoint * 10 + 1]))?;
            handles.push(must_prepare(&mut writer, checkpoint)?);
        }
        let counted = works("counting what is prepared", group.prepared())?;
        findings.expect(Rule::PreparedCounted, counted == 3, || format!("3 intervals are prepared, {counted} counted"));
        let expected = vec![40, 41, 50, 51, 70, 71];
        works("committing what three checkpoints prepared, two of them declined", group.commit(&handles))?;
        self.expect_shown(
            &life,
            expected.clone(),
            Rule::CarriedOver,
            "after committing checkpoint 7 with 4 and 5",
            findings,
        );
        world.crash(LossPolicy::AllLost);
        drop((writer, group, life));
        let life = world.life();
        let group = life.group()?;
        works("fencing", group.fence(JOB, Attempt(2)))?;
        self.expect_shown(&life, expected.clone(), Rule::CommitIdempotent, "after a commit and a crash", findings);
        let again = works("committing again after a crash", group.commit(&handles))?;
        findings.expect(Rule::CommitIdempotent, again.now == 0 && again.already == 3, || {
            format!("3 handles that were committed before the crash, committed again, answered {again:?}")
        });
        self.expect_shown(&life, expected, Rule::CommitIdempotent, "after committing again", findings);
        Ok(())
    }

    fn survives<S>(&self, policy: LossPolicy, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let mut world = self.world();
        let life = world.life();
        let group = life.group()?;
        works("fencing", group.fence(JOB, Attempt(1)))?;
        let mut a = works("opening a writer", life.writer(1, 0, Some(1)))?;
        let mut b = works("opening another writer", life.writer(1, 1, Some(1)))?;
        works("writing", life.write(&mut a, 0..20).and_then(|()| life.write(&mut b, 100..120)))?;
        let handles = [must_prepare(&mut a, 1)?, must_prepare(&mut b, 1)?];
        works("writing on", life.write(&mut a, 500..520))?;
        world.crash(policy);
        drop((a, b, group, life));
        let life = world.life();
        let group = life.group()?;
        works("fencing after the crash", group.fence(JOB, Attempt(2)))?;
        self.expect_shown(&life, vec![], Rule::NothingBeforeCommit, "after the crash", findings);
        match group.commit(&handles) {
            Ok(committed) => findings.expect(Rule::PreparedSurvives, committed.now == 2, || {
                format!("2 handles were prepared before the crash, commit answered {committed:?}")
            }),
            Err(e) => findings.expect(Rule::PreparedSurvives, false, || format!("commit after the crash: {e}")),
        }
        works("aborting the rest", group.abort_all_but(&handles))?;
        let expected = (0..20).chain(100..120).collect();
        self.expect_shown(&life, expected, Rule::PreparedSurvives, "after the crash and the commit", findings);
        let left = works("counting what is prepared", group.prepared())?;
        findings.expect(Rule::PreparedCounted, left == 0, || format!("everything is decided, {left} counted"));
        Ok(())
    }

    fn unlisted<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let world = self.world();
        let life = world.life();
        let group = life.group()?;
        works("fencing", group.fence(JOB, Attempt(1)))?;
        let mut a = works("opening a writer", life.writer(1, 0, Some(1)))?;
        // A worker that the next attempt doesn't have.
        let mut b = works("opening another writer", life.writer(1, 7, Some(1)))?;
        works("writing", life.write(&mut a, [1, 2]).and_then(|()| life.write(&mut b, [3, 4])))?;
        let (keep, lose) = (must_prepare(&mut a, 1)?, must_prepare(&mut b, 1)?);
        works("writing on", life.write(&mut a, [5]))?;
        drop((a, b));
        let group = {
            let next = life.group()?;
            works("fencing", next.fence(JOB, Attempt(2)))?;
            next
        };
        let aborted = works("aborting all but one", group.abort_all_but(std::slice::from_ref(&keep)))?;
        findings.expect(Rule::UnlistedAborted, aborted >= 1, || {
            format!("of two prepared intervals one was to be kept, {aborted} were aborted")
        });
        let left = works("counting what is prepared", group.prepared())?;
        findings.expect(Rule::PreparedCounted, left == 1, || format!("one prepared interval is kept, {left} counted"));
        match group.commit(std::slice::from_ref(&keep)) {
            Ok(_) => self.expect_shown(&life, vec![1, 2], Rule::UnlistedAborted, "after abort and commit", findings),
            Err(e) => {
                findings.expect(Rule::UnlistedAborted, false, || format!("what was kept can't be committed: {e}"))
            }
        }
        let lost = group.commit(&[lose]);
        findings.expect(Rule::UnknownHandleFatal, matches!(lost, Err(SinkError::Fatal { .. })), || {
            format!("what was aborted, committed, answered {lost:?} instead of a fatal error")
        });
        self.expect_shown(
            &life,
            vec![1, 2],
            Rule::UnlistedAborted,
            "after trying to commit what was aborted",
            findings,
        );
        Ok(())
    }

    fn fenced<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let world = self.world();
        let life = world.life();
        let old = life.group()?;
        works("fencing attempt 3", old.fence(JOB, Attempt(3)))?;
        let mut a = works("opening a writer", life.writer(3, 0, Some(1)))?;
        let mut b = works("opening another writer", life.writer(3, 1, Some(1)))?;
        works("writing", life.write(&mut a, [1]).and_then(|()| life.write(&mut b, [2])))?;
        let promised = must_prepare(&mut a, 1)?;
        works("writing on", life.write(&mut a, [3]))?;
        let sealed = works("sealing", b.seal(cutwater_engine::id::CheckpointId(1)))?;

        let new = life.group()?;
        works("fencing attempt 4", new.fence(JOB, Attempt(4)))?;
        let is_fenced = |r: &Result<(), SinkError>| matches!(r, Err(SinkError::Fenced { .. }));
        let late = sealed.map_or(Err(SinkError::Fenced { what: String::new() }), |prepare| prepare().map(drop));
        findings.expect(Rule::OldAttemptRefused, is_fenced(&late), || {
            format!("prepare of what was sealed before the fence answered {late:?}")
        });
        let write_on = |writer: &mut Writer<S::Item>, n: u64, checkpoint: u64| {
            life.write(writer, [n]).and_then(|()| prepare(writer, checkpoint).map(drop))
        };
        for (writer, n) in [(&mut a, 4), (&mut b, 5)] {
            let late = write_on(writer, n, 2);
            findings.expect(Rule::OldAttemptRefused, is_fenced(&late), || {
                format!("write and prepare after the fence answered {late:?}")
            });
        }
        let lower = life.group()?.fence(JOB, Attempt(2));
        findings.expect(Rule::LowerFenceRefused, is_fenced(&lower), || {
            format!("fencing attempt 2 after 4 answered {lower:?}")
        });
        let writer = life.writer(3, 2, Some(3)).map(drop);
        let late = match writer {
            Ok(()) => life.writer(3, 2, Some(3)).and_then(|mut writer| write_on(&mut writer, 6, 3)),
            Err(e) => Err(e),
        };
        findings.expect(Rule::OldAttemptRefused, is_fenced(&late), || {
            format!("a writer that was opened after the fence answered {late:?}")
        });

        // The lower fence that was refused must not have taken anything away.
        let mut fresh = works("opening a writer of the new attempt", life.writer(4, 0, Some(2)))?;
        works("writing", life.write(&mut fresh, [10]))?;
        let prepared = must_prepare(&mut fresh, 2)?;
        match new.commit(std::slice::from_ref(&promised)) {
            Ok(committed) => {
                findings.expect(Rule::OldOutputSurvives, committed.now == 1, || format!("it answered {committed:?}"))
            }
            Err(e) => findings.expect(Rule::OldOutputSurvives, false, || {
                format!("committing what the older attempt had prepared: {e}")
            }),
        }
        let keep = [promised, prepared];
        works("aborting the rest", new.abort_all_but(&keep))?;
        works("committing", new.commit(&keep[1..]))?;
        self.expect_shown(&life, vec![1, 10], Rule::OldAttemptRefused, "after all that", findings);
        Ok(())
    }

    fn unknown<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let real = {
            let world = self.world();
            let life = world.life();
            works("fencing", life.group()?.fence(JOB, Attempt(1)))?;
            let mut writer = works("opening a writer", life.writer(1, 0, Some(1)))?;
            works("writing", life.write(&mut writer, [1]))?;
            must_prepare(&mut writer, 1)?
        };
        let world = self.world();
        let life = world.life();
        let group = life.group()?;
        works("fencing", group.fence(JOB, Attempt(2)))?;
        let damaged = (0..real.len()).map(|len| real[..len].to_vec());
        let mut others: Vec<Vec<u8>> = damaged.collect();
        others.extend([real.clone(), vec![0xFF; 80]]);
        for handle in others {
            let result = group.commit(std::slice::from_ref(&handle));
            findings.expect(Rule::UnknownHandleFatal, matches!(result, Err(SinkError::Fatal { .. })), || {
                format!("commit of {handle:?}, which nobody here prepared, answered {result:?}")
            });
        }
        Ok(())
    }

    pub(crate) fn at_least_once<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        for policy in POLICIES {
            let mut world = World::new(self, GuaranteeKind::AtLeastOnce);
            let life = world.life();
            if let Some(group) = life.sink().group() {
                works("fencing", group.fence(JOB, Attempt(1)))?;
            }
            let mut writer = works("opening a writer", life.writer(1, 0, None))?;
            works("writing", life.write(&mut writer, 0..30))?;
            let handle = works("passing a barrier", prepare(&mut writer, 1))?;
            findings.expect(Rule::BarrierMeansDurable, handle.is_none(), || {
                "it wants a commit, and shows at once".to_string()
            });
            self.expect_shown(&life, (0..30).collect(), Rule::BarrierMeansDurable, "behind the barrier", findings);
            world.crash(policy);
            drop((writer, life));
            let life = world.life();
            let found = sorted(life.shown());
            let there = (0..30).all(|n| found.contains(&n));
            findings.expect(Rule::BarrierMeansDurable, there, || {
                format!("after a crash behind the barrier: {found:?} of 0 to 29")
            });
        }
        Ok(())
    }

    pub(crate) fn at_most_once<S>(&self, findings: &mut Findings) -> Result<(), Violation>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let world = World::new(self, GuaranteeKind::AtMostOnce);
        let life = world.life();
        let mut writer = works("opening a writer", life.writer(1, 0, None))?;
        works("writing", life.write(&mut writer, 0..30))?;
        works("finishing", writer.finish())?;
        self.expect_shown(&life, (0..30).collect(), Rule::FinishShows, "at the end", findings);
        Ok(())
    }
}
