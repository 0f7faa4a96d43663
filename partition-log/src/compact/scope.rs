//! When a round is worth it, over which segments, and which of them become one. Pure.

use crate::policy::TopicPolicy;
use crate::retention::SegmentFacts;

/// What a round looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// All of these, sealed and settled, in order.
    pub(crate) segments: Vec<SegmentFacts>,
    /// The keys below were looked at in an earlier round.
    pub(crate) dirty_from: i64,
}

/// The scope of a round that is due: enough of the bytes below `settled` are new, or something new is too old. `compacted_to`
/// is where the last round ended.
pub(crate) fn due(
    segments: &[SegmentFacts],
    policy: &TopicPolicy,
    compacted_to: i64,
    settled: i64,
    now: i64,
) -> Option<Scope> {
    let age = |ms: i64| now.saturating_sub(ms);
    let is_ripe = |ms: Option<i64>| {
        policy.min_compaction_lag_ms == 0 || ms.is_none_or(|ms| age(ms) >= policy.min_compaction_lag_ms)
    };
    let ripe = segments.iter().take_while(|s| !s.is_active && s.next <= settled && is_ripe(s.largest_ms));
    let segments: Vec<SegmentFacts> = ripe.copied().collect();
    let bytes = |of: &[SegmentFacts]| of.iter().map(|segment| segment.bytes).sum::<u64>() as f64;
    let clean = segments.iter().take_while(|segment| segment.next <= compacted_to).count();
    let dirty = segments.get(clean..)?;
    let oldest = dirty.first()?;
    let late = oldest.first_ms.is_some_and(|ms| age(ms) > policy.max_compaction_lag_ms);
    let enough = bytes(dirty) / bytes(&segments).max(1.0) > policy.min_dirty_ratio;
    let dirty_from = compacted_to.max(segments.first()?.base);
    (policy.compact && (enough || late)).then_some(Scope { segments, dirty_from })
}

/// Segments that become one: neighbours that are together no larger than one may be, and whose offsets an index can name.
pub(crate) fn groups(segments: &[SegmentFacts], bytes_max: u64) -> Vec<Vec<SegmentFacts>> {
    let mut groups: Vec<Vec<SegmentFacts>> = Vec::new();
    for segment in segments {
        let fits = |group: &&mut Vec<SegmentFacts>| {
            let bytes: u64 = group.iter().map(|s| s.bytes).sum();
            let first = group.first().map_or(segment.base, |first| first.base);
            bytes + segment.bytes <= bytes_max && segment.next - first <= i64::from(i32::MAX)
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.push(*segment),
            None => groups.push(vec![*segment]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten offsets and ten bytes each, with these times; the last is active.
    fn segments(times: &[i64]) -> Vec<SegmentFacts> {
        let one = |(n, time): (usize, &i64)| SegmentFacts {
            base: n as i64 * 10,
            next: n as i64 * 10 + 10,
            bytes: 10,
            first_ms: Some(*time),
            largest_ms: Some(*time),
            is_active: n + 1 == times.len(),
        };
        times.iter().enumerate().map(one).collect()
    }

    fn policy() -> TopicPolicy {
        TopicPolicy { compact: true, ..TopicPolicy::default() }
    }

    #[test]
    fn a_round_is_due_when_enough_is_new_or_something_new_is_too_old() {
        let all = segments(&[0, 10, 20, 30, 40]);
        let to = |compacted, settled, policy: &TopicPolicy, now| {
            due(&all, policy, compacted, settled, now).map(|scope| (scope.segments.len(), scope.dirty_from))
        };
        assert_eq!(to(0, 50, &policy(), 100), Some((4, 0)), "never the active one");
        assert_eq!(to(0, 29, &policy(), 100), Some((2, 0)), "nor what isn't settled");
        assert_eq!(to(0, 9, &policy(), 100), None);
        assert_eq!([10, 20, 40].map(|compacted| to(compacted, 50, &policy(), 100)), [Some((4, 10)), None, None]);
        let eager = TopicPolicy { min_dirty_ratio: 0.0, ..policy() };
        assert_eq!(to(30, 50, &eager, 100), Some((4, 30)));
        assert_eq!(to(40, 50, &eager, 100), None, "nothing is new");
        let late = TopicPolicy { max_compaction_lag_ms: 60, ..policy() };
        assert_eq!([90, 91].map(|now| to(30, 50, &late, now)), [None, Some((4, 30))]);
        let young = TopicPolicy { min_compaction_lag_ms: 85, ..policy() };
        assert_eq!(to(0, 50, &young, 100), Some((2, 0)), "the third is 80 old");
        assert_eq!(to(0, 50, &TopicPolicy { compact: false, ..policy() }, 100), None);
    }

    #[test]
    fn neighbours_become_one_while_they_fit() {
        let all = segments(&[0; 6]);
        let sizes = |max| groups(&all[..5], max).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!([sizes(5), sizes(20), sizes(49), sizes(50)], [vec![1; 5], vec![2, 2, 1], vec![4, 1], vec![5]]);
        let mut wide = segments(&[0, 0, 0]);
        (wide[1].next, wide[2].base, wide[2].next) =
            (i64::from(i32::MAX), i64::from(i32::MAX), i64::from(i32::MAX) + 9);
        assert_eq!(groups(&wide, 100).iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
