//! Opens a log after anything: a clean close, a kill, a power cut, a crash in the middle of the last recovery.
//!
//! Lock; newest base image; write-ahead files by generation and position, applied to the state and to the segments;
//! a new generation. Replayed files are synced before anything is served. Segments aren't: the write-ahead log still
//! covers them. Doing it again from the start is always right, so recovery may itself be cut off at any step.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use cutwater_platform::{Files, IoContext, Lock, Platform, Wakes};

use crate::accept::{Core, Shared};
use crate::base_image::{self, BaseImage};
use crate::codec::Cursor;
use crate::config::{LogLimits, LogOptions};
use crate::core::{Effect, State};
use crate::error::OpenError;
use crate::janitor::Janitor;
use crate::lock;
use crate::materialise::{Backlog, Materialiser, ends};
use crate::meter::{Meter, WRITE_BOUNDS};
use crate::reserve::{self, Reserve};
use crate::room::NoRoom;
use crate::segment::SegmentError;
use crate::segments::Segments;
use crate::spares::Spares;
use crate::view::View;
use crate::wal::frame::{FileHeader, Generation};
use crate::wal::group::Wal;
use crate::wal::replay::{End, Found, scan};
use crate::wal::ring::Ring;
use crate::wal::writer::Writer;

/// The directory of the write-ahead files.
const WAL_DIR: &str = "wal";
/// The directory of the partitions' directories.
const PARTITIONS_DIR: &str = "partitions";
/// Replayed batches are written to the segments in portions of this size.
const PORTION_BYTES: usize = 4 << 20;

/// Opens the log in `dir` and starts its tasks.
pub(crate) fn open(
    platform: &Platform,
    dir: &Path,
    options: &LogOptions,
) -> Result<(Arc<Shared>, Box<dyn Lock>), OpenError> {
    let limits = &options.limits;
    limits.check().map_err(|rule| OpenError::Limits { rule })?;
    let files = &platform.files;
    files.create_dir_all(dir).at("create", dir)?;
    refuse_foreign(files, dir)?;
    let lock = lock::acquire(platform, dir, &options.holder, options.take_over)?;
    let parts = match recover(platform, dir, limits) {
        // What an earlier life has put by is for this.
        Err(OpenError::Io(e)) if NoRoom::of(&e, 0).is_some() && files.remove_file(&dir.join(reserve::NAME)).is_ok() => {
            recover(platform, dir, limits)?
        }
        recovered => recovered?,
    };
    let shared = Arc::new(Shared {
        platform: platform.clone(),
        limits: limits.clone(),
        dir: dir.to_path_buf(),
        core: Mutex::new(Core::new(parts.state)),
        view: RwLock::new(parts.view),
        wal: Mutex::new(Wal::new(parts.ring, parts.imaged)),
        backlog: Backlog::default(),
        writes: Meter::new(WRITE_BOUNDS),
        segments: parts.segments,
        wakes: Wakes::default(),
        reserve: Reserve::new(files.clone(), dir, limits.reserve_bytes),
        spares: Spares::new(limits.spare_bytes()),
        writer: OnceLock::new(),
        materialiser: OnceLock::new(),
        janitor: OnceLock::new(),
        books: Mutex::default(),
        tidied: Mutex::default(),
    });
    shared.tend_reserve();
    let writer = Writer::new(shared.clone());
    let materialiser = Materialiser::new(shared.clone());
    shared.writer.get_or_init(|| platform.spawn.spawn("log-writer", Box::new(writer)));
    let janitor = Janitor::new(shared.clone());
    shared.materialiser.get_or_init(|| platform.spawn.spawn("log-materialise", Box::new(materialiser)));
    // Where nothing runs by itself, neither does this: `Log::tidy` is asked.
    if !platform.spawn.is_inline() {
        shared.janitor.get_or_init(|| platform.spawn.spawn("log-janitor", Box::new(janitor)));
    }
    Ok((shared, lock))
}

fn refuse_foreign(files: &Arc<dyn Files>, dir: &Path) -> Result<(), OpenError> {
    // `access` is the broker's, with users and rights.
    let ours = [lock::NAME, WAL_DIR, PARTITIONS_DIR, base_image::DIR, reserve::NAME, "access"];
    let entries = files.read_dir(dir).at("list", dir)?;
    match entries.into_iter().find(|entry| !ours.contains(&entry.name.as_str())) {
        Some(entry) => Err(OpenError::Foreign { dir: dir.to_path_buf(), name: entry.name }),
        None => Ok(()),
    }
}

/// What a recovered log consists of.
struct Parts {
    state: State,
    view: View,
    ring: Ring,
    segments: Segments,
    /// Position up to which the base image covers the log.
    imaged: u64,
}

fn recover(platform: &Platform, dir: &Path, limits: &LogLimits) -> Result<Parts, OpenError> {
    let files = &platform.files;
    let (wal_dir, partitions_dir) = (dir.join(WAL_DIR), dir.join(PARTITIONS_DIR));
    for dir in [&wal_dir, &partitions_dir, &dir.join(base_image::DIR)] {
        files.create_dir_all(dir).at("create", dir)?;
    }
    // Directories and files may have been created by a life that was cut off before it synced their names.
    files.sync_dir(dir).at("sync", dir)?;
    files.sync_dir(&wal_dir).at("sync", &wal_dir)?;
    let mut found = scan(files, &wal_dir)?;
    let base = read_base(platform, dir)?;
    let is_new = base.is_none();
    if is_new {
        refuse_remains(files, dir, &found)?;
        sync_ancestors(files, dir)?;
    }
    let (generation, imaged, mut state) = base.unwrap_or_default();
    let segments = Segments::new(platform, &partitions_dir, limits, &state);
    let mut view = View::of(&state);
    let mut portion = Portion::default();
    let end = if is_new {
        found.unused()
    } else {
        found.replay(generation, imaged, &mut |entry| {
            let corrupt = |what: String| OpenError::Corrupt { path: wal_dir.clone(), what };
            let before = portion.effects.len();
            state.apply(&entry, &mut portion.effects).map_err(|e| corrupt(e.to_string()))?;
            portion.bytes += portion.effects[before..].iter().map(effect_bytes).sum::<usize>();
            if portion.bytes >= PORTION_BYTES {
                portion.write(&segments, &mut view, limits).map_err(|e| segment_error(&partitions_dir, e))?;
            }
            Ok(())
        })?
    };
    portion.write(&segments, &mut view, limits).map_err(|e| segment_error(&partitions_dir, e))?;
    // A new life never continues a block of producer ids.
    state.next_producer = state.block_end;
    if end.torn {
        tracing::warn!(position = end.position, files = ?found.held(), "the log ends in a write that never finished");
        platform.crash.reach("log.tail-cut");
    }
    platform.crash.reach("log.replayed");
    let header = next_generation(platform, &end);
    let (file_bytes, extend_bytes) = (limits.wal_file_bytes, limits.wal_extend_bytes);
    let ring = Ring::start(files.clone(), &wal_dir, found.slots, header, file_bytes, extend_bytes)?;
    platform.crash.reach("log.generation-started");
    // Behind everything that could refuse to open: until then what is there stays as it was found.
    base_image::sweep(platform, dir)?;
    if is_new {
        // Before the first frame: from here on a missing write-ahead file is noticed.
        let image = BaseImage { generation: header.generation, position: header.start, state: &state.image() };
        base_image::publish(platform, dir, &image)?;
    }
    tracing::info!(
        dir = %dir.display(), generation = header.generation.number, position = end.position,
        frames = end.frames, "log opened"
    );
    Ok(Parts { state, view, ring, segments, imaged })
}

fn next_generation(platform: &Platform, end: &End) -> FileHeader {
    FileHeader {
        generation: Generation { number: end.highest + 1, nonce: platform.random.next_u64() },
        start: end.position,
        previous: end.generation.number,
        previous_end: end.position,
        durable: end.position,
    }
}

/// Without a base image there must be nothing to lose: a creation that was cut off leaves empty files at most.
fn refuse_remains(files: &Arc<dyn Files>, dir: &Path, found: &Found) -> Result<(), OpenError> {
    let partitions = dir.join(PARTITIONS_DIR);
    let untouched = files.read_dir(&partitions).at("list", &partitions)?.is_empty();
    if found.has_frames()? || !untouched {
        let what = "there is no base image, but write-ahead frames or partitions are there".to_string();
        return Err(OpenError::Corrupt { path: dir.join(base_image::DIR), what });
    }
    Ok(())
}

/// Makes the log's own name durable, and those of the directories above it: a process that was killed may have created
/// them and never synced them.
fn sync_ancestors(files: &Arc<dyn Files>, dir: &Path) -> Result<(), OpenError> {
    for (height, ancestor) in dir.ancestors().skip(1).enumerate() {
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        match files.sync_dir(ancestor) {
            // Directories that this user may not read are older than this log.
            Err(e) if height > 0 && e.kind() == std::io::ErrorKind::PermissionDenied => break,
            synced => synced.at("sync", ancestor)?,
        }
    }
    Ok(())
}

/// The newest base image: generation, position, state.
fn read_base(platform: &Platform, dir: &Path) -> Result<Option<(Generation, u64, State)>, OpenError> {
    let Some((path, bytes)) = base_image::newest(&platform.files, dir)? else { return Ok(None) };
    let image = base_image::read(&path, &bytes)?;
    let corrupt = |what: String| OpenError::Corrupt { path: path.clone(), what };
    let mut cursor = Cursor::new(image.state);
    let state = State::decode(&mut cursor).map_err(|e| corrupt(e.to_string()))?;
    if !cursor.is_empty() {
        return Err(corrupt("bytes are left over behind the state".to_string()));
    }
    Ok(Some((image.generation, image.position, state)))
}

/// Replayed effects that haven't reached the segments.
#[derive(Default)]
struct Portion {
    effects: Vec<Effect>,
    bytes: usize,
}

impl Portion {
    fn write(&mut self, segments: &Segments, view: &mut View, limits: &LogLimits) -> Result<(), SegmentError> {
        segments.write(&self.effects, false)?;
        view.apply(&self.effects);
        view.materialised(&ends(&self.effects));
        drop(view.evict(limits.tail_bytes, usize::MAX));
        self.effects.clear();
        self.bytes = 0;
        Ok(())
    }
}

fn effect_bytes(effect: &Effect) -> usize {
    if let Effect::Batch { batch, .. } = effect { batch.len() } else { 0 }
}

fn segment_error(dir: &Path, error: SegmentError) -> OpenError {
    match error {
        SegmentError::Io(e) | SegmentError::Sync(e) => OpenError::Io(e),
        other => OpenError::Corrupt { path: dir.to_path_buf(), what: other.to_string() },
    }
}
