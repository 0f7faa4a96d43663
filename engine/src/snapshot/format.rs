//! The bytes of a state file; `docs/formats/state-file.md` has the tables.
//!
//! ```text
//!   prefix (24 bytes) | header | block | block | ... | footer (48 bytes)
//! ```
//!
//! Every byte is covered by a checksum. Those of blocks and footer are seeded with the header's, and those of blocks with
//! their number too: a block that was moved, or that comes from another file, is as wrong as one with a flipped bit. The
//! footer's covers those of all blocks, and so stands for the whole file: each byte is hashed once.
//!
//! In an *aligned* file header, blocks and footer each begin on a boundary of 4096 bytes, with zeros between, so that it can be written
//! past the system's cache; and a block's checksum is taken of the CRC of its payload, which is computed while that is encoded.

use crc_fast::{CrcAlgorithm, checksum};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use crate::checkpoint::StateFileKind;
use crate::config::Compression;
use crate::exchange::GroupRange;
use crate::id::{Attempt, CheckpointId, InstanceId, JobId};

/// The newest format version that this program writes: that of aligned files.
pub const STATE_FORMAT: u32 = 4;
/// The version of packed files.
const STATE_FORMAT_PACKED: u32 = 3;
/// The version of files that are neither packed nor aligned, and the oldest that is read.
pub(crate) const STATE_FORMAT_PLAIN: u32 = 2;
/// What the parts of an aligned file begin at multiples of.
pub(crate) const UNIT_BYTES: usize = 4096;
/// A block is closed once its entries have this many bytes.
pub const BLOCK_TARGET_BYTES: usize = 256 * 1024;

/// The first bytes of a state file.
pub(crate) const MAGIC: [u8; 8] = *b"CWSTATE\0";
/// The first bytes of its footer.
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"CWSTEND\0";
/// Magic, version, header length, header checksum.
pub(crate) const PREFIX_BYTES: usize = 24;
/// Length, entries, checksum.
pub(crate) const BLOCK_HEADER_BYTES: usize = 16;
/// Magic, blocks, entries, bytes in blocks, checksum of the blocks' checksums, checksum.
pub(crate) const FOOTER_BYTES: usize = 48;
/// A header is never longer; it holds numbers and one short name.
pub(crate) const HEADER_MAX_BYTES: usize = 4096;

/// What a state file says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFileHeader {
    /// The job.
    pub job: JobId,
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// The checkpoint it was written for.
    pub checkpoint: CheckpointId,
    /// The operator instance whose state it is.
    pub instance: InstanceId,
    /// The state's name.
    pub state: String,
    /// Fingerprint of its types.
    pub schema: u64,
    /// Base or delta.
    pub kind: StateFileKind,
    /// The key groups that the instance owned.
    pub groups: GroupRange,
    /// Number of entries, removals included.
    pub entries: u64,
    /// How its blocks are packed. Not in the header of a plain file, whose version says it.
    #[serde(skip)]
    pub compression: Compression,
}

/// The header of a packed file.
#[derive(Serialize, Deserialize)]
struct PackedHeader {
    header: StateFileHeader,
    compression: Compression,
}

/// Reads a header of this version.
pub(crate) fn decode_header(version: u32, bytes: &[u8]) -> Option<StateFileHeader> {
    if version != STATE_FORMAT_PACKED {
        return match postcard::take_from_bytes(bytes) {
            Ok((header, [])) => Some(header),
            _ => None,
        };
    }
    match postcard::take_from_bytes(bytes) {
        Ok((PackedHeader { header, compression }, [])) if compression != Compression::None => {
            Some(StateFileHeader { compression, ..header })
        }
        _ => None,
    }
}

/// Builds the prefix and the encoded header; also returns the seed of everything behind them. A packed file isn't aligned.
pub(crate) fn encode_header(header: &StateFileHeader, aligned: bool) -> Result<(Vec<u8>, u64), postcard::Error> {
    let room = vec![0; PREFIX_BYTES];
    let (version, mut bytes) = match header.compression {
        Compression::None if aligned => (STATE_FORMAT, postcard::to_extend(header, room)?),
        Compression::None => (STATE_FORMAT_PLAIN, postcard::to_extend(header, room)?),
        compression => {
            (STATE_FORMAT_PACKED, postcard::to_extend(&PackedHeader { header: header.clone(), compression }, room)?)
        }
    };
    let length = u32::try_from(bytes.len() - PREFIX_BYTES).map_err(|_| postcard::Error::SerializeBufferFull)?;
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let seed = header_checksum(&bytes[..16], &bytes[PREFIX_BYTES..]);
    bytes[16..24].copy_from_slice(&seed.to_le_bytes());
    Ok((bytes, seed))
}

/// Checksum of the first 16 bytes of the prefix and the header.
pub(crate) fn header_checksum(prefix: &[u8], header: &[u8]) -> u64 {
    xxh3_64_with_seed(header, xxh3_64(prefix))
}

/// What a block's header says, and which block it is.
fn own_bytes(number: u64, entries: u32, length: usize) -> [u8; 24] {
    let mut own = [0; 24];
    own[0..8].copy_from_slice(&number.to_le_bytes());
    own[8..12].copy_from_slice(&entries.to_le_bytes());
    own[12..20].copy_from_slice(&(length as u64).to_le_bytes());
    own
}

/// Checksum of a block's payload as it stands in the file, bound to its file, its number and its own header.
pub(crate) fn block_checksum(seed: u64, number: u64, entries: u32, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64_with_seed(&own_bytes(number, entries, payload.len()), seed))
}

/// The same in an aligned file, from the [CRC](payload_crc) of the payload.
pub(crate) fn aligned_checksum(seed: u64, number: u64, entries: u32, length: usize, crc: u64) -> u64 {
    xxh3_64_with_seed(&crc.to_le_bytes(), xxh3_64_with_seed(&own_bytes(number, entries, length), seed))
}

/// CRC-64/NVME of a payload: several times as fast as XXH3 where the processor multiplies without carry.
pub(crate) fn payload_crc(payload: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, payload)
}

/// What the footer says.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    /// Bytes in blocks, their headers not counted.
    payload: u64,
    /// Of the checksums of all blocks, in their order.
    checksums: Box<Xxh3>,
}

impl Totals {
    /// One more block.
    pub(crate) fn add(&mut self, entries: u32, payload: usize, checksum: u64) {
        self.blocks += 1;
        self.entries += u64::from(entries);
        self.payload += payload as u64;
        self.checksums.update(&checksum.to_le_bytes());
    }

    /// The footer, and the checksum at its end, which stands for the whole file.
    pub(crate) fn encode(&self, seed: u64) -> ([u8; FOOTER_BYTES], u64) {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[0..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..16].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.entries.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.payload.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.checksums.digest().to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes[..40], seed);
        bytes[40..48].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }
}

/// A little-endian number of up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}
