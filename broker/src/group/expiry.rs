//! Offsets of groups that nobody is in any more are forgotten, as in Kafka.
//!
//! * An offset is forgotten when it is older than the retention: since its commit, or since its group lost its last member, whichever is
//!   later. Both are the log's times, so a restart doesn't begin them anew.
//! * Never while a member reads its topic, in whatever state the group is (KAFKA-13636), nor while its members don't say what they read,
//!   nor while a transaction may still change it (KAFKA-19163).
//! * A group that has lost its last offset this way, and has no members, goes as well.
//!
//! It is looked little by little: each group is a write.

use std::collections::BTreeSet;
use std::time::Duration;

use cutwater_partition_log::{GroupError, TopicId};
use cutwater_platform::WallTime;

use super::coordinator::Coordinator;

/// A search begins this long after the last one ended (Kafka's `offsets.retention.check.interval.ms`).
const SEARCH_EVERY: Duration = Duration::from_secs(600);
/// So many groups are looked at in one go.
const GROUPS_AT_ONCE: usize = 50;
/// The next go of the same search comes after this.
const REST: Duration = Duration::from_secs(1);

/// Where the search stands.
#[derive(Debug)]
pub(super) struct Sweep {
    retention: Duration,
    /// When the next go is due.
    next: Duration,
    /// The group that was looked at last.
    after: String,
}

impl Sweep {
    pub(super) fn new(retention: Duration, now: Duration) -> Sweep {
        Sweep { retention, next: now + REST, after: String::new() }
    }
}

impl Coordinator {
    /// Does the next go, if it is due.
    pub(super) fn expire_offsets(&self) {
        let now = self.platform.clock.monotonic();
        let mut sweep = self.sweep.lock().expect("no panic under the sweep's lock");
        if now < sweep.next {
            return;
        }
        let retention = i64::try_from(sweep.retention.as_millis()).unwrap_or(i64::MAX);
        let before = WallTime(self.platform.clock.wall().0.saturating_sub(retention));
        let stale = self.log.stale_groups(before, &sweep.after, GROUPS_AT_ONCE);
        for group in &stale {
            match self.expire_in(group, before) {
                Ok(0) => {}
                Ok(offsets) => {
                    tracing::info!(group, offsets, "offsets are older than they are kept, and were forgotten")
                }
                Err(error) => tracing::debug!(group, %error, "old offsets can't be forgotten now"),
            }
        }
        let goes_on = stale.len() == GROUPS_AT_ONCE;
        sweep.next = now + if goes_on { REST } else { SEARCH_EVERY.min(sweep.retention).max(REST) };
        sweep.after = stale.into_iter().next_back().filter(|_| goes_on).unwrap_or_default();
    }

    /// Forgets a group's offsets from before `before`; how many.
    fn expire_in(&self, name: &str, before: WallTime) -> Result<usize, GroupError> {
        let Ok(hosted) = self.hosted(name, false) else {
            // Nobody was ever in it: the times are those of the commits.
            return Ok(self.log.expire_offsets(name, before, &BTreeSet::new())?.len());
        };
        let (gone, is_empty) = {
            // Locked, so that nobody joins or leaves meanwhile.
            let hosted = hosted.lock().expect("no panic under a group's lock");
            let Some(read) = hosted.topics().filter(|_| hosted.is_settled()) else { return Ok(0) };
            let read: BTreeSet<TopicId> = read.iter().filter_map(|name| Some(self.log.topic(name)?.id)).collect();
            (self.log.expire_offsets(name, before, &read)?.len(), hosted.is_empty())
        };
        if gone > 0 && is_empty && self.log.group_offsets(name)?.offsets.is_empty() {
            // Whoever comes meanwhile is in time: then it isn't empty, or isn't bare.
            let _ = self.delete(name, || self.log.forget_bare_group(name));
        }
        Ok(gone)
    }
}
