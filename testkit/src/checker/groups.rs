//! A group's stored position never moves back.

use std::collections::BTreeMap;

use super::index::Index;
use super::{AnomalyKind, Report};
use crate::history::{Call, Op, Outcome};

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    let mut positions: BTreeMap<(u32, u32), Vec<(&Op, u64)>> = BTreeMap::new();
    for op in index.history.ops.iter().filter(|op| op.outcome == Outcome::Ok) {
        if let Call::CommitOffset { group, partition, offset } | Call::FetchOffset { group, partition, offset } =
            op.call
        {
            positions.entry((group, partition)).or_default().push((op, offset));
        }
    }
    for ((group, partition), ended) in positions {
        // The calls are in the order of their ends already.
        let mut started = ended.clone();
        started.sort_by_key(|(op, _)| op.start);
        let (mut next, mut highest) = (0, None::<(&Op, u64)>);
        for (op, offset) in started {
            while let Some(&(before, position)) = ended.get(next).filter(|(before, _)| before.end < op.start) {
                if highest.is_none_or(|(_, high)| position > high) {
                    highest = Some((before, position));
                }
                next += 1;
            }
            if let Some((before, high)) = highest.filter(|(_, high)| *high > offset) {
                report.add(AnomalyKind::OffsetRegress, None, || {
                    let at = format!("group {group} in partition {partition}");
                    format!("{at} stood at {high} by {}, and at {offset} from {} on", before.end, op.start)
                });
            }
        }
    }
}
