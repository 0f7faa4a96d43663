//! What retention takes away of a partition: whole segments, from the front. Pure.
//!
//! Kafka's rules (KIP-71 and before): a segment goes once its *youngest* record is older than `retention.ms`; and the front goes
//! while what is left still has `retention.bytes`. Never the active segment, never one that reaches the last stable offset: what
//! an open or prepared transaction holds back stays, and so do its records. (Kafka would take them; then a transaction can
//! commit of which the data is gone.)
//!
//! One young record keeps its segment and everything behind it, a time in the future does so for as long as it lies there; and
//! a segment without times goes by the time of its file, if that is known.

use crate::policy::TopicPolicy;

/// A segment, as retention sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    pub(crate) base: i64,
    /// One above its last offset.
    pub(crate) next: i64,
    pub(crate) bytes: u64,
    /// The time of its first batch, and the largest of all; or that of its file.
    pub(crate) first_ms: Option<i64>,
    pub(crate) largest_ms: Option<i64>,
    pub(crate) is_active: bool,
}

/// Where the partition shall begin, if further on than with the first of these segments. They are all there are, in order.
pub(crate) fn retain_from(segments: &[SegmentFacts], policy: &TopicPolicy, last_stable: i64, now: i64) -> Option<i64> {
    if !policy.delete {
        return None;
    }
    let may_go = |segment: &&SegmentFacts| !segment.is_active && segment.next <= last_stable;
    let mut gone = 0;
    if let Some(keep) = policy.retention_bytes {
        let mut left: u64 = segments.iter().map(|segment| segment.bytes).sum();
        while let Some(segment) = segments.get(gone).filter(may_go).filter(|s| left - s.bytes >= keep) {
            left -= segment.bytes;
            gone += 1;
        }
    }
    if let Some(keep_ms) = policy.retention_ms {
        let is_old = |segment: &&SegmentFacts| segment.largest_ms.is_some_and(|ms| now.saturating_sub(ms) > keep_ms);
        while segments.get(gone).filter(may_go).filter(is_old).is_some() {
            gone += 1;
        }
    }
    segments.get(gone.checked_sub(1)?).map(|segment| segment.next)
}

/// Whether the active segment shall be sealed although it isn't full: it is too old to be written to, or all of it is due to
/// go, which only a sealed one can.
pub(crate) fn must_seal(active: &SegmentFacts, policy: &TopicPolicy, now: i64) -> bool {
    let older = |ms: Option<i64>, than: Option<i64>| {
        ms.is_some_and(|ms| than.is_some_and(|than| now.saturating_sub(ms) > than))
    };
    active.bytes > 0
        && (older(active.first_ms, policy.segment_ms)
            || (policy.delete && older(active.largest_ms, policy.retention_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten offsets each, of these sizes and largest times; the last one is active.
    fn segments(of: &[(u64, Option<i64>)]) -> Vec<SegmentFacts> {
        let last = of.len() - 1;
        let one = |(n, (bytes, time)): (usize, &(u64, Option<i64>))| SegmentFacts {
            base: n as i64 * 10,
            next: n as i64 * 10 + 10,
            bytes: *bytes,
            first_ms: *time,
            largest_ms: *time,
            is_active: n == last,
        };
        of.iter().enumerate().map(one).collect()
    }

    fn keep(ms: Option<i64>, bytes: Option<u64>) -> TopicPolicy {
        TopicPolicy { retention_ms: ms, retention_bytes: bytes, ..TopicPolicy::default() }
    }

    #[test]
    fn a_segment_goes_by_its_youngest_record_and_one_that_stays_keeps_all_behind_it() {
        let all = segments(&[(5, Some(100)), (5, Some(300)), (5, Some(150)), (5, Some(400))]);
        let from = |now| retain_from(&all, &keep(Some(100), None), 40, now);
        assert_eq!([200, 201, 400, 401, 9_000].map(from), [None, Some(10), Some(10), Some(30), Some(30)]);
        assert_eq!(retain_from(&all, &keep(None, None), 40, i64::MAX), None);
        assert_eq!(retain_from(&all, &TopicPolicy { delete: false, ..keep(Some(0), Some(0)) }, 40, i64::MAX), None);
    }

    #[test]
    fn the_front_goes_while_enough_is_left_and_never_the_active_segment() {
        let all = segments(&[(10, None), (20, None), (30, None), (40, None)]);
        let from = |bytes| retain_from(&all, &keep(None, Some(bytes)), 40, 0);
        assert_eq!(
            [100, 91, 90, 71, 70, 69, 40, 39, 0].map(from).map(|o| o.unwrap_or(0)),
            [0, 0, 10, 10, 20, 20, 30, 30, 30]
        );
    }

    #[test]
    fn what_a_transaction_holds_back_stays_whatever_its_age_and_size() {
        let all = segments(&[(10, Some(1)), (10, Some(1)), (10, Some(1))]);
        for (stable, expected) in [(0, None), (9, None), (10, Some(10)), (19, Some(10)), (20, Some(20)), (30, Some(20))]
        {
            assert_eq!(retain_from(&all, &keep(Some(1), None), stable, 1_000), expected, "{stable}");
            assert_eq!(retain_from(&all, &keep(None, Some(0)), stable, 1_000), expected, "{stable}");
        }
    }

    #[test]
    fn a_time_in_the_future_keeps_its_segment_and_one_without_times_is_not_guessed_at() {
        let all = segments(&[(10, Some(i64::MAX)), (10, Some(1)), (10, Some(1))]);
        assert_eq!(retain_from(&all, &keep(Some(1), None), 30, 1_000), None);
        assert_eq!(
            retain_from(&all, &keep(Some(1), Some(20)), 30, 1_000),
            Some(20),
            "its size takes it, then time the next"
        );
        let all = segments(&[(10, None), (10, Some(1))]);
        assert_eq!(retain_from(&all, &keep(Some(1), None), 30, 1_000), None);
    }

    /// Every small partition: the same as trying each number of segments by the words of the rules.
    #[test]
    fn it_takes_exactly_what_the_rules_say_for_every_small_partition() {
        let times = [None, Some(0), Some(50)];
        for case in 0..3usize.pow(3) * 2usize.pow(3) * 4 * 3 * 3 {
            let mut rest = case;
            let mut take = |n: usize| {
                let digit = rest % n;
                rest /= n;
                digit
            };
            let of: Vec<(u64, Option<i64>)> = (0..3).map(|_| (1 + take(2) as u64, times[take(3)])).collect();
            let (stable, bytes, ms) =
                (take(4) as i64 * 10, [None, Some(2), Some(3)][take(3)], [None, Some(10), Some(80)][take(3)]);
            let (all, now) = (segments(&of), 70);
            let found = retain_from(&all, &keep(ms, bytes), stable, now);
            let old = |s: &SegmentFacts| ms.is_some_and(|ms| s.largest_ms.is_some_and(|largest| now - largest > ms));
            let mut gone = 0;
            for n in 0..2 {
                let left: u64 = of[n + 1..].iter().map(|(bytes, _)| bytes).sum();
                let too_much = bytes.is_some_and(|bytes| left >= bytes);
                if gone == n && all[n].next <= stable && (too_much || old(&all[n])) {
                    gone = n + 1;
                }
            }
            assert_eq!(
                found,
                (gone > 0).then(|| gone as i64 * 10),
                "{of:?} stable {stable}, bytes {bytes:?}, ms {ms:?}"
            );
        }
    }

    #[test]
    fn the_active_segment_is_sealed_when_it_is_old_or_all_of_it_is_due_and_never_when_empty() {
        let active =
            SegmentFacts { base: 0, next: 9, bytes: 5, first_ms: Some(10), largest_ms: Some(50), is_active: true };
        let aged = TopicPolicy { segment_ms: Some(100), ..TopicPolicy::default() };
        assert_eq!([110, 111].map(|now| must_seal(&active, &aged, now)), [false, true]);
        assert_eq!([150, 151].map(|now| must_seal(&active, &keep(Some(100), None), now)), [false, true]);
        assert!(!must_seal(&SegmentFacts { bytes: 0, ..active }, &aged, 1_000));
        assert!(!must_seal(&active, &TopicPolicy::default(), i64::MAX));
    }
}
