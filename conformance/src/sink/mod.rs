//! What is asked of a sink.

mod crashes;
mod scenarios;
mod world;

use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::graph::Job;
use cutwater_engine::sink::Sink;
use cutwater_platform::Platform;

use crate::rule::{Conforms, Findings, Rule, Violations, works};
use world::World;

/// Looks at a sink. Made by [`sink()`].
#[derive(Debug)]
pub struct SinkKit<F, R, V> {
    make: F,
    record: R,
    shown: V,
    ordered: bool,
    steps_max: u64,
    platform: Option<Platform>,
}

/// Will look at the sink that `make` makes: once per worker and attempt, as in a job.
///
/// * `record` makes record n. Records of different numbers must differ.
/// * `shown` answers the numbers of all records that a reader sees, in the order in which it sees them. It is given the job that
///   writes, so that it can share a handle with the sink.
///
/// Each scenario begins with an empty world: an empty simulated machine, and a data directory
/// ([`Environment::dir`](cutwater_engine::graph::Environment)) of a name that no other has. A sink on a system of its own keeps what it
/// writes apart by that name.
pub fn sink<S, F, R, V>(make: F, record: R, shown: V) -> SinkKit<F, R, V>
where
    S: Sink,
    F: Fn(&Job) -> S,
    R: Fn(u64) -> S::Item,
    V: Fn(&Job) -> Vec<u64>,
{
    SinkKit { make, record, shown, ordered: true, steps_max: 60, platform: None }
}

impl<F, R, V> SinkKit<F, R, V> {
    /// Readers see the records of one writer in any order.
    #[must_use]
    pub fn unordered(mut self) -> SinkKit<F, R, V> {
        self.ordered = false;
        self
    }

    /// The power goes off at most at so many steps of a small job's life, spread over it; 60 unless told otherwise, 0 for none.
    #[must_use]
    pub fn power_cuts_max(mut self, steps: u64) -> SinkKit<F, R, V> {
        self.steps_max = steps;
        self
    }

    /// Runs on this platform instead of simulated machines, without power cuts. Directories are below the system's directory for
    /// temporary files.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> SinkKit<F, R, V> {
        self.platform = Some(platform);
        self
    }

    /// Looks.
    ///
    /// # Errors
    /// [`Violations`]: what is not as it should be.
    pub fn run<S>(self) -> Result<Conforms, Violations>
    where
        F: Fn(&Job) -> S,
        S: Sink,
        R: Fn(u64) -> S::Item,
        V: Fn(&Job) -> Vec<u64>,
    {
        let mut findings = Findings::default();
        let mut honoured = vec![];
        findings.part("asking what it honours", |f| {
            let life = World::new(&self, GuaranteeKind::ExactlyOnce).life();
            let sink = life.sink();
            let honours = sink.honours();
            let (exact, group) = (honours.guarantees.contains(&GuaranteeKind::ExactlyOnce), sink.group());
            f.expect(Rule::GroupMatchesPromise, exact == group.is_some(), || {
                let group = group.as_ref().map(|g| g.name().to_string());
                format!("it honours {:?} and its commit group is {group:?}", honours.guarantees)
            });
            honoured = honours.guarantees;
            if let Some(group) = group {
                let (one, two) = (group.name().to_string(), life.sink().group().map(|g| g.name().to_string()));
                f.expect(Rule::GroupMatchesPromise, two.as_ref() == Some(&one), || {
                    format!("first {one:?}, then {two:?}")
                });
                let empty = works("committing nothing", group.fence(world::JOB, cutwater_engine::id::Attempt(1)))
                    .and_then(|()| works("committing nothing", group.commit(&[])))?;
                f.expect(Rule::EmptyIsFine, empty.now == 0, || format!("committing nothing answered {empty:?}"));
            }
            Ok(())
        });
        if honoured.contains(&GuaranteeKind::ExactlyOnce) {
            self.exactly_once(&mut findings);
            self.through_crashes(&mut findings);
        } else {
            for rule in [Rule::CommitShows, Rule::PreparedSurvives, Rule::OldAttemptRefused, Rule::ExactThroughCrashes]
            {
                findings.skip(rule, "it doesn't honour exactly-once");
            }
        }
        if honoured.contains(&GuaranteeKind::AtLeastOnce) {
            findings.part("at-least-once", |f| self.at_least_once(f));
        }
        if honoured.contains(&GuaranteeKind::AtMostOnce) {
            findings.part("at-most-once", |f| self.at_most_once(f));
        }
        findings.end()
    }
}
