//! Bytes of the write-ahead log: file headers, frames, entries.
//!
//! ```text
//! file   = header block (4096 bytes) | frame | frame | ...            frames start on multiples of 4096
//! frame  = magic crc length entries | generation nonce position durable | entry ... | zeros up to 4096
//! entry  = kind, length, body
//! ```
//!
//! A *position* is a byte position in the endless log: file headers don't count, padding does. Promises:
//! * A frame is found whole or not at all: one checksum (CRC-32C) covers everything behind itself.
//! * A frame is the next one only if its generation, nonce and position are the expected ones: what an earlier life of
//!   the file left there can't be taken for it.
//! * Decoding never panics and allocates nothing on a length that it hasn't checked.
//!
//! The layout byte by byte is in `docs/formats/wal.md`.

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use cutwater_platform::{AlignedBuf, BLOCK_BYTES};

use crate::codec::{Cursor, Malformed, Put};
use crate::core::clients::ClientState;
use crate::group::OffsetCommit;
use crate::offset::Offset;
use crate::owner::{OwnerId, TxnId};
use crate::topic::{TopicId, TopicPartition};

/// The first bytes of a write-ahead file.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"CUTWWAL\n";
/// The version of file headers, frames and entries that this code writes. Versions 1 and 2, which it reads as well, lack the
/// entries of groups, and those of clients and of topics that grow and go.
pub(crate) const FORMAT_VERSION: u32 = 3;
/// The block at the head of a file.
pub(crate) const FILE_HEADER_BYTES: u64 = BLOCK_BYTES as u64;
/// The first bytes of a frame.
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"CWFR");
/// Magic, checksum, payload length, entries; generation, nonce, position, durable position.
pub(crate) const FRAME_HEADER_BYTES: usize = 4 * 4 + 4 * 8;
/// More than any entry takes beside its batch or its list.
pub(crate) const ENTRY_OVERHEAD: usize = 64;

/// CRC-32C, as Kafka's batches have it.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // The 32-bit algorithms answer in the low half.
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) & 0xFFFF_FFFF) as u32
}

/// The bytes of one record batch, shared by queue, tail cache and readers.
pub(crate) type Batch = Arc<Vec<u8>>;

/// One life of the log: every open starts the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation {
    /// Counted up by one at each open.
    pub(crate) number: u64,
    /// Random, so that bytes of a log copied into another one never fit.
    pub(crate) nonce: u64,
}

/// What the first block of a write-ahead file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) generation: Generation,
    /// Position of the first frame.
    pub(crate) start: u64,
    /// Where the generation before this one ended; nothing of it beyond that position is looked at.
    pub(crate) previous_end: u64,
    /// The number of that generation; 0 for the first.
    pub(crate) previous: u64,
    /// Everything of this generation below this position was durable when the header was written.
    pub(crate) durable: u64,
}

impl FileHeader {
    /// The header in a block of its own. It fits one disk sector, so that it is written whole or not at all.
    pub(crate) fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::with_capacity(BLOCK_BYTES);
        block.put(&FILE_MAGIC);
        block.put_u32(FORMAT_VERSION);
        block.put_u32(0);
        for value in
            [self.generation.number, self.generation.nonce, self.start, self.previous, self.previous_end, self.durable]
        {
            block.put_u64(value);
        }
        let crc = crc32c(&block.as_slice()[16..]);
        block.as_mut_slice()[12..16].copy_from_slice(&crc.to_le_bytes());
        block.pad_to_block();
        block
    }

    /// Reads a header. `Ok(None)`: no header was ever written here whole.
    pub(crate) fn decode(block: &[u8]) -> Result<Option<FileHeader>, NewerFormat> {
        Self::read(block).map_or(Ok(None), |header| header.map(Some))
    }

    fn read(block: &[u8]) -> Option<Result<FileHeader, NewerFormat>> {
        let mut cursor = Cursor::new(block);
        if cursor.take(8, "magic").ok()? != FILE_MAGIC {
            return None;
        }
        let version = cursor.u32("version").ok()?;
        if version > FORMAT_VERSION {
            return Some(Err(NewerFormat { found: version }));
        }
        let crc = cursor.u32("checksum").ok()?;
        if version == 0 || crc32c(block.get(16..16 + 48)?) != crc {
            return None;
        }
        let mut next = || cursor.u64("header").ok();
        let generation = Generation { number: next()?, nonce: next()? };
        let (start, previous, previous_end, durable) = (next()?, next()?, next()?, next()?);
        Some(Ok(FileHeader { generation, start, previous_end, previous, durable }))
    }
}

/// A file of a version that this code doesn't know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewerFormat {
    pub(crate) found: u32,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) generation: Generation,
    /// Where the frame stands.
    pub(crate) position: u64,
    /// Everything below was durable when the frame was issued.
    pub(crate) durable: u64,
    pub(crate) entries: u32,
    pub(crate) payload_bytes: u32,
    crc: u32,
}

impl FrameHeader {
    /// Reads the fields; says nothing about the checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Option<FrameHeader> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u32("magic").ok()? != FRAME_MAGIC {
            return None;
        }
        let crc = cursor.u32("checksum").ok()?;
        let payload_bytes = cursor.u32("length").ok()?;
        let entries = cursor.u32("entries").ok()?;
        let mut next = || cursor.u64("header").ok();
        let generation = Generation { number: next()?, nonce: next()? };
        let (position, durable) = (next()?, next()?);
        Some(FrameHeader { generation, position, durable, entries, payload_bytes, crc })
    }

    /// Header and payload.
    pub(crate) fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload_bytes as usize
    }

    /// Header, payload and padding: the distance to the next frame.
    pub(crate) fn padded_bytes(&self) -> u64 {
        self.frame_bytes().next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Whether `frame` (at least [`FrameHeader::frame_bytes`] of it) is what was written.
    pub(crate) fn is_intact(&self, frame: &[u8]) -> bool {
        frame.get(8..self.frame_bytes()).is_some_and(|covered| crc32c(covered) == self.crc)
    }
}

/// Builds one frame in an aligned buffer: begin, push entries, finish.
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    buf: AlignedBuf,
    entries: u32,
}

impl FrameBuilder {
    pub(crate) fn begin(&mut self) {
        self.buf.clear();
        self.buf.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        self.entries = 0;
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        entry.encode(&mut self.buf);
        self.entries += 1;
    }

    /// The frame, padded to whole blocks.
    pub(crate) fn finish(&mut self, generation: Generation, position: u64, durable: u64) -> &[u8] {
        let payload = u32::try_from(self.buf.len() - FRAME_HEADER_BYTES).expect("limits keep frames below 4 GiB");
        let mut head = Vec::with_capacity(FRAME_HEADER_BYTES);
        head.put_u32(FRAME_MAGIC);
        head.put_u32(0);
        head.put_u32(payload);
        head.put_u32(self.entries);
        for value in [generation.number, generation.nonce, position, durable] {
            head.put_u64(value);
        }
        self.buf.as_mut_slice()[..FRAME_HEADER_BYTES].copy_from_slice(&head);
        let crc = crc32c(&self.buf.as_slice()[8..]);
        self.buf.as_mut_slice()[4..8].copy_from_slice(&crc.to_le_bytes());
        self.buf.pad_to_block();
        self.buf.as_slice()
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Its records are visible to every reader.
    Committed,
    /// Its records are skipped by read-committed readers.
    Aborted,
}

/// One transaction inside an [`Entry::End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) producer: i64,
    pub(crate) epoch: i16,
    /// Where the marker of each of its partitions goes.
    pub(crate) markers: Vec<(TopicPartition, u64)>,
}

/// One fact of the log. State is nothing but the entries so far, applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A record batch with its offsets assigned.
    Append { at: TopicPartition, wall: i64, batch: Batch },
    /// The partition's next batch starts a new segment.
    Roll { at: TopicPartition, base: u64 },
    /// A topic exists from here on.
    TopicCreated { topic: TopicId, partitions: u32, name: String },
    /// Producer ids below `end` may have been given out.
    ProducerBlock { end: i64 },
    /// Older attempts of the owner are refused from here on.
    Claim { owner: OwnerId, attempt: u64 },
    /// A transaction is open.
    Begin { id: Arc<TxnId>, producer: i64, epoch: i16, wall: i64 },
    /// Its outcome is no longer its writer's to decide.
    Prepare { producer: i64, wall: i64 },
    /// Transactions end, all at once.
    End { outcome: Outcome, wall: i64, ended: Vec<Ended> },
    /// Outcomes nobody will ask for again.
    Forget { ids: Vec<TxnId> },
    /// The partition no longer remembers these silent producers.
    ForgetProducers { at: TopicPartition, producers: Vec<i64> },
    /// Offsets of a group, for the end of a producer's transaction, or at once.
    GroupOffsets { producer: Option<i64>, group: String, wall: i64, offsets: Vec<OffsetCommit> },
    /// The group and its offsets are gone.
    GroupDeleted { group: String },
    /// A client has this producer id and epoch from here on.
    Client { id: String, state: ClientState },
    /// These partitions are part of a client's transaction, which begins here if it hasn't before.
    ClientTxn { producer: i64, wall: i64, partitions: Vec<TopicPartition> },
    /// The client is unknown.
    ClientForgotten { id: String },
    /// These offsets of the group are gone.
    OffsetsDeleted { group: String, partitions: Vec<TopicPartition> },
    /// What a group's members have agreed on, in the words of whoever manages them.
    Membership { group: String, members: Vec<u8> },
    /// The topic and all that is in it is gone.
    TopicDeleted { topic: TopicId },
    /// The topic has this many partitions.
    PartitionsAdded { topic: TopicId, partitions: u32 },
    /// What lies below can't be read any more.
    LogStart { at: TopicPartition, start: u64 },
    /// All settings of a topic.
    Settings { topic: TopicId, settings: Vec<(String, String)> },
}

const APPEND: u8 = 1;
const ROLL: u8 = 2;
const TOPIC_CREATED: u8 = 3;
const PRODUCER_BLOCK: u8 = 4;
const CLAIM: u8 = 5;
const BEGIN: u8 = 6;
const PREPARE: u8 = 7;
const END: u8 = 8;
const FORGET: u8 = 9;
const FORGET_PRODUCERS: u8 = 11;
const GROUP_OFFSETS: u8 = 12;
const GROUP_DELETED: u8 = 13;
const CLIENT: u8 = 14;
const CLIENT_TXN: u8 = 15;
const CLIENT_FORGOTTEN: u8 = 16;
const OFFSETS_DELETED: u8 = 17;
const MEMBERSHIP: u8 = 18;
const TOPIC_DELETED: u8 = 19;
const PARTITIONS_ADDED: u8 = 20;
const LOG_START: u8 = 21;
const SETTINGS: u8 = 22;
// 10 is reserved for SegmentRef: a batch kept by reference (segment, position, length, checksum).

/// In the place of a producer id: offsets that are committed at once.
const NO_PRODUCER: i64 = -1;
/// Bytes of one offset inside an entry of a group, its metadata excepted.
const OFFSET_BYTES: usize = 4 + 4 + 8 + 4;
/// Bytes of one marker inside an ending entry.
pub(crate) const MARKER_BYTES: usize = 4 + 4 + 8;
/// Bytes of one transaction inside an ending entry, its markers excepted.
pub(crate) const ENDED_BYTES: usize = 8 + 2 + 4;

/// Bytes of the entry that has these settings.
pub(crate) fn settings_bytes(settings: &[(String, String)]) -> usize {
    1 + 4 + 4 + 4 + settings.iter().map(|(key, value)| 8 + key.len() + value.len()).sum::<usize>()
}

impl Entry {
    /// Bytes of the encoded entry.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let body = match self {
            Entry::Append { batch, .. } => 4 + 4 + 8 + batch.len(),
            Entry::Roll { .. } => 4 + 4 + 8,
            Entry::TopicCreated { name, .. } => 4 + 4 + 4 + name.len(),
            Entry::ProducerBlock { .. } => 8,
            Entry::Claim { .. } => 16 + 8,
            Entry::Begin { id, .. } => TxnId::BYTES_MIN + id.sink.len() + 8 + 2 + 8,
            Entry::Prepare { .. } => 8 + 8,
            Entry::End { ended, .. } => {
                1 + 8 + 4 + ended.iter().map(|e| ENDED_BYTES + e.markers.len() * MARKER_BYTES).sum::<usize>()
            }
            Entry::Forget { ids } => 4 + ids.iter().map(|id| TxnId::BYTES_MIN + id.sink.len()).sum::<usize>(),
            Entry::ForgetProducers { producers, .. } => 4 + 4 + 4 + 8 * producers.len(),
            Entry::GroupOffsets { group, offsets, .. } => {
                let one = |offset: &OffsetCommit| OFFSET_BYTES + offset.metadata.len();
                8 + 8 + 4 + group.len() + 4 + offsets.iter().map(one).sum::<usize>()
            }
            Entry::GroupDeleted { group } => 4 + group.len(),
            Entry::Client { id, .. } => 4 + id.len() + ClientState::BYTES,
            Entry::ClientTxn { partitions, .. } => 8 + 8 + 4 + 8 * partitions.len(),
            Entry::ClientForgotten { id } => 4 + id.len(),
            Entry::OffsetsDeleted { group, partitions } => 4 + group.len() + 4 + 8 * partitions.len(),
            Entry::Membership { group, members } => 4 + group.len() + 4 + members.len(),
            Entry::TopicDeleted { .. } => 4,
            Entry::PartitionsAdded { .. } => 4 + 4,
            Entry::LogStart { .. } => 4 + 4 + 8,
            Entry::Settings { settings, .. } => return settings_bytes(settings),
        };
        1 + 4 + body
    }

    pub(crate) fn encode(&self, out: &mut impl Put) {
        let kind = match self {
            Entry::Append { .. } => APPEND,
            Entry::Roll { .. } => ROLL,
            Entry::TopicCreated { .. } => TOPIC_CREATED,
            Entry::ProducerBlock { .. } => PRODUCER_BLOCK,
            Entry::Claim { .. } => CLAIM,
            Entry::Begin { .. } => BEGIN,
            Entry::Prepare { .. } => PREPARE,
            Entry::End { .. } => END,
            Entry::Forget { .. } => FORGET,
            Entry::ForgetProducers { .. } => FORGET_PRODUCERS,
            Entry::GroupOffsets { .. } => GROUP_OFFSETS,
            Entry::GroupDeleted { .. } => GROUP_DELETED,
            Entry::Client { .. } => CLIENT,
            Entry::ClientTxn { .. } => CLIENT_TXN,
            Entry::ClientForgotten { .. } => CLIENT_FORGOTTEN,
            Entry::OffsetsDeleted { .. } => OFFSETS_DELETED,
            Entry::Membership { .. } => MEMBERSHIP,
            Entry::TopicDeleted { .. } => TOPIC_DELETED,
            Entry::PartitionsAdded { .. } => PARTITIONS_ADDED,
            Entry::LogStart { .. } => LOG_START,
            Entry::Settings { .. } => SETTINGS,
        };
        out.put_u8(kind);
        out.put_len(self.encoded_bytes() - 5);
        match self {
            Entry::Append { at, wall, batch } => {
                put_partition(out, *at);
                out.put_i64(*wall);
                out.put(batch);
            }
            Entry::Roll { at, base } => {
                put_partition(out, *at);
                out.put_u64(*base);
            }
            Entry::TopicCreated { topic, partitions, name } => {
                out.put_u32(topic.0);
                out.put_u32(*partitions);
                out.put_bytes(name.as_bytes());
            }
            Entry::ProducerBlock { end } => out.put_i64(*end),
            Entry::Claim { owner, attempt } => {
                out.put_u128(owner.0);
                out.put_u64(*attempt);
            }
            Entry::Begin { id, producer, epoch, wall } => {
                id.encode(out);
                out.put_i64(*producer);
                out.put_i16(*epoch);
                out.put_i64(*wall);
            }
            Entry::Prepare { producer, wall } => {
                out.put_i64(*producer);
                out.put_i64(*wall);
            }
            Entry::End { outcome, wall, ended } => {
                out.put_u8(u8::from(*outcome == Outcome::Committed));
                out.put_i64(*wall);
                out.put_len(ended.len());
                for one in ended {
                    out.put_i64(one.producer);
                    out.put_i16(one.epoch);
                    out.put_len(one.markers.len());
                    for (at, offset) in &one.markers {
                        put_partition(out, *at);
                        out.put_u64(*offset);
                    }
                }
            }
            Entry::Forget { ids } => {
                out.put_len(ids.len());
                for id in ids {
                    id.encode(out);
                }
            }
            Entry::GroupOffsets { producer, group, wall, offsets } => {
                out.put_i64(producer.unwrap_or(NO_PRODUCER));
                out.put_i64(*wall);
                out.put_bytes(group.as_bytes());
                out.put_len(offsets.len());
                for OffsetCommit { at, offset, metadata } in offsets {
                    put_partition(out, *at);
                    out.put_u64(offset.0);
                    out.put_bytes(metadata.as_bytes());
                }
            }
            Entry::GroupDeleted { group } => out.put_bytes(group.as_bytes()),
            Entry::Client { id, state } => {
                out.put_bytes(id.as_bytes());
                state.encode(out);
            }
            Entry::ClientTxn { producer, wall, partitions } => {
                out.put_i64(*producer);
                out.put_i64(*wall);
                put_partitions(out, partitions);
            }
            Entry::ClientForgotten { id } => out.put_bytes(id.as_bytes()),
            Entry::OffsetsDeleted { group, partitions } => {
                out.put_bytes(group.as_bytes());
                put_partitions(out, partitions);
            }
            Entry::Membership { group, members } => {
                out.put_bytes(group.as_bytes());
                out.put_bytes(members);
            }
            Entry::TopicDeleted { topic } => out.put_u32(topic.0),
            Entry::PartitionsAdded { topic, partitions } => {
                out.put_u32(topic.0);
                out.put_u32(*partitions);
            }
            Entry::LogStart { at, start } => {
                put_partition(out, *at);
                out.put_u64(*start);
            }
            Entry::Settings { topic, settings } => {
                out.put_u32(topic.0);
                out.put_len(settings.len());
                for (key, value) in settings {
                    out.put_bytes(key.as_bytes());
                    out.put_bytes(value.as_bytes());
                }
            }
            Entry::ForgetProducers { at, producers } => {
                put_partition(out, *at);
                out.put_len(producers.len());
                for producer in producers {
                    out.put_i64(*producer);
                }
            }
        }
    }

    /// Reads the next entry.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Entry, Malformed> {
        let kind = cursor.u8("entry kind")?;
        let body = cursor.bytes("entry")?;
        let mut body = Cursor::new(body);
        let entry = Self::decode_body(kind, &mut body)?;
        if body.is_empty() { Ok(entry) } else { Err(body.malformed("entry with bytes left over")) }
    }

    fn decode_body(kind: u8, body: &mut Cursor<'_>) -> Result<Entry, Malformed> {
        Ok(match kind {
            APPEND => {
                let at = partition(body)?;
                let wall = body.i64("time")?;
                Entry::Append { at, wall, batch: Arc::new(body.rest().to_vec()) }
            }
            ROLL => Entry::Roll { at: partition(body)?, base: body.u64("base offset")? },
            TOPIC_CREATED => Entry::TopicCreated {
                topic: TopicId(body.u32("topic")?),
                partitions: body.u32("partitions")?,
                name: body.string("name")?,
            },
            PRODUCER_BLOCK => Entry::ProducerBlock { end: body.i64("end of block")? },
            CLAIM => Entry::Claim { owner: OwnerId(body.u128("owner")?), attempt: body.u64("attempt")? },
            BEGIN => Entry::Begin {
                id: Arc::new(TxnId::decode(body)?),
                producer: body.i64("producer")?,
                epoch: body.i16("epoch")?,
                wall: body.i64("time")?,
            },
            PREPARE => Entry::Prepare { producer: body.i64("producer")?, wall: body.i64("time")? },
            END => {
                let outcome = match body.u8("outcome")? {
                    0 => Outcome::Aborted,
                    1 => Outcome::Committed,
                    _ => return Err(body.malformed("outcome")),
                };
                let wall = body.i64("time")?;
                let len = body.len(ENDED_BYTES, "ended transactions")?;
                let mut ended = Vec::with_capacity(len);
                for _ in 0..len {
                    let (producer, epoch) = (body.i64("producer")?, body.i16("epoch")?);
                    let len = body.len(MARKER_BYTES, "markers")?;
                    let mut markers = Vec::with_capacity(len);
                    for _ in 0..len {
                        markers.push((partition(body)?, body.u64("marker offset")?));
                    }
                    ended.push(Ended { producer, epoch, markers });
                }
                Entry::End { outcome, wall, ended }
            }
            FORGET => {
                let len = body.len(TxnId::BYTES_MIN, "forgotten transactions")?;
                let mut ids = Vec::with_capacity(len);
                for _ in 0..len {
                    ids.push(TxnId::decode(body)?);
                }
                Entry::Forget { ids }
            }
            FORGET_PRODUCERS => {
                let at = partition(body)?;
                let len = body.len(8, "forgotten producers")?;
                let mut producers = Vec::with_capacity(len);
                for _ in 0..len {
                    producers.push(body.i64("producer")?);
                }
                Entry::ForgetProducers { at, producers }
            }
            GROUP_OFFSETS => {
                let producer = Some(body.i64("producer")?).filter(|producer| *producer != NO_PRODUCER);
                let (wall, group) = (body.i64("time")?, body.string("group")?);
                let len = body.len(OFFSET_BYTES, "offsets")?;
                let mut offsets = Vec::with_capacity(len);
                for _ in 0..len {
                    let (at, offset) = (partition(body)?, Offset(body.u64("offset")?));
                    offsets.push(OffsetCommit { at, offset, metadata: body.string("metadata")? });
                }
                Entry::GroupOffsets { producer, group, wall, offsets }
            }
            GROUP_DELETED => Entry::GroupDeleted { group: body.string("group")? },
            CLIENT => Entry::Client { id: body.string("transactional id")?, state: ClientState::decode(body)? },
            CLIENT_TXN => {
                let (producer, wall) = (body.i64("producer")?, body.i64("time")?);
                Entry::ClientTxn { producer, wall, partitions: partitions(body)? }
            }
            CLIENT_FORGOTTEN => Entry::ClientForgotten { id: body.string("transactional id")? },
            OFFSETS_DELETED => Entry::OffsetsDeleted { group: body.string("group")?, partitions: partitions(body)? },
            MEMBERSHIP => Entry::Membership { group: body.string("group")?, members: body.bytes("members")?.to_vec() },
            TOPIC_DELETED => Entry::TopicDeleted { topic: TopicId(body.u32("topic")?) },
            PARTITIONS_ADDED => {
                Entry::PartitionsAdded { topic: TopicId(body.u32("topic")?), partitions: body.u32("partitions")? }
            }
            LOG_START => Entry::LogStart { at: partition(body)?, start: body.u64("log start")? },
            SETTINGS => {
                let topic = TopicId(body.u32("topic")?);
                let len = body.len(8, "settings")?;
                let mut settings = Vec::with_capacity(len);
                for _ in 0..len {
                    settings.push((body.string("setting")?, body.string("setting")?));
                }
                Entry::Settings { topic, settings }
            }
            _ => return Err(body.malformed("entry kind")),
        })
    }
}

fn put_partition(out: &mut impl Put, at: TopicPartition) {
    out.put_u32(at.topic.0);
    out.put_u32(at.partition);
}

fn put_partitions(out: &mut impl Put, partitions: &[TopicPartition]) {
    out.put_len(partitions.len());
    partitions.iter().for_each(|at| put_partition(out, *at));
}

fn partitions(cursor: &mut Cursor<'_>) -> Result<Vec<TopicPartition>, Malformed> {
    let len = cursor.len(8, "partitions")?;
    let mut partitions = Vec::with_capacity(len);
    for _ in 0..len {
        partitions.push(partition(cursor)?);
    }
    Ok(partitions)
}

fn partition(cursor: &mut Cursor<'_>) -> Result<TopicPartition, Malformed> {
    Ok(TopicPartition { topic: TopicId(cursor.u32("topic")?), partition: cursor.u32("partition")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation { number: 7, nonce: 99 };

    fn every_kind() -> Vec<Entry> {
        let at = TopicPartition::new(TopicId(3), 1);
        let id = TxnId { owner: OwnerId(5), attempt: 1, checkpoint: 2, sink: "s".to_string(), writer: 4 };
        let ended = Ended { producer: 8, epoch: 1, markers: vec![(at, 17), (at, 18)] };
        vec![
            Entry::Append { at, wall: 12, batch: Arc::new(vec![1, 2, 3]) },
            Entry::Roll { at, base: 5 },
            Entry::TopicCreated { topic: TopicId(3), partitions: 2, name: "t".to_string() },
            Entry::ProducerBlock { end: 2000 },
            Entry::Claim { owner: OwnerId(5), attempt: 1 },
            Entry::Begin { id: Arc::new(id.clone()), producer: 8, epoch: 1, wall: -3 },
            Entry::Prepare { producer: 8, wall: 9 },
            Entry::End { outcome: Outcome::Committed, wall: 10, ended: vec![ended.clone(), ended] },
            Entry::Forget { ids: vec![id.clone(), id] },
            Entry::ForgetProducers { at, producers: vec![1, 2] },
            Entry::GroupOffsets {
                producer: Some(3),
                group: "g".to_string(),
                wall: 4,
                offsets: vec![
                    OffsetCommit { at, offset: Offset(5), metadata: "m".to_string() },
                    (at, Offset(6)).into(),
                ],
            },
            Entry::GroupOffsets { producer: None, group: "h".to_string(), wall: 4, offsets: vec![] },
            Entry::GroupDeleted { group: "g".to_string() },
            Entry::Client {
                id: "c".to_string(),
                state: ClientState {
                    producer: 4,
                    epoch: 5,
                    last_epoch: 4,
                    previous: -1,
                    timeout_ms: 60_000,
                    outcome: Some(Outcome::Aborted),
                    since: 7,
                },
            },
            Entry::ClientTxn { producer: 4, wall: 8, partitions: vec![at, at] },
            Entry::ClientForgotten { id: "c".to_string() },
            Entry::OffsetsDeleted { group: "g".to_string(), partitions: vec![at] },
            Entry::Membership { group: "g".to_string(), members: vec![1, 2, 3] },
            Entry::TopicDeleted { topic: TopicId(3) },
            Entry::PartitionsAdded { topic: TopicId(3), partitions: 9 },
            Entry::LogStart { at, start: 77 },
            Entry::Settings { topic: TopicId(3), settings: vec![("k".to_string(), "v".to_string())] },
        ]
    }

    fn decode_all(frame: &[u8]) -> Vec<Entry> {
        let header = FrameHeader::decode(frame).expect("a header");
        assert!(header.is_intact(frame));
        let mut cursor = Cursor::new(&frame[FRAME_HEADER_BYTES..header.frame_bytes()]);
        let entries = (0..header.entries).map(|_| Entry::decode(&mut cursor).expect("well formed")).collect();
        assert!(cursor.is_empty());
        entries
    }

    #[test]
    fn every_kind_of_entry_is_read_back_and_has_the_size_it_says() {
        let mut builder = FrameBuilder::default();
        builder.begin();
        for entry in every_kind() {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            assert_eq!(bytes.len(), entry.encoded_bytes(), "{entry:?}");
            builder.push(&entry);
        }
        let frame = builder.finish(GENERATION, 4096, 4096);
        assert_eq!(frame.len() % BLOCK_BYTES, 0);
        assert_eq!(decode_all(frame), every_kind());
    }

    #[test]
    fn no_flipped_bit_and_no_cut_of_a_frame_passes_for_it() {
        let mut builder = FrameBuilder::default();
        builder.begin();
        every_kind().iter().for_each(|e| builder.push(e));
        let good = builder.finish(GENERATION, 4096, 0).to_vec();
        let len = FrameHeader::decode(&good).expect("a header").frame_bytes();
        for byte in 0..len {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            let intact = FrameHeader::decode(&bad).is_some_and(|h| h.is_intact(&bad));
            assert!(!intact, "byte {byte}");
            let cut = FrameHeader::decode(&good[..byte]).is_some_and(|h| h.is_intact(&good[..byte]));
            assert!(!cut, "cut at {byte}");
        }
    }

    #[test]
    fn malformed_entries_are_refused_at_every_cut() {
        for entry in every_kind() {
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert!(Entry::decode(&mut Cursor::new(&bytes[..len])).is_err(), "{entry:?} cut at {len}");
            }
        }
    }

    #[test]
    fn a_file_header_is_read_back_and_a_newer_one_is_named() {
        let header = FileHeader { generation: GENERATION, start: 8192, previous_end: 4096, previous: 6, durable: 8192 };
        let mut block = header.encode().as_slice().to_vec();
        assert_eq!(FileHeader::decode(&block), Ok(Some(header)));
        block[20] ^= 1;
        assert_eq!(FileHeader::decode(&block), Ok(None), "a damaged header is none");
        block[8] = 4;
        assert_eq!(FileHeader::decode(&block), Err(NewerFormat { found: 4 }));
        assert_eq!(FileHeader::decode(&[0; 4096]), Ok(None));
    }
}
