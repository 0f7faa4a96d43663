//! Whether a program can go on from a checkpoint that another version of it has made: what is kept, migrated, new, dropped. Pure.
//!
//! The promise: no state is lost in silence and none is handed to the wrong operator. Whatever could be meant in two ways is a
//! [`Problem`], and with one problem nothing runs. The people's ways out are `.was("old-name")` in the program (a rename), a
//! registered migration (other types), and `Options::allow_dropped` (it may go).
//!
//! **Identity.** An operator is its *name*. State is found by operator and state name, splits by source and split name. The
//! number of an operator, its place in the graph, its kind and its inputs are no part of that: stateless steps may come and go.
//! Operators that the user doesn't name have a made-up name, *kind-number*. The few of them that keep something small
//! (`timestamps`) are matched if that can be done in one way only: the graph is the same, the made-up names are the same set,
//! or there is one of the kind then and now.
//!
//! What changes with the graph: counters. They balance edge by edge, and the edges are others; they begin anew.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::StateChain;
use crate::graph::Role;
use crate::id::{CheckpointId, OperatorId};
use crate::recovery::upgrade_report::{Change, Part, Problem, UpgradeRow};
use crate::snapshot::Manifest;
use crate::state::SchemaVersion;

/// What a program is, as far as it matters for going on from a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The fingerprint of its plan.
    pub fingerprint: u64,
    /// Its operators, sources and sinks.
    pub operators: Vec<ProgramOperator>,
}

/// One operator, source or sink of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOperator {
    /// Its number in the program's plan.
    pub id: OperatorId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Names that it had in earlier versions, as said by `.was(..)`.
    pub was: Vec<String>,
    /// Its keyed states.
    pub states: Vec<ProgramState>,
    /// For a source: the splits there are now. `None` if nobody has asked it.
    pub splits: Option<Vec<String>>,
}

/// A keyed state of a program's operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramState {
    /// Its name within the operator.
    pub name: String,
    /// What it is now.
    pub schema: SchemaVersion,
    /// What it can be migrated from.
    pub older: Vec<SchemaVersion>,
}

/// What becomes of a checkpoint's contents in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Whether the graph is the one that made it; then counters go on.
    pub same_graph: bool,
    /// One row per state, set of splits, and other kept thing.
    pub rows: Vec<UpgradeRow>,
    /// For each operator of the program the one of the checkpoint whose state it takes.
    pub(crate) origins: BTreeMap<OperatorId, OperatorId>,
    /// Splits that aren't there any more and may be forgotten, by source.
    pub(crate) forgotten_splits: BTreeSet<(OperatorId, String)>,
}

impl Upgrade {
    /// The operator of the checkpoint whose state this operator takes.
    pub fn origin(&self, operator: OperatorId) -> Option<OperatorId> {
        self.origins.get(&operator).copied()
    }

    /// The rows that stand in the way; nothing runs while there is one.
    pub fn problems(&self) -> impl Iterator<Item = &UpgradeRow> {
        self.rows.iter().filter(|row| matches!(row.change, Change::Refused(_)))
    }

    /// Whether a person may want to know about it: something is migrated, dropped or new.
    pub fn changes_something(&self) -> bool {
        self.rows.iter().any(|row| row.change != Change::Kept || row.was.is_some())
    }
}

/// One operator of a checkpoint that has something to give.
struct Then<'a> {
    id: OperatorId,
    name: &'a str,
    /// Name and schema of each keyed state.
    states: BTreeMap<&'a str, u64>,
    /// Names of small state.
    small: BTreeSet<&'a str>,
    /// The small state is where the splits of a source stood.
    is_source: bool,
}

impl<'a> Then<'a> {
    fn all(manifest: &'a Manifest) -> Vec<Then<'a>> {
        let mut all: BTreeMap<OperatorId, Then<'a>> = BTreeMap::new();
        let names: BTreeMap<OperatorId, &str> =
            manifest.plan.operators.iter().map(|operator| (operator.id, operator.name.as_str())).collect();
        for snapshot in &manifest.snapshots {
            let id = snapshot.instance.operator;
            let Some(name) = names.get(&id) else { continue };
            let then = all.entry(id).or_insert_with(|| Then {
                id,
                name,
                states: BTreeMap::new(),
                small: BTreeSet::new(),
                is_source: true,
            });
            let keyed = snapshot.chains.iter().filter(|chain| !is_in_flight(chain));
            then.states.extend(keyed.map(|chain| (chain.name.as_str(), chain.schema)));
            then.small.extend(snapshot.blobs.iter().map(|blob| blob.name.as_str()));
            then.is_source &=
                snapshot.chains.iter().all(is_in_flight) && snapshot.blobs.iter().all(crate::source::is_split);
        }
        let keeps = |then: &Then<'_>| !then.states.is_empty() || !then.small.is_empty();
        all.into_values().filter(keeps).collect()
    }

    /// The kind in a made-up name.
    fn made_up(&self) -> Option<&'a str> {
        made_up(self.name, self.id)
    }
}

/// Whether a chain holds records that a barrier overtook; no state of an operator can have such a name.
pub(crate) fn is_in_flight(chain: &StateChain) -> bool {
    chain.name.starts_with('+')
}

/// The kind in a name that was made up for operator `id`.
fn made_up(name: &str, id: OperatorId) -> Option<&str> {
    let (kind, number) = name.rsplit_once('-')?;
    (number == id.0.to_string()).then_some(kind)
}

/// Compares a program with a checkpoint. `allowed` are the names of what may be dropped: an operator's, or
/// `operator/state`, or `source/split`.
pub fn compare(manifest: &Manifest, program: &Program, allowed: &BTreeSet<String>) -> Upgrade {
    let same_graph = manifest.plan.fingerprint == program.fingerprint;
    let then = Then::all(manifest);
    let mut upgrade = Upgrade {
        checkpoint: manifest.checkpoint,
        same_graph,
        rows: vec![],
        origins: BTreeMap::new(),
        forgotten_splits: BTreeSet::new(),
    };
    if same_graph {
        upgrade.origins = program.operators.iter().map(|operator| (operator.id, operator.id)).collect();
    } else {
        for operator in &manifest.plan.operators {
            let parts = manifest.snapshots.iter().filter(|snapshot| snapshot.instance.operator == operator.id);
            if parts.flat_map(|snapshot| &snapshot.chains).any(is_in_flight) {
                upgrade.refuse(&operator.name, Part::InFlight, Problem::InFlight);
            }
        }
        match_names(&mut upgrade, &then, program);
        match_made_up(&mut upgrade, &then, program);
    }
    let taken: BTreeSet<OperatorId> = upgrade.origins.values().copied().collect();
    for now in &program.operators {
        let from = upgrade.origins.get(&now.id).and_then(|origin| then.iter().find(|then| then.id == *origin));
        describe(&mut upgrade, now, from, allowed);
    }
    let newcomers: Vec<&ProgramOperator> =
        program.operators.iter().filter(|now| !upgrade.origins.contains_key(&now.id)).collect();
    for gone in then.iter().filter(|then| !taken.contains(&then.id)) {
        drop_operator(&mut upgrade, gone, &newcomers, allowed);
    }
    upgrade
}

/// By name, and by the names that operators had.
fn match_names(upgrade: &mut Upgrade, then: &[Then<'_>], program: &Program) {
    let named = |name: &str| then.iter().find(|then| then.name == name);
    let mut claims: BTreeMap<OperatorId, Vec<&ProgramOperator>> = BTreeMap::new();
    for now in &program.operators {
        // A made-up name says nothing about who it was in another graph.
        let own = named(&now.name).filter(|then| then.made_up().is_none() || made_up(&now.name, now.id).is_none());
        let before: Vec<&Then<'_>> = now.was.iter().filter_map(|name| named(name)).collect();
        let candidates: Vec<&Then<'_>> = own.into_iter().chain(before).collect();
        match candidates[..] {
            [] => {}
            [one] => claims.entry(one.id).or_default().push(now),
            [first, ..] => {
                let names = candidates.iter().map(|then| then.name.to_owned()).collect();
                upgrade.refuse(&now.name, Part::Whole, Problem::SeveralOrigins { names });
                upgrade.origins.insert(now.id, first.id);
            }
        }
    }
    for (origin, claimants) in claims {
        if let [one] = claimants[..] {
            upgrade.origins.insert(one.id, origin);
            continue;
        }
        for now in &claimants {
            let others = claimants.iter().filter(|other| other.id != now.id).map(|other| other.name.clone()).collect();
            upgrade.refuse(&now.name, Part::Whole, Problem::ClaimedTwice { others });
            upgrade.origins.insert(now.id, origin);
        }
    }
}

/// What keeps something under a made-up name.
fn match_made_up(upgrade: &mut Upgrade, then: &[Then<'_>], program: &Program) {
    let taken: BTreeSet<OperatorId> = upgrade.origins.values().copied().collect();
    let left: Vec<&Then<'_>> = then.iter().filter(|then| !taken.contains(&then.id)).collect();
    let kinds: BTreeSet<&str> = left.iter().filter_map(|then| then.made_up()).collect();
    for kind in kinds {
        let before: Vec<&Then<'_>> = left.iter().copied().filter(|then| then.made_up() == Some(kind)).collect();
        let now: Vec<&ProgramOperator> = program
            .operators
            .iter()
            .filter(|now| made_up(&now.name, now.id) == Some(kind) && !upgrade.origins.contains_key(&now.id))
            .collect();
        let names = |then: &[&Then<'_>]| then.iter().map(|t| t.name.to_owned()).collect::<BTreeSet<_>>();
        let same_names = names(&before) == now.iter().map(|now| now.name.clone()).collect();
        if same_names || (before.len() == 1 && now.len() == 1) {
            for (before, now) in before.iter().zip(&now) {
                upgrade.origins.insert(now.id, before.id);
            }
        } else if !now.is_empty() {
            for then in before {
                let candidates = now.iter().map(|now| now.name.clone()).collect();
                upgrade.refuse(then.name, Part::Whole, Problem::UnnamedAmbiguous { candidates });
            }
        }
    }
}

/// The rows of an operator of the program, which takes what `from` had.
fn describe(upgrade: &mut Upgrade, now: &ProgramOperator, from: Option<&Then<'_>>, allowed: &BTreeSet<String>) {
    let was = from.filter(|from| from.name != now.name).map(|from| from.name.to_owned());
    let row = |part: Part, change: Change| UpgradeRow { operator: now.name.clone(), was: was.clone(), part, change };
    let Some(from) = from else {
        if now.role == Role::Source {
            upgrade.rows.push(row(Part::Splits(now.splits.as_ref().map_or(0, Vec::len)), Change::New));
        }
        upgrade.rows.extend(now.states.iter().map(|state| row(Part::State(state.name.clone()), Change::New)));
        return;
    };
    if from.is_source != (now.role == Role::Source) {
        let problem = Problem::OtherRole { was_source: from.is_source };
        upgrade.rows.push(row(Part::Whole, Change::Refused(problem)));
        return;
    }
    for state in &now.states {
        let change = from.states.get(state.name.as_str()).map_or(Change::New, |found| state.change_from(*found));
        upgrade.rows.push(row(Part::State(state.name.clone()), change));
    }
    let is_gone = |name: &str| !now.states.iter().any(|state| state.name == name);
    for (name, schema) in from.states.iter().filter(|(name, _)| is_gone(name)) {
        let fits = |state: &&ProgramState| !from.states.contains_key(state.name.as_str()) && state.can_be(*schema);
        let candidates: Vec<String> = now.states.iter().filter(fits).map(|state| state.name.clone()).collect();
        let change = dropped(allowed, &[from.name, &now.name], Some(name), candidates);
        upgrade.rows.push(row(Part::State((*name).to_owned()), change));
    }
    if !from.is_source {
        if from.states.is_empty() {
            upgrade.rows.push(row(Part::Whole, Change::Kept));
        }
        return;
    }
    upgrade.rows.push(row(Part::Splits(from.small.len()), Change::Kept));
    let is_gone = |split: &str| now.splits.as_ref().is_some_and(|now| !now.iter().any(|other| other == split));
    for split in from.small.iter().filter(|split| is_gone(split)) {
        let change = dropped(allowed, &[from.name, &now.name], Some(split), vec![]);
        if change == Change::Dropped {
            upgrade.forgotten_splits.insert((now.id, (*split).to_owned()));
        }
        upgrade.rows.push(row(Part::Split((*split).to_owned()), change));
    }
}

/// The rows of an operator of the checkpoint that the program doesn't have.
fn drop_operator(upgrade: &mut Upgrade, gone: &Then<'_>, newcomers: &[&ProgramOperator], allowed: &BTreeSet<String>) {
    if upgrade.rows.iter().any(|row| row.operator == gone.name && row.part == Part::Whole) {
        // It has been refused already, with a better reason.
        return;
    }
    let looks_like = |now: &&&ProgramOperator| match gone.is_source {
        true => now.role == Role::Source,
        false => {
            let fits = |(name, schema): (&&str, &u64)| {
                now.states.iter().any(|state| state.name == **name && state.can_be(*schema))
            };
            !gone.states.is_empty() && gone.states.iter().all(fits)
        }
    };
    let candidates: Vec<String> = newcomers.iter().filter(looks_like).map(|now| now.name.clone()).collect();
    let mut row = |part: Part, name: Option<&str>| {
        let change = dropped(allowed, &[gone.name], name, candidates.clone());
        upgrade.rows.push(UpgradeRow { operator: gone.name.to_owned(), was: None, part, change });
    };
    gone.states.keys().for_each(|name| row(Part::State((*name).to_owned()), Some(name)));
    if gone.is_source {
        row(Part::Splits(gone.small.len()), None);
    } else if gone.states.is_empty() {
        row(Part::Whole, None);
    }
}

/// Dropped if a person has allowed it, refused otherwise.
fn dropped(allowed: &BTreeSet<String>, operators: &[&str], part: Option<&str>, candidates: Vec<String>) -> Change {
    let names = |operator: &&str| {
        allowed.contains(*operator) || part.is_some_and(|part| allowed.contains(&format!("{operator}/{part}")))
    };
    match operators.iter().any(names) {
        true => Change::Dropped,
        false => Change::Refused(Problem::WouldBeDropped { candidates }),
    }
}

impl ProgramState {
    /// What becomes of entries that were written with this schema.
    fn change_from(&self, found: u64) -> Change {
        if self.schema.fingerprint == found {
            return Change::Kept;
        }
        match self.older.iter().find(|older| older.fingerprint == found) {
            Some(older) => Change::Migrated { from: older.version, to: self.schema.version },
            None => Change::Refused(Problem::UnknownSchema {
                found,
                known: self.older.iter().chain([&self.schema]).map(|schema| schema.version).collect(),
            }),
        }
    }

    /// Whether what was written with this schema can be read as this state.
    fn can_be(&self, schema: u64) -> bool {
        self.schema.fingerprint == schema || self.older.iter().any(|older| older.fingerprint == schema)
    }
}

impl Upgrade {
    fn refuse(&mut self, operator: &str, part: Part, problem: Problem) {
        let change = Change::Refused(problem);
        self.rows.push(UpgradeRow { operator: operator.to_owned(), was: None, part, change });
    }
}

#[cfg(test)]
#[path = "upgrade_tests.rs"]
mod tests;
