//! Which transactions were aborted: what a read-committed reader must leave out.
//!
//! Only aborts are recorded, each in the segment that holds its marker; so a reader looks on into later segments, until
//! an entry says that everything below its last stable offset was decided. Entries can't be derived from one segment,
//! so an entry that can't be right is an error, never skipped.

use cutwater_platform::{File, IoContext};

use super::SegmentError;
use super::open_files::Handle;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = VERSION_BYTES + 4 * 8;
const VERSION_BYTES: usize = 2;
const VERSION: i16 = 0;

/// A transaction that was aborted in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose it was.
    pub producer_id: i64,
    /// Offset of its first record in this partition.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
    /// The last stable offset once it had ended: the first offset of the oldest other open transaction, or else one
    /// above the marker.
    pub last_stable_offset: i64,
}

impl AbortedTxn {
    /// The entry as it lies in a file.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..VERSION_BYTES].copy_from_slice(&VERSION.to_be_bytes());
        let fields = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (field, at) in fields.into_iter().zip(bytes[VERSION_BYTES..].chunks_exact_mut(8)) {
            at.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Reads an entry; `None` when no transaction can have it. Zero bytes can't: a marker follows at least one record.
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Option<AbortedTxn> {
        let (version, fields) = bytes.split_first_chunk::<VERSION_BYTES>()?;
        let fields = fields.as_chunks::<8>().0;
        let field = |n: usize| fields.get(n).map(|bytes| i64::from_be_bytes(*bytes));
        let entry = AbortedTxn {
            producer_id: field(0)?,
            first_offset: field(1)?,
            last_offset: field(2)?,
            last_stable_offset: field(3)?,
        };
        let known = i16::from_be_bytes(*version) == VERSION;
        (known && entry.is_possible()).then_some(entry)
    }

    fn is_possible(&self) -> bool {
        self.producer_id >= 0 && self.first_offset >= 0 && self.first_offset < self.last_offset
    }
}

/// How many whole entries a file has.
pub(crate) fn count(handle: &Handle) -> Result<u64, SegmentError> {
    Ok(handle.file.len().at("look at", &handle.path)? / ENTRY_BYTES as u64)
}

/// The `n`-th entry of a file.
pub(crate) fn entry(handle: &Handle, n: u64) -> Result<AbortedTxn, SegmentError> {
    let mut bytes = [0; ENTRY_BYTES];
    let position = n * ENTRY_BYTES as u64;
    handle.file.read_exact_at(&mut bytes, position).at("read", &handle.path)?;
    AbortedTxn::from_bytes(&bytes).ok_or_else(|| damaged(handle, position, "no aborted transaction can be like this"))
}

/// How many entries from the front belong to a partition that ends before `next_offset`. What follows them may be junk
/// of a crash.
pub(crate) fn believable(handle: &Handle, next_offset: i64) -> Result<u64, SegmentError> {
    let bytes = read(handle.file.as_ref(), 0, count(handle)?).at("read", &handle.path)?;
    let (mut believed, mut last) = (0, -1);
    for chunk in bytes.as_chunks::<ENTRY_BYTES>().0 {
        match AbortedTxn::from_bytes(chunk) {
            Some(entry) if entry.last_offset > last && entry.last_offset < next_offset => last = entry.last_offset,
            _ => break,
        }
        believed += 1;
    }
    Ok(believed)
}

fn read(file: &dyn File, from: u64, entries: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; entries as usize * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, from * ENTRY_BYTES as u64)?;
    Ok(bytes)
}

/// Adds to `found` the transactions of one file that a reader of [`from`, `upper`) must leave out; true when no later
/// segment can have more of them.
pub(crate) fn search(
    handle: &Handle,
    entries: u64,
    from: i64,
    upper: i64,
    found: &mut Vec<AbortedTxn>,
) -> Result<bool, SegmentError> {
    const CHUNK: u64 = 128;
    // The first entry whose marker isn't before `from`: last offsets rise.
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(handle, middle)?.last_offset < from { low = middle + 1 } else { high = middle }
    }
    let mut last = from - 1;
    while low < entries {
        let take = CHUNK.min(entries - low);
        let bytes = read(handle.file.as_ref(), low, take).at("read", &handle.path)?;
        for (n, chunk) in bytes.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            let position = (low + n as u64) * ENTRY_BYTES as u64;
            let entry = AbortedTxn::from_bytes(chunk);
            let entry = entry.ok_or_else(|| damaged(handle, position, "no aborted transaction can be like this"))?;
            if entry.last_offset <= last {
                return Err(damaged(handle, position, "the markers' offsets don't rise"));
            }
            last = entry.last_offset;
            if entry.first_offset < upper {
                found.push(entry);
            }
            if entry.last_stable_offset >= upper {
                return Ok(true);
            }
        }
        low += take;
    }
    Ok(false)
}

fn damaged(handle: &Handle, position: u64, what: &str) -> SegmentError {
    SegmentError::Corrupt { path: handle.path.clone(), position, what: what.to_string() }
}
