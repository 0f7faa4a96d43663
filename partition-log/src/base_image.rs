//! Base images: the state of the log at a position, so that recovery replays only what came behind it.
//!
//! One file per image, published whole under a number that never returns (`base/00000000000000000001`, ...). The older one
//! is removed only after the newer one is durable. `docs/formats/wal.md` has the layout.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::{Files, IoContext, IoError, Open, Platform};

use crate::codec::{Cursor, Put};
use crate::error::OpenError;
use crate::wal::frame::{Generation, crc32c};

const MAGIC: [u8; 8] = *b"CUTWBASE";
/// Version 1 ends before the groups, version 2 before the clients.
const FORMAT_VERSION: u32 = 3;
/// Magic, version, checksum.
const HEAD_BYTES: usize = 8 + 4 + 4;
/// The directory below the log's.
pub(crate) const DIR: &str = "base";

/// The state at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaseImage<'a> {
    pub(crate) generation: Generation,
    /// Everything below is in `state`, and in the segments.
    pub(crate) position: u64,
    pub(crate) state: &'a [u8],
}

impl BaseImage<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + 24 + self.state.len());
        bytes.put(&MAGIC);
        bytes.put_u32(FORMAT_VERSION);
        bytes.put_u32(0);
        bytes.put_u64(self.generation.number);
        bytes.put_u64(self.generation.nonce);
        bytes.put_u64(self.position);
        bytes.put(self.state);
        let crc = crc32c(&bytes[HEAD_BYTES..]);
        bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode<'a>(path: &Path, bytes: &'a [u8]) -> Result<BaseImage<'a>, OpenError> {
        let corrupt = |what: &str| OpenError::Corrupt { path: path.to_path_buf(), what: what.to_string() };
        let malformed = |e: crate::codec::Malformed| corrupt(&e.to_string());
        let mut cursor = Cursor::new(bytes);
        if cursor.take(8, "magic").map_err(malformed)? != MAGIC {
            return Err(corrupt("it doesn't begin like a base image"));
        }
        let found = cursor.u32("version").map_err(malformed)?;
        if found > FORMAT_VERSION {
            return Err(OpenError::Newer { path: path.to_path_buf(), found, known: FORMAT_VERSION });
        }
        let crc = cursor.u32("checksum").map_err(malformed)?;
        if crc32c(bytes.get(HEAD_BYTES..).unwrap_or_default()) != crc {
            return Err(corrupt("its checksum doesn't fit"));
        }
        let number = cursor.u64("generation").map_err(malformed)?;
        let nonce = cursor.u64("generation").map_err(malformed)?;
        let position = cursor.u64("position").map_err(malformed)?;
        Ok(BaseImage { generation: Generation { number, nonce }, position, state: cursor.rest() })
    }
}

fn name(number: u64) -> String {
    format!("{number:020}")
}

/// The numbers of the published images, in order. Names that aren't ours are refused, unfinished ones skipped.
fn numbers(files: &Arc<dyn Files>, dir: &Path) -> Result<Vec<u64>, OpenError> {
    let mut numbers = Vec::new();
    for entry in files.read_dir(dir).at("list", dir)? {
        if entry.name.ends_with(".tmp") {
            continue;
        }
        let number = entry.name.parse().ok().filter(|number| name(*number) == entry.name && !entry.is_dir);
        numbers.push(number.ok_or(OpenError::Foreign { dir: dir.to_path_buf(), name: entry.name })?);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes what writers that were cut off have left beside the images. Only for whoever holds the log's lock: then nobody is preparing
/// anything. It is in nobody's way, so that a removal which fails is told and no more.
pub(crate) fn sweep(platform: &Platform, log_dir: &Path) -> Result<(), IoError> {
    let (files, dir) = (&platform.files, log_dir.join(DIR));
    for entry in files.read_dir(&dir).at("list", &dir)? {
        if !entry.name.ends_with(".tmp") || entry.is_dir {
            continue;
        }
        let path = dir.join(&entry.name);
        match files.remove_file(&path) {
            Ok(()) => platform.crash.reach("log.leftover-removed"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "a file that nobody needs can't be removed"),
        }
    }
    Ok(())
}

/// Reads the newest image's bytes; `None` when there is none.
pub(crate) fn newest(files: &Arc<dyn Files>, log_dir: &Path) -> Result<Option<(PathBuf, Vec<u8>)>, OpenError> {
    let dir = log_dir.join(DIR);
    let Some(number) = numbers(files, &dir)?.pop() else { return Ok(None) };
    let path = dir.join(name(number));
    // What is acted on must be durable: a name seen before a power cut could be gone after it.
    files.sync_dir(&dir).at("sync", &dir)?;
    let bytes = files.read(&path, u64::MAX).at("read", &path)?;
    Ok(Some((path, bytes)))
}

/// Reads an image out of its bytes.
pub(crate) fn read<'a>(path: &Path, bytes: &'a [u8]) -> Result<BaseImage<'a>, OpenError> {
    BaseImage::decode(path, bytes)
}

/// Publishes an image durably, then removes the older ones.
pub(crate) fn publish(platform: &Platform, log_dir: &Path, image: &BaseImage<'_>) -> Result<(), IoError> {
    let (files, dir) = (&platform.files, log_dir.join(DIR));
    let older = match numbers(files, &dir) {
        Ok(numbers) => numbers,
        Err(OpenError::Io(e)) => return Err(e),
        Err(other) => {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, other.to_string());
            return Err(source).at("publish a base image in", &dir);
        }
    };
    let path = dir.join(name(older.last().map_or(1, |last| last + 1)));
    let temporary = files.temporary_name(&path);
    if files.exists(&temporary).at("look at", &temporary)? {
        files.remove_file(&temporary).at("remove", &temporary)?;
    }
    let publish = || {
        let file = files.open(&temporary, Open::CreateNew).at("create", &temporary)?;
        file.write_all_at(&image.encode(), 0).at("write", &temporary)?;
        file.sync_data().at("sync", &temporary)?;
        drop(file);
        platform.crash.reach("log.base-image-written");
        files.publish(&temporary, &path).at("publish", &path)
    };
    publish().inspect_err(|_| {
        // It may be tried again under another name, and mustn't take room meanwhile.
        let _ = files.remove_file(&temporary);
    })?;
    files.sync_dir(&dir).at("sync", &dir)?;
    platform.crash.reach("log.base-image-published");
    for number in older {
        let path = dir.join(name(number));
        files.remove_file(&path).at("remove", &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_back_and_damage_anywhere_is_refused() {
        let generation = Generation { number: 3, nonce: 4 };
        let image = BaseImage { generation, position: 8192, state: b"state" };
        let bytes = image.encode();
        let path = Path::new("base/1");
        assert_eq!(read(path, &bytes).expect("intact"), image);
        for byte in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[byte] ^= 0x40;
            assert!(read(path, &bad).is_err(), "byte {byte}");
            assert!(read(path, &bytes[..byte]).is_err(), "cut at {byte}");
        }
    }
}
