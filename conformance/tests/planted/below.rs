//! Sinks below exactly-once with one mistake each: rows of eight bytes in one file, shown as they are written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_conformance::{Conforms, Rule, Violations, sink};
use cutwater_engine::config::GuaranteeKind;
use cutwater_engine::error::SinkError;
use cutwater_engine::graph::Job;
use cutwater_engine::id::CheckpointId;
use cutwater_engine::sink::{CommitGroup, Honours, Prepare, Sink, SinkWriter, WriterId};
use cutwater_platform::{File, Files, Open};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// What came before a barrier is shown behind the next one.
    ShowsLate,
    /// What came before a barrier is shown, and no sync has covered it.
    NotSynced,
    /// It wants a commit of what it shows at once.
    WantsCommit,
    /// What came last is never shown.
    FinishDrops,
}

struct Rows {
    fault: Fault,
    files: Arc<dyn Files>,
    path: PathBuf,
}

struct RowsWriter {
    fault: Fault,
    file: Arc<dyn File>,
    end: u64,
    open: Vec<u8>,
    late: Vec<u8>,
}

fn failed(error: std::io::Error) -> SinkError {
    SinkError::Failed { what: "rows".to_string(), reason: error.to_string() }
}

impl Sink for Rows {
    type Item = u64;

    fn honours(&self) -> Honours {
        let guarantees = vec![GuaranteeKind::AtMostOnce, GuaranteeKind::AtLeastOnce];
        Honours { guarantees, reason: "it shows what it writes".to_string() }
    }

    fn group(&self) -> Option<Arc<dyn CommitGroup>> {
        None
    }

    fn open(&self, _: &WriterId) -> Result<Box<dyn SinkWriter<Item = u64>>, SinkError> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        self.files.create_dir_all(dir).map_err(failed)?;
        let file = self.files.open(&self.path, Open::Create).map_err(failed)?;
        self.files.sync_dir(dir).map_err(failed)?;
        let end = file.len().map_err(failed)?;
        Ok(Box::new(RowsWriter { fault: self.fault, file, end, open: vec![], late: vec![] }))
    }
}

impl RowsWriter {
    fn put(&mut self, rows: &[u8]) -> Result<(), SinkError> {
        self.file.write_all_at(rows, self.end).map_err(failed)?;
        self.end += rows.len() as u64;
        Ok(())
    }
}

impl SinkWriter for RowsWriter {
    type Item = u64;

    fn write(&mut self, batch: Vec<u64>) -> Result<(), SinkError> {
        self.open.extend(batch.into_iter().flat_map(u64::to_le_bytes));
        Ok(())
    }

    fn seal(&mut self, _: CheckpointId) -> Result<Option<Prepare>, SinkError> {
        let mut rows = std::mem::take(&mut self.open);
        if self.fault == Fault::ShowsLate {
            std::mem::swap(&mut rows, &mut self.late);
        }
        self.put(&rows)?;
        let (file, fault) = (self.file.clone(), self.fault);
        Ok(Some(Box::new(move || {
            if fault != Fault::NotSynced {
                file.sync_data().map_err(failed)?;
            }
            Ok((fault == Fault::WantsCommit).then(|| b"rows".to_vec()))
        })))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let rows = std::mem::take(&mut self.open);
        if self.fault != Fault::FinishDrops {
            self.put(&rows)?;
        }
        self.file.sync_data().map_err(failed)
    }
}

fn look_into(fault: Fault) -> Result<Conforms, Violations> {
    let path = |job: &Job| job.environment().dir.join("rows");
    let files = |job: &Job| job.environment().platform.files.clone();
    let rows = move |job: &Job| Rows { fault, files: files(job), path: path(job) };
    let shown = move |job: &Job| {
        let bytes = files(job).read(&path(job), 1 << 20).unwrap_or_default();
        bytes.chunks_exact(8).map(|row| u64::from_le_bytes(row.try_into().expect("eight bytes"))).collect()
    };
    sink(rows, |n| n, shown).run()
}

#[test]
fn a_sink_below_exactly_once_without_a_mistake_passes() {
    let conforms = look_into(Fault::None).unwrap_or_else(|e| panic!("{e}"));
    for rule in [Rule::BarrierMeansDurable, Rule::FinishShows] {
        assert!(conforms.tried.contains(&rule), "{conforms:?}");
    }
}

#[test]
fn every_mistake_of_a_sink_below_exactly_once_is_found_by_its_rule() {
    for (fault, rule) in [
        (Fault::ShowsLate, Rule::BarrierMeansDurable),
        (Fault::NotSynced, Rule::BarrierMeansDurable),
        (Fault::WantsCommit, Rule::BarrierMeansDurable),
        (Fault::FinishDrops, Rule::FinishShows),
    ] {
        let found = look_into(fault).expect_err(&format!("{fault:?} goes unnoticed"));
        assert!(found.breaks(rule), "{fault:?} should break {rule:?}: {found}");
    }
}
