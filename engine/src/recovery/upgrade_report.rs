//! The upgrade check for people: a row per thing that a checkpoint or a program keeps, as a table.

use std::fmt;

use crate::recovery::upgrade::Upgrade;

/// What becomes of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeRow {
    /// The operator that keeps it: the program's name, or the checkpoint's if the program doesn't have it.
    pub operator: String,
    /// The name it had in the checkpoint, if that was another.
    pub was: Option<String>,
    /// Which of its things.
    pub part: Part,
    /// What becomes of it.
    pub change: Change,
}

/// What an operator keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A keyed state.
    State(String),
    /// Where the splits of a source stand, and how many there are.
    Splits(usize),
    /// One split of a source.
    Split(String),
    /// Records that were under way to it, overtaken by the barrier of an unaligned checkpoint.
    InFlight,
    /// All it keeps.
    Whole,
}

/// What becomes of a thing that a checkpoint or a program keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It goes on as it is.
    Kept,
    /// It goes on, its values converted.
    Migrated {
        /// The version in the checkpoint.
        from: u32,
        /// The program's.
        to: u32,
    },
    /// The checkpoint doesn't have it; it begins empty.
    New,
    /// The program doesn't have it, and a person has allowed that it goes.
    Dropped,
    /// It is unknown what is meant: nothing runs.
    Refused(Problem),
}

/// Why it is unknown what becomes of a thing, and what to say so that it isn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The program has nothing of this name, and nobody has said that it may go.
    WouldBeDropped {
        /// New things of the same shape: it may have been renamed to one of them.
        candidates: Vec<String>,
    },
    /// Its types aren't those of the program, and no migration is registered from them.
    UnknownSchema {
        /// The fingerprint in the checkpoint.
        found: u64,
        /// The versions that the program knows.
        known: Vec<u32>,
    },
    /// The checkpoint has something under the operator's name and under a name that it had.
    SeveralOrigins {
        /// Those names.
        names: Vec<String>,
    },
    /// Several operators say that they are this one.
    ClaimedTwice {
        /// The others.
        others: Vec<String>,
    },
    /// It was a source and is none, or the other way round.
    OtherRole {
        /// Whether it was a source.
        was_source: bool,
    },
    /// In another graph there is no place for records that were under way.
    InFlight,
    /// It keeps something under a made-up name, and there are several that it may be now.
    UnnamedAmbiguous {
        /// Those.
        candidates: Vec<String>,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::State(name) => write!(f, "state {name}"),
            Part::Splits(1) => f.write_str("1 split"),
            Part::Splits(n) => write!(f, "{n} splits"),
            Part::Split(name) => write!(f, "split {name}"),
            Part::InFlight => f.write_str("records in flight"),
            Part::Whole => f.write_str("all it keeps"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Kept => f.write_str("kept"),
            Change::Migrated { from, to } => write!(f, "migrated from version {from} to {to}"),
            Change::New => f.write_str("new"),
            Change::Dropped => f.write_str("dropped, as allowed"),
            Change::Refused(Problem::WouldBeDropped { .. }) => f.write_str("WOULD BE LOST"),
            Change::Refused(Problem::UnknownSchema { .. }) => f.write_str("OTHER TYPES"),
            Change::Refused(Problem::InFlight) => f.write_str("NO PLACE"),
            Change::Refused(_) => f.write_str("AMBIGUOUS"),
        }
    }
}

/// Names in a sentence.
fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

impl UpgradeRow {
    /// What to do about a row that stands in the way.
    fn way_out(&self) -> Option<String> {
        let Change::Refused(problem) = &self.change else { return None };
        let operator = &self.operator;
        let name = match &self.part {
            Part::State(part) | Part::Split(part) => format!("{operator}/{part}"),
            Part::Splits(_) | Part::InFlight | Part::Whole => operator.clone(),
        };
        let text = match problem {
            Problem::WouldBeDropped { candidates } if candidates.is_empty() => {
                format!("the program doesn't have it. If it may go, say --allow-dropped {name}")
            }
            Problem::WouldBeDropped { candidates } if matches!(self.part, Part::State(_)) && self.was.is_none() => {
                format!(
                    "the program doesn't have it, but {} looks the same. If it was renamed, say .was({operator:?}) there (a \
                     state keeps its name); if it may go, say --allow-dropped {name}",
                    listed(candidates)
                )
            }
            Problem::WouldBeDropped { candidates } => format!(
                "the program doesn't have it, but {} is new. If it was renamed, say .was({operator:?}) there; if it may go, \
                 say --allow-dropped {name}",
                listed(candidates)
            ),
            Problem::UnknownSchema { found, known } => {
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                format!(
                    "it was written with schema {found:016x}, and the program knows those of version {} only. Register a \
                     migration from the old type (.migrate(..)), go on with the old program, or drop it: give the operator \
                     another name and say --allow-dropped {operator}",
                    known.join(", ")
                )
            }
            Problem::SeveralOrigins { names } => {
                format!(
                    "the checkpoint holds {}, and the program says that it was all of them. Take .was(..) away",
                    listed(names)
                )
            }
            Problem::ClaimedTwice { others } => {
                format!("{} says so too. Only one can have been it: take .was(..) away", listed(others))
            }
            Problem::OtherRole { was_source: true } => {
                "it was a source, and is none now. Give the new operator another name".to_owned()
            }
            Problem::OtherRole { was_source: false } => {
                "it is a source now, and was none. Give the source another name".to_owned()
            }
            Problem::InFlight => {
                "the checkpoint's barriers overtook them, and in another graph there is no place for them. Take an aligned one \
                 with the program that made it: start it with aligned checkpoints, and stop it again"
                    .to_owned()
            }
            Problem::UnnamedAmbiguous { candidates } => format!(
                "it may be any of {} now. Say .was({operator:?}) on the right one, or --allow-dropped {operator}",
                listed(candidates)
            ),
        };
        Some(text)
    }
}

/// The table, then what to do about each row that stands in the way.
impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = if self.same_graph { "the same graph" } else { "another graph, so counters begin anew" };
        write!(f, "from checkpoint {} to this program ({graph}):", self.checkpoint)?;
        let name = |row: &UpgradeRow| match &row.was {
            Some(was) => format!("{} (was {was})", row.operator),
            None => row.operator.clone(),
        };
        let names = self.rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
        let parts = self.rows.iter().map(|row| row.part.to_string().chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            write!(f, "\n  {:names$}  {:parts$}  {}", name(row), row.part.to_string(), row.change)?;
        }
        if self.rows.is_empty() {
            f.write_str("\n  neither keeps anything")?;
        }
        for row in self.problems() {
            let way_out = row.way_out().expect("a row that stands in the way");
            write!(f, "\n{}, {}: {way_out}.", row.operator, row.part)?;
        }
        Ok(())
    }
}
