//! What is asked of connectors, by name, and what was found.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Nothing panics, whatever the position or handle.
    NoPanic,
    /// What is right is not refused.
    Works,
    /// A source lists the same splits each time, each once.
    SplitsStable,
    /// A split has the same records in the same order, however many are asked for at once, and gives about as many as asked for.
    ReadsAlike,
    /// A bounded source comes to its end, and one that waits says so.
    Ends,
    /// A position after any number of records is the place from which exactly the others follow, for another instance too.
    PositionResumes,
    /// Asking for a position changes nothing, and a reader that has read nothing stands where it was opened.
    PositionIsPure,
    /// A split that was exhausted stays so, and is so when it is opened at its end.
    ExhaustedStays,
    /// Splits can be handed out among another number of workers in the middle.
    SplitsMove,
    /// Bytes that can't be a position are refused with an error.
    BadPositionRefused,
    /// A source that can't be read again refuses every position.
    NeverMeansNever,
    /// A sink names a commit group exactly if it honours exactly-once, always under one name.
    GroupMatchesPromise,
    /// What is written, sealed or prepared isn't shown before its commit.
    NothingBeforeCommit,
    /// Commit shows what was prepared, and nothing else.
    CommitShows,
    /// Commit again answers Already and changes nothing, after a crash too.
    CommitIdempotent,
    /// One writer's records are shown in the order in which it took them.
    OrderKept,
    /// What is written behind a seal belongs to the next checkpoint.
    SealDivides,
    /// An interval without records is fine.
    EmptyIsFine,
    /// What was prepared for a declined checkpoint is committed with a later one.
    CarriedOver,
    /// A checkpoint is shown whole or not at all, whenever one looks.
    Atomic,
    /// What was prepared can be committed after any crash.
    PreparedSurvives,
    /// What no checkpoint lists is aborted, counted, and never shown; what is listed is kept.
    UnlistedAborted,
    /// A commit group counts what is prepared and undecided.
    PreparedCounted,
    /// Fence refuses an attempt that comes after a higher one.
    LowerFenceRefused,
    /// Whatever an older attempt tries after a fence is refused as fenced, at the latest when it prepares.
    OldAttemptRefused,
    /// What an older attempt had prepared before the fence can be committed by the newer one.
    OldOutputSurvives,
    /// A handle that names nothing is refused as fatal: silence would lose output.
    UnknownHandleFatal,
    /// Handles may be forgotten once committed; what they showed stays.
    ForgetKeepsOutput,
    /// Through power cuts at every step, each record of a committed checkpoint is shown once, and no other.
    ExactThroughCrashes,
    /// At-least-once: behind a barrier everything written before it is shown, and survives a crash.
    BarrierMeansDurable,
    /// At-most-once: at the end everything is shown.
    FinishShows,
}

/// Something that isn't as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What it breaks.
    pub rule: Rule,
    /// The story: what was done, what was expected, what was found.
    pub story: String,
}

/// Everything that was found wrong; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(
    /// In the order in which they were found.
    pub Vec<Violation>,
);

impl Violations {
    /// Whether this rule is broken.
    pub fn breaks(&self, rule: Rule) -> bool {
        self.0.iter().any(|violation| violation.rule == rule)
    }

    /// The rules that are broken.
    pub fn rules(&self) -> BTreeSet<Rule> {
        self.0.iter().map(|violation| violation.rule).collect()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} findings", self.0.len())?;
        self.0.iter().try_for_each(|Violation { rule, story }| write!(f, "\n  {rule:?}: {story}"))
    }
}

impl std::error::Error for Violations {}

/// What was looked at and found right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conforms {
    /// The rules that were tried.
    pub tried: BTreeSet<Rule>,
    /// Those that were not, and why.
    pub skipped: Vec<(Rule, String)>,
    /// Power cuts that struck.
    pub crashes: u64,
}

/// Gathers what a kit finds.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    violations: Vec<Violation>,
    pub(crate) conforms: Conforms,
}

/// After so many stories of one rule the others say nothing new.
const STORIES_MAX: usize = 3;

impl Findings {
    pub(crate) fn fail(&mut self, rule: Rule, story: impl Into<String>) {
        if self.violations.iter().filter(|v| v.rule == rule).count() < STORIES_MAX {
            self.violations.push(Violation { rule, story: story.into() });
        }
    }

    /// Counts `rule` as tried; a finding unless `holds`.
    pub(crate) fn expect(&mut self, rule: Rule, holds: bool, story: impl FnOnce() -> String) {
        self.conforms.tried.insert(rule);
        if !holds {
            self.fail(rule, story());
        }
    }

    pub(crate) fn skip(&mut self, rule: Rule, why: &str) {
        self.conforms.skipped.push((rule, why.to_string()));
    }

    /// Runs a part; a panic in it is a finding, and an error that it gives up with is too.
    pub(crate) fn part(&mut self, what: &str, part: impl FnOnce(&mut Findings) -> Result<(), Violation>) {
        self.conforms.tried.extend([Rule::NoPanic, Rule::Works]);
        match catch_unwind(AssertUnwindSafe(|| part(self))) {
            Ok(Ok(())) => {}
            Ok(Err(Violation { rule, story })) => self.fail(rule, format!("{what}: {story}")),
            Err(panic) => {
                let text = cutwater_platform::spawn::panic_text(panic.as_ref());
                self.fail(Rule::NoPanic, format!("{what}: it panicked: {text}"));
            }
        }
    }

    pub(crate) fn end(self) -> Result<Conforms, Violations> {
        if self.violations.is_empty() { Ok(self.conforms) } else { Err(Violations(self.violations)) }
    }
}

/// What should have worked and didn't ends a part.
pub(crate) fn works<T, E: fmt::Display>(what: impl fmt::Display, result: Result<T, E>) -> Result<T, Violation> {
    result.map_err(|e| Violation { rule: Rule::Works, story: format!("{what}: {e}") })
}
