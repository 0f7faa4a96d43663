//! One entry of channel state as bytes; `docs/formats/channel-state.md` has the table.
//!
//! ```text
//!   kind 1 | zeros 3 | channel 4 | records 4 | zeros 4 | number 8 | payload
//! ```
//!
//! Decoding checks every length against what is there and never panics.

use std::mem::size_of;

use crate::checkpoint::StateFileKind;
use crate::snapshot::StateName;
use crate::state::{FrozenBlock, FrozenState};
use crate::time::{EventTime, Watermark};

/// The version of the entries.
pub(crate) const VERSION: u32 = 1;

const HEAD_BYTES: usize = 24;

const KIND_BEGIN: u8 = 0;
const KIND_MERGED: u8 = 1;
const KIND_WATERMARK: u8 = 2;
const KIND_IDLE: u8 = 3;
const KIND_ACTIVE: u8 = 4;
const KIND_RECORDS: u8 = 5;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// The first: how many input channels the instance had.
    Begin { channels: u32 },
    /// The merged watermark of the instance is at least this.
    Merged(Watermark),
    /// A channel promised this.
    Watermark(u32, Watermark),
    /// A channel had nothing for now.
    Idle(u32),
    /// A channel had something again.
    Active(u32),
    /// Records of a channel, as its codec encodes them.
    Records {
        /// The channel.
        channel: u32,
        /// How many.
        records: u32,
        /// Their bytes.
        bytes: &'a [u8],
    },
}

/// Bytes that are no entries, although their checksum is right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EntryError {
    /// Fewer bytes than an entry says it has.
    #[error("an entry of channel state should have {expected} bytes, and {found} are left")]
    Short {
        /// What it should have.
        expected: u64,
        /// What is left.
        found: usize,
    },
    /// A kind that this version doesn't have.
    #[error("an entry of channel state of unknown kind {0}")]
    Kind(u8),
    /// Another version.
    #[error(
        "channel state of version {found}; this program knows {VERSION}. Restore it with the program that wrote it"
    )]
    Version {
        /// What it says.
        found: u32,
    },
    /// Not the entry that must stand here.
    #[error("channel state must begin with its number of channels, once")]
    Misplaced,
    /// A channel that the instance didn't have.
    #[error("channel state of channel {channel}, where there were {channels}")]
    Channel {
        /// What it names.
        channel: u32,
        /// How many there were.
        channels: u32,
    },
}

impl<'a> Entry<'a> {
    /// Takes the first entry off `bytes`; `None` at their end.
    ///
    /// # Errors
    /// [`EntryError`].
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Result<Option<Entry<'a>>, EntryError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let short = |expected: u64| EntryError::Short { expected, found: bytes.len() };
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(|| short(HEAD_BYTES as u64))?;
        let word = |at: usize| head[at..at + 4].iter().rev().fold(0u32, |n, byte| n << 8 | u32::from(*byte));
        let (channel, records) = (word(4), word(8));
        let number = u64::from(word(16)) | u64::from(word(20)) << 32;
        let time = EventTime(number.cast_signed());
        *bytes = rest;
        Ok(Some(match head[0] {
            KIND_BEGIN if records == VERSION => Entry::Begin { channels: channel },
            KIND_BEGIN => return Err(EntryError::Version { found: records }),
            KIND_MERGED => Entry::Merged(time),
            KIND_WATERMARK => Entry::Watermark(channel, time),
            KIND_IDLE => Entry::Idle(channel),
            KIND_ACTIVE => Entry::Active(channel),
            KIND_RECORDS => {
                let length = usize::try_from(number).unwrap_or(usize::MAX);
                let found = rest.len();
                let (payload, rest) =
                    rest.split_at_checked(length).ok_or(EntryError::Short { expected: number, found })?;
                *bytes = rest;
                Entry::Records { channel, records, bytes: payload }
            }
            unknown => return Err(EntryError::Kind(unknown)),
        }))
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let time = |t: Watermark| t.0.cast_unsigned();
        let (kind, channel, records, number) = match *self {
            Entry::Begin { channels } => (KIND_BEGIN, channels, VERSION, 0),
            Entry::Merged(t) => (KIND_MERGED, 0, 0, time(t)),
            Entry::Watermark(channel, t) => (KIND_WATERMARK, channel, 0, time(t)),
            Entry::Idle(channel) => (KIND_IDLE, channel, 0, 0),
            Entry::Active(channel) => (KIND_ACTIVE, channel, 0, 0),
            Entry::Records { channel, records, bytes } => (KIND_RECORDS, channel, records, bytes.len() as u64),
        };
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[4..8].copy_from_slice(&channel.to_le_bytes());
        head[8..12].copy_from_slice(&records.to_le_bytes());
        head[16..16 + size_of::<u64>()].copy_from_slice(&number.to_le_bytes());
        head
    }
}

/// Entries in blocks of a state file.
pub(crate) struct Writer {
    blocks: Vec<FrozenBlock>,
    entries: u64,
    payload: Vec<u8>,
    failed: Option<String>,
}

impl Writer {
    /// Begins with the number of channels.
    pub(crate) fn new(channels: u32) -> Writer {
        let mut writer = Writer { blocks: vec![], entries: 0, payload: vec![], failed: None };
        writer.put(&Entry::Begin { channels });
        writer
    }

    /// Appends an entry.
    pub(crate) fn put(&mut self, entry: &Entry<'_>) {
        if self.blocks.last().is_none_or(FrozenBlock::is_full) {
            self.blocks.push(FrozenBlock::small());
        }
        let block = self.blocks.last_mut().expect("just pushed");
        block.out().extend_from_slice(&entry.head());
        if let Entry::Records { bytes, .. } = entry {
            block.out().extend_from_slice(bytes);
        }
        block.entries += 1;
        self.entries += 1;
    }

    /// Appends records that `encode` turns into bytes. A failure spoils the whole.
    pub(crate) fn put_records(
        &mut self,
        channel: u32,
        records: usize,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        match (encode(&mut payload), u32::try_from(records)) {
            (Ok(()), Ok(records)) => self.put(&Entry::Records { channel, records, bytes: &payload }),
            (Err(reason), _) => self.failed = Some(reason),
            (Ok(()), Err(_)) => self.failed = Some(format!("a batch of {records} records")),
        }
        self.payload = payload;
    }

    /// What the I/O thread writes.
    pub(crate) fn finish(self, schema: u64) -> FrozenState {
        let Writer { blocks, entries, failed, .. } = self;
        let (name, kind) = (StateName::channel_state(), StateFileKind::Base);
        FrozenState { name, schema, kind, entries, blocks, failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Entry<'static>> {
        vec![
            Entry::Begin { channels: 3 },
            Entry::Merged(EventTime(-5)),
            Entry::Watermark(2, EventTime(i64::MAX)),
            Entry::Idle(1),
            Entry::Active(1),
            Entry::Records { channel: 0, records: 2, bytes: b"two" },
            Entry::Records { channel: 0, records: 0, bytes: b"" },
        ]
    }

    fn bytes_of(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut writer = Writer::new(3);
        entries[1..].iter().for_each(|entry| writer.put(entry));
        let frozen = writer.finish(7);
        assert_eq!((frozen.entries, frozen.blocks.len()), (entries.len() as u64, 1));
        frozen.blocks[0].payload().to_vec()
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let bytes = bytes_of(&some());
        let (mut rest, mut back) = (bytes.as_slice(), vec![]);
        while let Some(entry) = Entry::take(&mut rest).expect("whole") {
            back.push(entry);
        }
        assert_eq!(back, some());
    }

    #[test]
    fn bytes_that_are_no_entries_are_refused_and_never_panic() {
        let bytes = bytes_of(&some());
        for cut in 0..bytes.len() {
            let mut rest = &bytes[..cut];
            while let Ok(Some(_)) = Entry::take(&mut rest) {}
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= flip;
                let mut rest = bad.as_slice();
                while let Ok(Some(_)) = Entry::take(&mut rest) {}
            }
        }
        let mut long = bytes[5 * HEAD_BYTES..].to_vec();
        long[16..24].fill(0xff);
        assert!(matches!(Entry::take(&mut long.as_slice()), Err(EntryError::Short { expected: u64::MAX, .. })));
        let mut newer = bytes.clone();
        newer[8] = 2;
        assert_eq!(Entry::take(&mut newer.as_slice()), Err(EntryError::Version { found: 2 }));
        assert_eq!(Entry::take(&mut [9; HEAD_BYTES].as_slice()), Err(EntryError::Kind(9)));
    }

    #[test]
    fn records_that_can_not_be_encoded_spoil_the_whole() {
        let mut writer = Writer::new(1);
        writer.put_records(0, 1, |_| Err("no bytes for this".to_string()));
        assert_eq!(writer.finish(7).failed.as_deref(), Some("no bytes for this"));
    }
}
