//! Puts the stream into topic `flights`, once: in one transaction, together with a note of what it is.
//!
//! The loader is an owner of its own, apart from the job. A loader that was killed leaves its transaction open; the next one
//! claims the log, which aborts that, and begins again. Afterwards the note in `flights.load` says what the directory holds, so
//! that other flights, or another seed, are refused instead of mixed in.

use std::path::Path;

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{
    ClaimError, Fenced, Holder, Isolation, Log, LogOptions, Offset, OpenError, Owner, OwnerId, TopicId, TxnName,
};
use cutwater_platform::Platform;
use serde::{Deserialize, Serialize};

use crate::delivery::{Delivered, Draw};
use crate::problem::{Kind, Problem};
use crate::table::Table;

/// The loader, as an owner. Fixed, so that the next loader finds what this one left; jobs have random ones.
const LOADER: OwnerId = OwnerId(0x666c_6967_6874_732d_6c6f_6164_6572);
/// Rows in one batch.
const BATCH_ROWS: usize = 500;
/// Bytes fetched at once to find the note.
const FETCH_BYTES: usize = 1 << 16;

/// What has been loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    file_hash: String,
    records: usize,
    seed: u64,
    mangled: usize,
    stragglers: usize,
}

/// Loads the stream unless that was done before; true if it was done now.
pub(crate) fn load(
    platform: &Platform,
    log_dir: &Path,
    table: &Table,
    stream: &[Delivered],
    draw: Draw,
) -> Result<bool, Problem> {
    let holder = Holder { job: "the loader of the flights".to_string(), attempt: 0 };
    let log = Log::open(platform, log_dir, LogOptions { holder, ..LogOptions::default() }).map_err(not_opened)?;
    let note = Note {
        file_hash: table.hash.clone(),
        records: stream.len(),
        seed: draw.seed,
        mangled: draw.mangled,
        stragglers: draw.stragglers,
    };
    let loaded = load_into(&log, platform, table, stream, &note);
    let closed = log.close().map_err(|e| failed(&e));
    let loaded = loaded?;
    closed?;
    Ok(loaded)
}

fn load_into(
    log: &Log,
    platform: &Platform,
    table: &Table,
    stream: &[Delivered],
    note: &Note,
) -> Result<bool, Problem> {
    let flights = log.create_topic_if_absent("flights", 1).map_err(|e| failed(&e))?;
    let notes = log.create_topic_if_absent("flights.load", 1).map_err(|e| failed(&e))?;
    if let Some(found) = first_value(log, notes)? {
        return compare(&found, note).map(|()| false);
    }
    if first_value(log, flights)?.is_some() {
        let what = "topic \"flights\" was filled by another program";
        return Err(Problem::new(Kind::Directory, what, "give another directory with --dir"));
    }
    let owner = claim(log)?;
    let mut txn =
        owner.begin(TxnName { checkpoint: 0, sink: "flights".to_string(), writer: 0 }).map_err(|e| failed(&e))?;
    let now = platform.clock.wall().0;
    for rows in stream.chunks(BATCH_ROWS) {
        let mut batch = BatchBuilder::new(Compression::Lz4);
        for row in rows {
            batch.push(now, None, Some(row.bytes(table)), &[]).map_err(|e| failed(&e))?;
        }
        txn.append(flights, 0, &mut batch).map_err(|e| failed(&e))?;
    }
    let mut batch = BatchBuilder::new(Compression::None);
    let value = serde_json::to_vec(note).map_err(|e| failed(&e))?;
    batch.push(now, None, Some(&value), &[]).map_err(|e| failed(&e))?;
    txn.append(notes, 0, &mut batch).map_err(|e| failed(&e))?;
    txn.commit().map_err(|e| failed(&e))?;
    Ok(true)
}

/// Claims the log for the loader's next attempt; what an earlier one left open is aborted by that.
fn claim(log: &Log) -> Result<Owner, Problem> {
    let mut attempt = 1;
    loop {
        match log.claim(&LOADER, attempt) {
            // The log knows the attempts that have been; nobody else loads, since the directory is locked.
            Err(ClaimError::Fenced(Fenced { current, .. })) => attempt = current + 1,
            other => return other.map_err(|e| failed(&e)),
        }
    }
}

/// The first committed value of a topic.
fn first_value(log: &Log, topic: TopicId) -> Result<Option<Vec<u8>>, Problem> {
    let mut consumer = log.consumer(topic, 0, Offset::ZERO, Isolation::ReadCommitted).map_err(|e| failed(&e))?;
    let end = log.offsets(topic, 0).map_err(|e| failed(&e))?.last_stable;
    let mut value = None;
    while value.is_none() && consumer.position() < end {
        let fetched = consumer.poll(FETCH_BYTES).map_err(|e| failed(&e))?;
        fetched
            .for_each(|record| {
                if value.is_none() {
                    value = Some(record.value.unwrap_or_default().to_vec());
                }
            })
            .map_err(|e| failed(&e))?;
    }
    Ok(value)
}

fn compare(found: &[u8], note: &Note) -> Result<(), Problem> {
    let next = "give another directory with --dir, or the file and the flags it was loaded with";
    let found: Note = serde_json::from_slice(found).map_err(|e| {
        Problem::new(Kind::Directory, format!("the note in topic \"flights.load\" can't be read: {e}"), next)
    })?;
    let differences = [
        (found.file_hash != note.file_hash, "the flights of another file".to_string()),
        (found.seed != note.seed, format!("--seed {}", found.seed)),
        (found.mangled != note.mangled, format!("--mangled {}", found.mangled)),
        (found.stragglers != note.stragglers, format!("--stragglers {}", found.stragglers)),
        (found.records != note.records, format!("{} records instead of {}", found.records, note.records)),
    ];
    match differences.into_iter().find(|(differs, _)| *differs) {
        Some((_, what)) => Err(Problem::new(
            Kind::Directory,
            format!("the directory was loaded with {what}; nothing was changed"),
            next,
        )),
        None => Ok(()),
    }
}

fn not_opened(error: OpenError) -> Problem {
    match error {
        OpenError::Io(_) | OpenError::Limits { .. } => failed(&error),
        OpenError::Held { dir, holder } => {
            let what = format!("{} is held by {holder}; nothing was changed", dir.display());
            Problem::new(
                Kind::Directory,
                what,
                "wait until that process has ended, or stop it, or give another directory with --dir",
            )
        }
        OpenError::Corrupt { .. } => Problem::new(Kind::Failed, error, ""),
        refused => Problem::new(Kind::Directory, refused, ""),
    }
}

fn failed(error: &dyn std::error::Error) -> Problem {
    Problem::new(Kind::Failed, error, "run the same command again; what was committed is kept")
}
