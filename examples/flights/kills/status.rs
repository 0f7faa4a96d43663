//! What a child tells its parent: one JSON object per line on its standard output.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "snake_case")]
pub(crate) enum Status {
    /// Recovery is over; records follow.
    Recovered(Recovered),
    /// So many records of the stream have been read; those since the last checkpoint will be read again after a kill.
    Read { records: u64 },
    /// Everything is committed.
    Finished { report: String },
}

/// What a start found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recovered {
    /// The life of the job that begins.
    pub(crate) attempt: u64,
    /// The checkpoint it goes on from; none at a fresh start.
    pub(crate) checkpoint: Option<u64>,
    /// Transactions of the earlier lives that were found prepared.
    pub(crate) prepared: u64,
    /// Of those, committed now: a manifest lists them.
    pub(crate) committed: u64,
    /// Transactions, open or prepared, aborted now: no manifest lists them.
    pub(crate) aborted: u64,
    /// Phases of the recovery with microseconds, in order.
    pub(crate) phases: Vec<(String, u64)>,
}

impl Status {
    /// Writes the line whole, in one write: a killed child leaves whole lines or nothing.
    pub(crate) fn say(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self).map_err(io::Error::other)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }
}
