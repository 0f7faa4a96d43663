//! Who couldn't prove to be who they say, counted by where, how and why. Few things happen here, and a map behind a lock is enough;
//! all its keys are ours, so that strangers can't make it grow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Where it was tried, by which means, and what was wrong.
pub(crate) type Failure = (Arc<str>, &'static str, &'static str);

/// Failed authentications.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Failure, u64>>);

/// By TLS: certificates, and agreeing on keys at all.
pub(crate) const TLS: &str = "TLS";
/// By SASL, before a mechanism was chosen.
pub(crate) const SASL: &str = "SASL";

impl Failures {
    /// Counts one.
    pub(crate) fn count(&self, listener: &Arc<str>, mechanism: &'static str, cause: &'static str) {
        *self.0.lock().expect("no panic while counting").entry((listener.clone(), mechanism, cause)).or_default() += 1;
    }

    /// All that were counted.
    pub(crate) fn read(&self) -> Vec<(Failure, u64)> {
        let counted = self.0.lock().expect("no panic while counting");
        counted.iter().map(|(failure, times)| (failure.clone(), *times)).collect()
    }

    /// Those by SCRAM.
    pub(crate) fn by_scram(&self) -> u64 {
        let scram = self.read().into_iter().filter(|((_, mechanism, _), _)| mechanism.starts_with("SCRAM"));
        scram.map(|(_, times)| times).sum()
    }
}
