//! Mistakes that can be planted, each in the model's own glue around the product's decisions.
//!
//! A model that finds nothing is worth as much as what it would find. So each mistake here is one that somebody could make, or
//! has made, in the wiring; `tests/faults.rs` shows that each of them is found, and nothing where none is planted.

use std::fmt;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $words:literal),* $(,)?) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name),*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            /// What is wrong, in words.
            pub fn words(self) -> &'static str {
                match self {
                    $(Fault::$name => $words),*
                }
            }
        }
    };
}

faults! {
    /// The committer gets its permit when all instances have reported, before the manifest exists.
    PermitBeforePublish = "permit before publish",
    /// The permit is sent when the manifest has its name, before the directory is synced.
    PermitBeforeSync = "permit before the manifest's directory is synced",
    /// Recovery acts on names that it has found without making them durable.
    ReaderDoesNotSync = "recovery doesn't sync what it found",
    /// An instance reports a state file that is written and not synced.
    ReportBeforeSync = "report before the state file is synced",
    /// A checkpoint is published when the ack frontier has passed it, whoever has reported.
    FrontierAlone = "published on the frontier alone",
    /// Reports are counted instead of instances.
    ReportsCounted = "a report that came twice counts as two",
    /// The log ends a transaction again that it has ended before.
    CommitTwice = "commit without the question whether it was committed before",
    /// The sinks of a commit group are committed one after the other.
    CommitOneByOne = "a checkpoint's transactions committed one by one",
    /// A new attempt doesn't fence the log.
    SinkNotFenced = "fence skipped at the sink",
    /// The checkpoint store doesn't look for a newer attempt.
    StoreNotFenced = "fence skipped at the store",
    /// A manifest counts unless a later attempt has a base below it: the rule before decision 0010.
    OldTimeline = "the old rule of the timeline: no later base lies below",
    /// Only what the base manifest lists is committed again.
    BaseRecommittedOnly = "earlier retained manifests not committed again",
    /// Transactions to abort are found by guessing their names from the last attempt and its number of workers.
    AbortByGuess = "abort by guessing names instead of listing",
    /// A manifest that was listed and is gone when it is read ends the start for good.
    ListedOnce = "what vanishes between listing and reading ends the run",
    /// Orphans are swept before the attempt's base is recorded.
    SweepBeforeBase = "orphans swept before the base is recorded",
    /// A barrier goes to the first output at once and to the others when there is room, while records go on.
    BarrierOneByOne = "a barrier not sent to all outputs in one step",
    /// An exhausted source ends its channels at once, so that ends complete alignments.
    EndAtExhaustion = "an end completes an alignment",
    /// Records of held channels are processed.
    HeldProcessed = "a record processed from a held channel",
    /// What a declined checkpoint had prepared is not carried into the next manifest.
    CarriedDropped = "a declined checkpoint's transactions dropped",
    /// After a failed write the next delta contains only what changed since.
    DirtySetLost = "the dirty set lost after a failed write",
    /// The log forgets outcomes when they are committed, not when no manifest lists them any more.
    ForgetAtCommit = "outcomes forgotten too early",
    /// The trigger closes when the sources are exhausted, before the final manifest is committed.
    EndBeforeCommit = "end sent before the final commit",
    /// Processed frames give no credit back.
    CreditKept = "credit not given back",
    /// Each attempt numbers its checkpoints from 1.
    NumbersRestart = "checkpoint numbers used again after a restart",
    /// State files are removed before the manifests that name them.
    FilesBeforeManifests = "state files removed before their manifest",
    /// The record of a commit is removed before its manifest, and its outcomes are forgotten with it.
    RecordBeforeManifest = "outcomes forgotten before the manifest is removed",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
