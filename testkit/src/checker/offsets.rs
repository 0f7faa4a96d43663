//! One value, one offset; one offset, one value.

use super::index::Index;
use super::{AnomalyKind, Report};
use crate::history::Value;

pub(crate) fn pass(index: &Index<'_>, report: &mut Report) {
    for pair in index.claims.windows(2) {
        let ((value, p1, o1), (again, p2, o2)) = (pair[0], pair[1]);
        if value == again {
            report.add(AnomalyKind::Duplicated, Some(value), || {
                format!("{value:?} stands at offset {o1} of partition {p1} and at offset {o2} of partition {p2}")
            });
        }
    }
    let mut by_offset: Vec<(u32, u64, Value)> = index.claims.iter().map(|(v, p, o)| (*p, *o, *v)).collect();
    by_offset.sort_unstable();
    for pair in by_offset.windows(2) {
        let ((p, offset, first), (p2, offset2, second)) = (pair[0], pair[1]);
        if (p, offset) == (p2, offset2) {
            report.add(AnomalyKind::InconsistentOffset, Some(second), || {
                format!("offset {offset} of partition {p} holds {first:?} and {second:?}")
            });
        }
    }
}
