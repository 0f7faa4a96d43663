//! The segment files of all partitions, opened when first needed.
//!
//! The log knows where each partition's files end: as the base image says, and from there on as they are written. At its
//! first use a partition is cut to that end: what lies beyond is left over from a crash and comes again from the
//! write-ahead log. A partition that is never used costs no file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use cutwater_platform::{CrashPoints, Files, IoContext, Platform};

use crate::config::LogLimits;
use crate::core::{AbortedTxn, Effect, State};
use crate::janitor::Floor;
use crate::segment::{LogEnd, OpenFiles, PartitionFiles, SegmentConfig, SegmentError};
use crate::topic::{TopicId, TopicPartition, directory_name};

/// All partitions' files.
#[derive(Debug)]
pub(crate) struct Segments {
    platform_files: Arc<dyn Files>,
    dir: PathBuf,
    open: Arc<OpenFiles>,
    config: SegmentConfig,
    write_back_bytes: u64,
    inner: Mutex<Inner>,
    /// Held while the janitor changes a partition's files: their directory isn't removed meanwhile.
    janitor: Mutex<()>,
}

/// What the base image says of a partition's files.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    end: LogEnd,
    /// What lies below may go, or has gone.
    floor: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Name, and how the files of each partition were when the log was opened, by topic.
    topics: Vec<(String, Vec<Known>)>,
    files: BTreeMap<TopicPartition, Arc<PartitionFiles>>,
    /// Bytes written since the last sync.
    dirty: BTreeMap<TopicPartition, u64>,
    /// Directories of partitions whose topics were deleted. They go when no replay can need them any more.
    doomed: Vec<PathBuf>,
    /// Partitions whose directory may hold names that an earlier, killed life created and never synced.
    doubtful: BTreeSet<TopicPartition>,
}

impl Segments {
    /// The files below `dir` of a log whose base image holds `state`.
    pub(crate) fn new(platform: &Platform, dir: &Path, limits: &LogLimits, state: &State) -> Segments {
        let topics = state.topics.iter().map(|topic| {
            let known = topic.partitions.iter().map(|partition| Known {
                end: LogEnd {
                    next_offset: partition.log_end.cast_signed(),
                    segment_base: partition.segment_base.cast_signed(),
                    segment_position: partition.segment_bytes,
                },
                floor: Floor::of(partition).start,
            });
            (topic.dir.clone(), known.collect())
        });
        // A life that was cut off may have left them.
        let doomed = state
            .topics
            .iter()
            .flat_map(|topic| (0..topic.gone).map(|partition| dir.join(directory_name(&topic.dir, partition))));
        Segments {
            platform_files: platform.files.clone(),
            dir: dir.to_path_buf(),
            open: OpenFiles::new(platform.files.clone(), platform.crash.clone(), limits.open_files_max),
            config: SegmentConfig {
                // Rolls are decided by the core and written in the log; the files take any size the core lets them have.
                segment_bytes: i32::MAX as u64,
                index_interval_bytes: u64::from(limits.index_interval_bytes),
            },
            write_back_bytes: limits.write_back_bytes,
            janitor: Mutex::default(),
            inner: Mutex::new(Inner { topics: topics.collect(), doomed: doomed.collect(), ..Inner::default() }),
        }
    }

    /// The files of a partition of which something has come here.
    pub(crate) fn get(&self, at: TopicPartition) -> Result<Arc<PartitionFiles>, SegmentError> {
        Ok(self.find(at)?.expect("only partitions that exist have files"))
    }

    /// The files of a partition; none while its topic's creation hasn't come here.
    pub(crate) fn find(&self, at: TopicPartition) -> Result<Option<Arc<PartitionFiles>>, SegmentError> {
        let mut inner = self.inner.lock().expect("no panic under the segments' lock");
        if let Some(files) = inner.files.get(&at) {
            return Ok(Some(files.clone()));
        }
        let Some((name, known)) = inner.topics.get(at.topic.0 as usize) else { return Ok(None) };
        let Some(known) = known.get(at.partition as usize).copied() else { return Ok(None) };
        let dir = self.dir.join(directory_name(name, at.partition));
        let files = Arc::new(PartitionFiles::open(self.open.clone(), dir, self.config)?);
        files.truncate_to(known.end)?;
        // A power cut may have brought back what was removed: unlinked names are durable only with their directory.
        files.delete_below(known.floor.cast_signed())?;
        inner.doubtful.insert(at);
        inner.files.insert(at, files.clone());
        Ok(Some(files))
    }

    /// Writes what has become durable into the segments, in one vectored write per partition and segment. Has the
    /// system begin their write-back once enough has gathered, so that no later sync is long. Synced only by
    /// [`Segments::sync_all`].
    ///
    /// After an error for lack of room the same effects may be written `again`: what has been done of them isn't done twice.
    pub(crate) fn write<'a>(
        &self,
        effects: impl IntoIterator<Item = &'a Effect>,
        again: bool,
    ) -> Result<(), SegmentError> {
        let mut by_partition: BTreeMap<TopicPartition, Vec<&Effect>> = BTreeMap::new();
        for effect in effects {
            match effect {
                // These need no disk, so that they were done the first time.
                Effect::Topic { .. } | Effect::Partitions { .. } if again => {}
                Effect::Topic { dir, partitions, .. } => {
                    let known = vec![Known::default(); *partitions as usize];
                    self.lock().topics.push((dir.clone(), known));
                }
                Effect::Partitions { topic, partitions } => {
                    if let Some((_, known)) = self.lock().topics.get_mut(topic.0 as usize) {
                        known.resize(*partitions as usize, Known::default());
                    }
                }
                Effect::TopicDeleted { topic } => {
                    by_partition.retain(|at, _| at.topic != *topic);
                    if !again {
                        self.doom(*topic);
                    }
                }
                Effect::LogStart { .. } => {}
                Effect::Roll { at, .. } | Effect::Batch { at, .. } => by_partition.entry(*at).or_default().push(effect),
            }
        }
        for (at, effects) in by_partition {
            let files = self.get(at)?;
            let written = write_partition(&files, &effects, again)?;
            *self.inner.lock().expect("no panic under the segments' lock").dirty.entry(at).or_default() += written;
            files.start_write_back(self.write_back_bytes)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic under the segments' lock")
    }

    /// Lets go of a topic's files; their directories go later.
    fn doom(&self, topic: TopicId) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.files.retain(|at, _| at.topic != topic);
        inner.dirty.retain(|at, _| at.topic != topic);
        inner.doubtful.retain(|at| at.topic != topic);
        if let Some((name, known)) = inner.topics.get_mut(topic.0 as usize) {
            let partitions = std::mem::take(known).len() as u32;
            let dirs = (0..partitions).map(|partition| self.dir.join(directory_name(name, partition)));
            inner.doomed.extend(dirs);
        }
    }

    /// Removes the directories of deleted topics. Only behind a base image that knows of the deletion: a replay from an older
    /// one writes to them.
    pub(crate) fn remove_doomed(&self, crash: &CrashPoints) -> Result<(), SegmentError> {
        // The janitor may be in one of them: they go next time.
        let Ok(_alone) = self.janitor.try_lock() else { return Ok(()) };
        let doomed = std::mem::take(&mut self.lock().doomed);
        let removed = self.remove_dirs(&doomed, crash);
        if removed.is_err() {
            self.lock().doomed.extend(doomed);
        }
        removed
    }

    fn remove_dirs(&self, doomed: &[PathBuf], crash: &CrashPoints) -> Result<(), SegmentError> {
        let files = &self.platform_files;
        for dir in doomed {
            let entries = match files.read_dir(dir) {
                // Never used, or removed by a life that was cut off then.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                entries => entries.at("list", dir)?,
            };
            for entry in entries {
                let path = dir.join(entry.name);
                files.remove_file(&path).at("remove", &path)?;
                crash.reach("log.topic-file-removed");
            }
            files.remove_dir(dir).at("remove", dir)?;
        }
        if !doomed.is_empty() {
            files.sync_dir(&self.dir).at("sync", &self.dir).map_err(SegmentError::Sync)?;
        }
        Ok(())
    }

    /// Whoever changes files beside the log's own tasks holds this, and looks for the partition behind it.
    pub(crate) fn at_work(&self) -> MutexGuard<'_, ()> {
        self.janitor.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Syncs everything written so far: log files, indexes, names.
    pub(crate) fn sync_all(&self) -> Result<(), SegmentError> {
        let (dirty, files, doubtful) = {
            let mut inner = self.inner.lock().expect("no panic under the segments' lock");
            let dirty = std::mem::take(&mut inner.dirty);
            let (doubtful, kept) = inner.doubtful.iter().partition(|at| dirty.contains_key(at));
            inner.doubtful = kept;
            let doubtful: BTreeSet<TopicPartition> = doubtful;
            let files: Vec<_> = dirty.keys().filter_map(|at| Some((*at, inner.files.get(at)?.clone()))).collect();
            (dirty, files, doubtful)
        };
        let synced = self.sync(&files, &doubtful);
        if synced.is_err() {
            // What found no room on the way is done again, from the beginning.
            let mut inner = self.lock();
            for (at, bytes) in dirty {
                *inner.dirty.entry(at).or_default() += bytes;
            }
            inner.doubtful.extend(doubtful);
        }
        synced
    }

    fn sync(
        &self,
        files: &[(TopicPartition, Arc<PartitionFiles>)],
        doubtful: &BTreeSet<TopicPartition>,
    ) -> Result<(), SegmentError> {
        for (at, files) in files {
            files.sync_paced(|| {})?;
            if doubtful.contains(at) {
                self.platform_files.sync_dir(files.dir()).at("sync", files.dir()).map_err(SegmentError::Sync)?;
            }
        }
        if !files.is_empty() {
            self.platform_files.sync_dir(&self.dir).at("sync", &self.dir).map_err(SegmentError::Sync)?;
        }
        Ok(())
    }

    /// Bytes written since they were last synced.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.inner.lock().expect("no panic under the segments' lock").dirty.values().sum()
    }

    /// Aborted transactions that reach into `from..upper`, by the segments' own indexes.
    pub(crate) fn aborted(&self, at: TopicPartition, from: u64, upper: u64) -> Result<Vec<AbortedTxn>, SegmentError> {
        let Some(files) = self.find(at)? else { return Ok(Vec::new()) };
        let found = files.aborted(from.cast_signed(), upper.cast_signed())?;
        let ours = |aborted: crate::segment::AbortedTxn| AbortedTxn {
            producer: aborted.producer_id,
            first: aborted.first_offset.cast_unsigned(),
            last: aborted.last_offset.cast_unsigned(),
            last_stable: aborted.last_stable_offset.cast_unsigned(),
        };
        Ok(found.into_iter().map(ours).collect())
    }
}

/// Writes the effects of one partition in their order; answers how many bytes. `again`: leaves out what the files have already.
fn write_partition(files: &PartitionFiles, effects: &[&Effect], again: bool) -> Result<u64, SegmentError> {
    let mut written = 0;
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    let mut aborts = Vec::new();
    // Nothing is below the end of files that have it all to come.
    let done = if again { files.end()? } else { LogEnd::default() };
    for effect in effects {
        match effect {
            Effect::Roll { base, .. } if again && base.cast_signed() <= done.segment_base => {}
            Effect::Roll { base, producers, .. } => {
                flush(files, &mut slices, &mut aborts)?;
                files.roll(base.cast_signed(), producers)?;
            }
            Effect::Batch { next, aborted, batch, .. } => {
                // Counted anew: the first time may have ended before it could be counted.
                written += batch.len() as u64;
                if !again || next.cast_signed() > done.next_offset {
                    slices.push(IoSlice::new(batch));
                }
                if let Some(aborted) = aborted
                    && !(again && files.has_abort(aborted.last.cast_signed())?)
                {
                    aborts.push(*aborted);
                }
            }
            Effect::Topic { .. }
            | Effect::Partitions { .. }
            | Effect::TopicDeleted { .. }
            | Effect::LogStart { .. } => {}
        }
    }
    flush(files, &mut slices, &mut aborts)?;
    Ok(written)
}

fn flush(
    files: &PartitionFiles,
    slices: &mut Vec<IoSlice<'_>>,
    aborts: &mut Vec<AbortedTxn>,
) -> Result<(), SegmentError> {
    if !slices.is_empty() {
        files.write(files.end()?.position(), slices)?;
        slices.clear();
    }
    for aborted in aborts.drain(..) {
        files.append_abort(crate::segment::AbortedTxn {
            producer_id: aborted.producer,
            first_offset: aborted.first.cast_signed(),
            last_offset: aborted.last.cast_signed(),
            last_stable_offset: aborted.last_stable.cast_signed(),
        })?;
    }
    Ok(())
}
