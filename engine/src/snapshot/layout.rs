//! Every name in a checkpoint store, built and parsed here and nowhere else.
//!
//! ```text
//!   <dir>/job                                                  the job's id; its presence says that the rest is there
//!   <dir>/attempts/00000003                                    who claimed attempt 3
//!   <dir>/attempts/00000003.base                               from which manifest attempt 3 started
//!   <dir>/state/000000000012-a000003-o0002-w0001-counts.delta  state file
//!   <dir>/manifests/000000000012-a000003.manifest              checkpoint 12 is complete
//!   <dir>/committed/000000000012-a000003.committed             everything that manifest lists is committed
//!   .<16 hex digits>.tmp                                       in any of them: being written, or left by a crash
//! ```
//!
//! Numbers are padded with zeros, so that names sort as numbers; larger ones are simply longer. A name counts only if
//! building it again from its parts gives the same name.

use std::fmt;

use thiserror::Error;

use crate::checkpoint::{CHANNEL_STATE, StateFileKind};
use crate::id::{Attempt, CheckpointId, InstanceId, OperatorId, WorkerIndex};

/// File with the job's id.
pub(crate) const JOB: &str = "job";
/// Directory of claims and bases.
pub(crate) const ATTEMPTS: &str = "attempts";
/// Directory of state files.
pub(crate) const STATE: &str = "state";
/// Directory of manifests.
pub(crate) const MANIFESTS: &str = "manifests";
/// Directory of the janitor's records.
pub(crate) const COMMITTED: &str = "committed";
/// All directories.
pub(crate) const DIRECTORIES: [&str; 4] = [ATTEMPTS, STATE, MANIFESTS, COMMITTED];

/// Longest name of a state, so that a file's name stays below the 255 bytes that file systems allow.
const STATE_NAME_MAX: usize = 100;

/// The name of a state: 1 to 100 ASCII letters, digits, `-`, `_` or `.`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateName(String);

/// A name that a state can't have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name:?} can't be the name of a state: use 1 to 100 ASCII letters, digits, '-', '_' or '.', with no dot at the start"
)]
pub struct BadStateName {
    /// The name.
    pub name: String,
}

impl StateName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`BadStateName`].
    pub fn new(name: &str) -> Result<StateName, BadStateName> {
        let fits = (1..=STATE_NAME_MAX).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if fits { Ok(StateName(name.to_owned())) } else { Err(BadStateName { name: name.to_owned() }) }
    }

    /// The name of channel state, which no operator can give.
    pub(crate) fn channel_state() -> StateName {
        StateName(CHANNEL_STATE.to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a state file's name says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateFileName {
    /// The checkpoint it was written for.
    pub checkpoint: CheckpointId,
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// The operator instance whose state it is.
    pub instance: InstanceId,
    /// The state.
    pub state: StateName,
    /// Base or delta.
    pub kind: StateFileKind,
}

impl fmt::Display for StateFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            StateFileKind::Base => "base",
            StateFileKind::Delta => "delta",
        };
        let (checkpoint, attempt) = (self.checkpoint.0, self.attempt.0);
        let (operator, worker) = (self.instance.operator.0, self.instance.worker.0);
        write!(f, "{checkpoint:012}-a{attempt:06}-o{operator:04}-w{worker:04}-{}.{kind}", self.state)
    }
}

impl StateFileName {
    /// Reads a name back; `None` when it isn't one.
    pub fn parse(name: &str) -> Option<StateFileName> {
        let (rest, kind) = name.rsplit_once('.')?;
        let kind = match kind {
            "base" => StateFileKind::Base,
            "delta" => StateFileKind::Delta,
            _ => return None,
        };
        let mut parts = rest.splitn(5, '-');
        let checkpoint = CheckpointId(parts.next()?.parse().ok()?);
        let attempt = Attempt(parts.next()?.strip_prefix('a')?.parse().ok()?);
        let operator = OperatorId(parts.next()?.strip_prefix('o')?.parse().ok()?);
        let worker = WorkerIndex(parts.next()?.strip_prefix('w')?.parse().ok()?);
        let state = match parts.next()? {
            CHANNEL_STATE => StateName::channel_state(),
            name => StateName::new(name).ok()?,
        };
        let parsed = StateFileName { checkpoint, attempt, instance: InstanceId { operator, worker }, state, kind };
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// A manifest's name: which checkpoint, published by which attempt. Ordered by checkpoint, then attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestName {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that published it.
    pub attempt: Attempt,
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012}-a{:06}", self.checkpoint.0, self.attempt.0)
    }
}

impl ManifestName {
    /// The manifest's file.
    pub fn manifest_file(self) -> String {
        format!("{self}.manifest")
    }

    /// The file of the janitor's record about it.
    pub fn committed_file(self) -> String {
        format!("{self}.committed")
    }

    /// Reads a manifest's file name back.
    pub fn parse_manifest_file(name: &str) -> Option<ManifestName> {
        ManifestName::parse(name, name.strip_suffix(".manifest")?, ManifestName::manifest_file)
    }

    /// Reads the file name of a janitor's record back.
    pub fn parse_committed_file(name: &str) -> Option<ManifestName> {
        ManifestName::parse(name, name.strip_suffix(".committed")?, ManifestName::committed_file)
    }

    fn parse(name: &str, stem: &str, build: impl Fn(ManifestName) -> String) -> Option<ManifestName> {
        let (checkpoint, attempt) = stem.split_once("-a")?;
        let parsed = ManifestName {
            checkpoint: CheckpointId(checkpoint.parse().ok()?),
            attempt: Attempt(attempt.parse().ok()?),
        };
        (build(parsed) == name).then_some(parsed)
    }
}

/// The file that claims an attempt.
pub fn attempt_name(attempt: Attempt) -> String {
    format!("{:08}", attempt.0)
}

/// The file that says where an attempt started.
pub fn base_name(attempt: Attempt) -> String {
    format!("{:08}.base", attempt.0)
}

/// Reads [`attempt_name`] back.
pub fn parse_attempt_name(name: &str) -> Option<Attempt> {
    let attempt = Attempt(name.parse().ok()?);
    (attempt_name(attempt) == name).then_some(attempt)
}

/// Reads [`base_name`] back.
pub fn parse_base_name(name: &str) -> Option<Attempt> {
    parse_attempt_name(name.strip_suffix(".base")?)
}

/// A name to write under before publishing. Random, because two processes may be writing the same thing: with one name
/// between them, one could publish what the other is still writing.
pub(crate) fn temporary(random: u64) -> String {
    format!(".{random:016x}.tmp")
}

/// True for a name made by [`temporary`].
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix('.')
        .and_then(|rest| rest.strip_suffix(".tmp"))
        .is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(checkpoint: u64, state: &str, kind: StateFileKind) -> StateFileName {
        StateFileName {
            checkpoint: CheckpointId(checkpoint),
            attempt: Attempt(3),
            instance: InstanceId { operator: OperatorId(2), worker: WorkerIndex(1) },
            state: StateName::new(state).expect("a good name"),
            kind,
        }
    }

    #[test]
    fn every_name_is_read_back_as_what_it_was_built_from() {
        for checkpoint in [1, 12, u64::MAX] {
            for state in ["counts", "a-b.base", "w0001-x", "x.y_z", "7"] {
                for kind in [StateFileKind::Base, StateFileKind::Delta] {
                    let name = example(checkpoint, state, kind);
                    assert_eq!(StateFileName::parse(&name.to_string()), Some(name));
                }
            }
            let name = ManifestName { checkpoint: CheckpointId(checkpoint), attempt: Attempt(checkpoint) };
            assert_eq!(ManifestName::parse_manifest_file(&name.manifest_file()), Some(name));
            assert_eq!(ManifestName::parse_committed_file(&name.committed_file()), Some(name));
            let attempt = Attempt(checkpoint);
            assert_eq!(parse_attempt_name(&attempt_name(attempt)), Some(attempt));
            assert_eq!(parse_base_name(&base_name(attempt)), Some(attempt));
        }
        let in_flight = StateFileName { state: StateName::channel_state(), ..example(12, "x", StateFileKind::Base) };
        assert_eq!(StateFileName::parse(&in_flight.to_string()), Some(in_flight));
        assert!(StateName::new(CHANNEL_STATE).is_err(), "no operator's state can have this name");
        assert_eq!(
            example(12, "counts", StateFileKind::Delta).to_string(),
            "000000000012-a000003-o0002-w0001-counts.delta"
        );
    }

    #[test]
    fn a_name_that_would_be_built_differently_is_no_name() {
        for name in
            ["12-a3.manifest", "000000000012-a000003", "+00000000012-a000003.manifest", "x.manifest", ".manifest"]
        {
            assert_eq!(ManifestName::parse_manifest_file(name), None, "{name}");
        }
        for name in ["", "1", "0000001a", "000000001", "00000001.base", "+0000001"] {
            assert_eq!(parse_attempt_name(name), None, "{name}");
        }
        for name in ["000000000012-a000003-o0002-w0001-counts", "000000000012-a000003-o0002-w001-counts.base", "-.base"]
        {
            assert_eq!(StateFileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_states_name_can_stand_in_a_path() {
        for bad in ["", ".", "..", ".hidden", "a/b", "a b", "ü", &"x".repeat(101)] {
            assert!(StateName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_temporary_name_is_recognised_and_is_nothing_else() {
        let name = temporary(0xab);
        assert!(is_temporary(&name));
        assert!(StateFileName::parse(&name).is_none() && parse_attempt_name(&name).is_none());
        assert!(!is_temporary(".x.tmp") && !is_temporary("manifest.tmp"));
    }
}
