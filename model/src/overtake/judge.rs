//! What is demanded of a complete checkpoint: state, committed output and what follows from the records in flight are together the effect
//! of exactly the records read (I-4), and output is in order (I-1).

use std::collections::BTreeMap;

use cutwater_engine::id::CheckpointId;

use super::{CUT, ORDER, Overtaking, World, broken};
use crate::config::{Rec, Role};
use crate::search::Violation;

impl Overtaking {
    pub(super) fn positions(&self, world: &World) -> Vec<u8> {
        let mut at = vec![0; self.graph.splits().len()];
        let parts = world.complete.iter().flat_map(|complete| complete.parts.values());
        parts.flat_map(|part| &part.read).for_each(|(split, read)| at[usize::from(*split)] = *read);
        at
    }

    /// The newest checkpoint against the definition.
    pub(super) fn check(&self, world: &World) -> Result<(), Violation> {
        let complete = world.complete.as_ref().expect("just completed");
        let at = self.positions(world);
        // What follows from the records in flight, operator by operator.
        let mut arriving: Vec<Vec<Rec>> = vec![vec![]; self.graph.roles.len()];
        for ((node, _), part) in &complete.parts {
            arriving[*node].extend(part.in_flight.iter().map(|(_, record)| *record));
        }
        for node in 0..arriving.len() {
            let role = &self.graph.roles[node];
            let mut counts: BTreeMap<u8, u8> = BTreeMap::new();
            let parts = complete.parts.iter().filter(|((n, _), _)| *n == node);
            parts.for_each(|(_, part)| part.counts.iter().for_each(|(g, c)| *counts.entry(*g).or_default() += c));
            for record in std::mem::take(&mut arriving[node]) {
                match role {
                    Role::Sink => arriving[node].push(record),
                    Role::Count => *counts.entry(record.group).or_default() += 1,
                    Role::Pass | Role::Source(_) => {}
                }
                for (_, edge) in self.graph.outputs(node) {
                    arriving[edge.to].push(Rec { via: record.via | 1 << node, ..record });
                }
            }
            if *role == Role::Count {
                let mut expected: BTreeMap<u8, u8> = BTreeMap::new();
                for ((source, records), read) in self.graph.splits().into_iter().zip(&at) {
                    let ways = u8::try_from(self.graph.ways(source, node).len()).expect("few ways");
                    for group in &records[..usize::from(*read)] {
                        *expected.entry(u8::try_from(*group).expect("few groups")).or_default() += ways;
                    }
                }
                if counts != expected {
                    return broken(
                        CUT,
                        format!("at {at:?} operator {node} comes to {counts:?} instead of {expected:?}"),
                    );
                }
            }
            if *role == Role::Sink {
                let mut found = visible(world, node, complete.number)?;
                found.extend(arriving[node].iter().map(|r| (r.split, r.offset, r.via)));
                found.sort_unstable();
                if found != self.expected(node, &at) {
                    return broken(CUT, format!("at {at:?} sink {node} comes to {found:?}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn expected(&self, sink: usize, at: &[u8]) -> Vec<(u8, u8, u8)> {
        let mut expected = vec![];
        for (index, ((source, _), read)) in (0u8..).zip(self.graph.splits().into_iter().zip(at)) {
            for via in self.graph.ways(source, sink) {
                expected.extend((0..*read).map(|offset| (index, offset, via)));
            }
        }
        expected.sort_unstable();
        expected
    }
}

/// What a sink shows of checkpoints up to this one, as (split, offset, via); in order per split, key group and way.
pub(super) fn visible(world: &World, sink: usize, number: CheckpointId) -> Result<Vec<(u8, u8, u8)>, Violation> {
    let mut found = vec![];
    for ((_, split, group, via), written) in world.log.iter().filter(|((node, ..), _)| *node == sink) {
        let offsets: Vec<u8> = written.iter().filter(|(_, n)| *n <= number).map(|(offset, _)| *offset).collect();
        if !offsets.is_sorted_by(|one, next| one < next) {
            return broken(ORDER, format!("sink {sink} shows records {offsets:?} of split {split}, key group {group}"));
        }
        found.extend(offsets.into_iter().map(|offset| (*split, offset, *via)));
    }
    Ok(found)
}
