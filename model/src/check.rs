//! What must hold: in every state, when a manifest gets its name, when something is committed, and at the end.

use std::collections::BTreeMap;

use cutwater_engine::snapshot::ManifestName;

use crate::config::{Config, Rec, Role};
use crate::instance::positions;
use crate::log::{Phase as TxnPhase, TxnId};
use crate::search::Violation;
use crate::store::{Body, Store, Unsynced};
use crate::world::{World, load_chain};

const CUT: &str = "I-4: a checkpoint is the effect of exactly the records before its barrier";
const WHOLE: &str = "I-1: readers see whole checkpoints, each record once";
const MANIFEST: &str = "I-5: a manifest names only what is there, one part per instance";
const PERMIT: &str = "I-6: nothing commits before its manifest is durable";
const OUTCOME: &str = "I-6: what a manifest lists commits in the end";
const FENCE: &str = "I-7: at most one attempt can write";
const ENDS: &str = "a finished job has committed everything";

/// A record without what the counting operator said: (split, offset, via).
type Plain = (u8, u8, u8);

/// Judges by a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// What is searched.
    pub config: &'a Config,
}

impl Judge<'_> {
    /// After a step that changed the store or the log.
    pub fn state(&self, world: &World) -> Result<(), Violation> {
        self.visible(world)?;
        let store: &Store = &world.store;
        for name in store.timeline() {
            let body = &store.manifests[&name];
            if let Some(gone) = body.files().iter().find(|file| !store.files.contains_key(*file)) {
                return broken(MANIFEST, format!("manifest {name} names {gone}, which is gone"));
            }
            for id in body.transactions() {
                match world.log.txns.get(&id).map(|txn| txn.phase) {
                    None => {
                        return broken(OUTCOME, format!("manifest {name} lists {id:?}, which the log has forgotten"));
                    }
                    Some(TxnPhase::Aborted) => {
                        return broken(OUTCOME, format!("manifest {name} lists {id:?}, which is aborted"));
                    }
                    Some(TxnPhase::Prepared | TxnPhase::Committed) => {}
                }
            }
        }
        Ok(())
    }

    /// What readers see is nothing, or what some manifest in the store stands for; per split, key and way it is in order; and counts
    /// rise by one.
    fn visible(&self, world: &World) -> Result<(), Violation> {
        let visible = &world.log.visible;
        if visible.values().all(Vec::is_empty) {
            return Ok(());
        }
        let whole = |body: &Body| self.is_effect_of(visible, &positions(&body.snapshots, self.splits()));
        if !world.store.manifests.values().any(|body| whole(body)) {
            return broken(WHOLE, format!("no checkpoint in the store is what is visible: {visible:?}"));
        }
        for (sink, records) in visible {
            let mut last: BTreeMap<(u8, u8, u8), u8> = BTreeMap::new();
            let mut counts: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            for record in records {
                let way = (record.split, record.group, record.via);
                if last.insert(way, record.offset).is_some_and(|before| before >= record.offset) {
                    return broken(WHOLE, format!("sink {sink} has records out of order: {records:?}"));
                }
                if record.count > 0 {
                    counts.entry(record.group).or_default().push(record.count);
                }
            }
            for (group, mut counts) in counts {
                counts.sort_unstable();
                counts.dedup();
                if counts.iter().zip(1u8..).any(|(found, expected)| *found != expected) {
                    return broken(CUT, format!("key group {group} was counted {counts:?} at sink {sink}"));
                }
            }
        }
        Ok(())
    }

    /// When a manifest has got its name. `is_newest`: by the newest attempt; what an older one publishes late may never count.
    pub fn named(&self, world: &World, name: ManifestName, is_newest: bool) -> Result<(), Violation> {
        let body = &world.store.manifests[&name];
        if let Err(what) = body.verify(name, self.config.graph.roles.len()) {
            return broken(MANIFEST, what);
        }
        if !is_newest {
            return Ok(());
        }
        let at = positions(&body.snapshots, self.splits());
        self.state_is_effect_of(&world.store, body, &at)?;
        // What is visible, and what manifests list and isn't visible yet.
        let mut covered = world.log.visible.clone();
        let ids = world.store.timeline();
        let ids = ids.iter().filter(|m| **m <= name).flat_map(|m| world.store.manifests[m].transactions());
        for id in ids {
            if let Some(txn) = world.log.txns.get(&id).filter(|txn| txn.phase == TxnPhase::Prepared) {
                covered.entry(id.sink).or_default().extend(&txn.records);
            }
        }
        match self.is_effect_of(&covered, &at) {
            true => Ok(()),
            false => broken(CUT, format!("manifest {name} stands at {at:?}; committed and listed are {covered:?}")),
        }
    }

    /// When the newest attempt starts from a manifest: state and output are of the same moment.
    pub fn restored(&self, world: &World, base: Option<(ManifestName, &Body)>) -> Result<(), Violation> {
        let at = base.map_or(vec![0; self.splits()], |(_, body)| positions(&body.snapshots, self.splits()));
        if !self.is_effect_of(&world.log.visible, &at) {
            let visible = &world.log.visible;
            return broken(WHOLE, format!("an attempt goes on from {at:?}, but readers see {visible:?}"));
        }
        match base {
            Some((_, body)) => self.state_is_effect_of(&world.store, body, &at),
            None => Ok(()),
        }
    }

    /// Before transactions are committed.
    pub fn may_commit(&self, world: &World, life: usize, ids: &[TxnId]) -> Result<(), Violation> {
        let store: &Store = &world.store;
        for id in ids {
            let lists = |body: &Body| body.transactions().contains(id);
            let durable = |name: &ManifestName| !store.unsynced.contains(&Unsynced::Manifest(*name));
            if !store.manifests.iter().any(|(name, body)| durable(name) && lists(body)) {
                return broken(PERMIT, format!("{id:?} commits, but no durable manifest lists it"));
            }
        }
        self.may_write(world, life, "commits")
    }

    /// When the log has taken a write: no newer attempt may have fenced.
    pub fn may_write(&self, world: &World, life: usize, what: &str) -> Result<(), Violation> {
        match world.lives.iter().skip(life + 1).any(|newer| newer.has_fenced) {
            true => broken(FENCE, format!("attempt {} {what} after a newer one has fenced", life + 1)),
            false => Ok(()),
        }
    }

    /// When nothing more can happen.
    pub fn finished(&self, world: &World) -> Result<(), Violation> {
        let all: Vec<u8> = self.config.graph.splits().iter().map(|(_, records)| length(records)).collect();
        if !self.is_effect_of(&world.log.visible, &all) {
            return broken(ENDS, format!("readers see {:?}", world.log.visible));
        }
        if let Some((id, _)) = world.log.txns.iter().find(|(_, txn)| txn.phase == TxnPhase::Prepared) {
            return broken(ENDS, format!("{id:?} is prepared for ever"));
        }
        let newest = world.store.timeline().last().copied();
        match newest.filter(|name| world.store.manifests[name].is_final && world.store.committed.contains(name)) {
            Some(_) => Ok(()),
            None => broken(ENDS, format!("the newest manifest is {newest:?}, and it isn't final and committed")),
        }
    }

    fn splits(&self) -> usize {
        self.config.graph.splits().len()
    }

    /// Whether the output of each sink is exactly that of the records before these positions.
    fn is_effect_of(&self, output: &BTreeMap<u8, Vec<Rec>>, at: &[u8]) -> bool {
        let sinks = self.config.graph.roles.iter().enumerate().filter(|(_, role)| **role == Role::Sink);
        sinks.into_iter().all(|(sink, _)| {
            let records = output.get(&u8::try_from(sink).expect("few operators")).map_or(&[][..], Vec::as_slice);
            let mut found: Vec<Plain> = records.iter().map(|r| (r.split, r.offset, r.via)).collect();
            found.sort_unstable();
            found == self.expected(sink, at)
        })
    }

    /// What a sink has got of the records before these positions, sorted.
    fn expected(&self, sink: usize, at: &[u8]) -> Vec<Plain> {
        let mut expected = vec![];
        for (index, ((source, _), position)) in (0u8..).zip(self.config.graph.splits().into_iter().zip(at)) {
            for via in self.config.graph.ways(source, sink) {
                expected.extend((0..*position).map(|offset| (index, offset, via)));
            }
        }
        expected.sort_unstable();
        expected
    }

    /// Whether the keyed state that a manifest names is that of the records before these positions.
    fn state_is_effect_of(&self, store: &Store, body: &Body, at: &[u8]) -> Result<(), Violation> {
        for (node, _) in self.config.graph.roles.iter().enumerate().filter(|(_, role)| **role == Role::Count) {
            let mut expected: BTreeMap<u16, u8> = BTreeMap::new();
            for ((source, records), position) in self.config.graph.splits().into_iter().zip(at) {
                let ways = u8::try_from(self.config.graph.ways(source, node).len()).expect("few ways");
                for group in &records[..usize::from(*position)] {
                    *expected.entry(*group).or_default() += ways;
                }
            }
            let mut found = BTreeMap::new();
            for part in body.snapshots.iter().filter(|part| part.instance.operator.0 as usize == node) {
                let Some(counts) = load_chain(store, part) else {
                    return broken(MANIFEST, format!("a state file of {} is gone", part.instance));
                };
                found.extend(counts);
            }
            if found != expected {
                return broken(CUT, format!("at {at:?} operator {node} has {found:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }
}

fn length(records: &[u16]) -> u8 {
    u8::try_from(records.len()).expect("few records")
}

fn broken<T>(promise: &'static str, found: String) -> Result<T, Violation> {
    Err(Violation { promise, found })
}
