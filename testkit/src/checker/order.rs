//! A process's values stand in a partition in the order in which it sent them, and polls list ascending offsets.

use std::collections::HashMap;

use super::index::Index;
use super::{AnomalyKind, Report};
use crate::history::Value;

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    for (number, partition) in &index.partitions {
        let mut last: HashMap<u16, (u64, Value)> = HashMap::new();
        for &(offset, value) in partition.known.iter().filter(|(_, v)| !index.explained.contains(v)) {
            match last.get(&value.process()) {
                Some(&(before, earlier)) if earlier > value => {
                    report.add(AnomalyKind::Reordered, Some(value), || {
                        let at = format!("offset {offset} of partition {number}");
                        format!("{value:?} stands at {at} behind {earlier:?} at {before}, which was sent later")
                    });
                }
                _ => _ = last.insert(value.process(), (offset, value)),
            }
        }
        for poll in &partition.polls {
            let outside = |offset: u64| offset < poll.from || offset >= poll.next;
            let bad = poll.records.windows(2).find(|w| w[0].0 >= w[1].0).map(|w| w[1]);
            if let Some((offset, value)) = bad.or(poll.records.iter().find(|(o, _)| outside(*o)).copied()) {
                report.add(AnomalyKind::Reordered, Some(value), || {
                    let range = format!("{}..{} of partition {number}", poll.from, poll.next);
                    format!(
                        "process {} was given {value:?} at offset {offset} out of order in {range}",
                        poll.op.process
                    )
                });
            }
        }
    }
}
