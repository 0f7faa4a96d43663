//! Which transactions were aborted in a partition: recorded with their checksums, checked when first read, looked up.

use std::sync::Arc;

use cutwater_platform::{IoContext, Open};

use super::abort_sums::{self, SUM_BYTES, Sum};
use super::names::Kind;
use super::open_files::Handle;
use super::partition_files::{Aborts, PartitionFiles};
use super::transaction_index::{self, AbortedTxn};
use super::{LogEnd, SegmentError};

impl PartitionFiles {
    /// Records an aborted transaction in the segment that holds its marker. Write the marker first.
    ///
    /// # Errors
    /// Its marker isn't in the files, or not behind the marker of the abort before it; the system's.
    ///
    /// # Panics
    /// If the entry is one that no transaction can have.
    pub fn append_abort(&self, aborted: AbortedTxn) -> Result<(), SegmentError> {
        let bytes = aborted.to_bytes();
        assert!(AbortedTxn::from_bytes(&bytes) == Some(aborted), "no transaction is like {aborted:?}");
        let _writer = self.lock_writer();
        let end = self.writable_end()?;
        let order = |expected| SegmentError::Order { what: "an abort", expected, found: aborted.last_offset };
        if aborted.last_offset >= end.next_offset {
            return Err(order(end.next_offset - 1));
        }
        let (place, base) = {
            let state = self.state();
            let place = state.floor_segment(aborted.last_offset);
            let place = place.ok_or(order(state.segments.first().map_or(0, |segment| segment.base)))?;
            (place, state.segments[place].base)
        };
        let handle = self.handle(base, Kind::Aborts, Open::Create)?;
        let sums = self.handle(base, Kind::AbortSums, Open::Create)?;
        let entries = transaction_index::count(&handle)?;
        let chain = chain_at(&sums, entries)?;
        if let Some(last) = entries.checked_sub(1) {
            let last = transaction_index::entry(&handle, last)?.last_offset;
            if last >= aborted.last_offset {
                return Err(order(last + 1));
            }
        }
        let position = entries * transaction_index::ENTRY_BYTES as u64;
        handle.for_writing().write_all_at(&bytes, position).at("write", &handle.path)?;
        let sum = Sum::after(chain, &bytes, aborted.last_offset).to_bytes();
        let sum_at = entries * abort_sums::SUM_BYTES as u64;
        sums.for_writing().write_all_at(&sum, sum_at).at("write", &sums.path).inspect_err(|_| {
            // Both or neither, so that it can be done again; a part of the sum is in the way as well.
            let _ = handle.for_writing().set_len(position);
            let _ = sums.for_writing().set_len(sum_at);
        })?;
        let mut state = self.state();
        state.names_dirty |= state.segments[place].aborts == Aborts::None;
        state.segments[place].aborts = Aborts::Entries(entries + 1);
        state.segments[place].aborts_dirty = true;
        state.segments[place].sums_dirty = true;
        Ok(())
    }

    /// Whether the abort whose marker is at `last_offset`, or a later one of its segment, is recorded.
    pub(crate) fn has_abort(&self, last_offset: i64) -> Result<bool, SegmentError> {
        let base = {
            let state = self.state();
            let Some(place) = state.floor_segment(last_offset) else { return Ok(false) };
            state.segments[place].base
        };
        let Some(handle) = self.if_there(base, Kind::Aborts)? else { return Ok(false) };
        let Some(last) = transaction_index::count(&handle)?.checked_sub(1) else { return Ok(false) };
        Ok(transaction_index::entry(&handle, last)?.last_offset >= last_offset)
    }

    /// The transactions that a reader of the offsets [`from`, `upper`) must leave out because they were aborted, by the
    /// order of their markers. Looks on into later segments as far as needed.
    ///
    /// # Errors
    /// A damaged file; the system's.
    pub fn aborted(&self, from: i64, upper: i64) -> Result<Vec<AbortedTxn>, SegmentError> {
        let _layout = self.read_layout();
        let with_aborts: Vec<(i64, Aborts)> = {
            let state = self.state();
            self.known_end(&state)?;
            let first = state.floor_segment(from).unwrap_or(0);
            let later = state.segments.iter().skip(first).filter(|segment| segment.aborts != Aborts::None);
            later.map(|segment| (segment.base, segment.aborts)).collect()
        };
        let mut found = Vec::new();
        for (base, aborts) in with_aborts {
            let entries = match aborts {
                Aborts::Entries(entries) => entries,
                Aborts::None | Aborts::Unread => self.check_aborts(base)?,
            };
            if entries == 0 {
                continue;
            }
            let handle = self.handle(base, Kind::Aborts, Open::Write)?;
            if transaction_index::search(&handle, entries, from, upper, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    /// Compares a sealed segment's index with its checksums, once: how many entries it has.
    fn check_aborts(&self, base: i64) -> Result<u64, SegmentError> {
        let (index, sums) = (self.if_there(base, Kind::Aborts)?, self.if_there(base, Kind::AbortSums)?);
        let entries = abort_sums::check_sealed(index.as_deref(), sums.as_deref())?;
        let mut state = self.state();
        if let Some(segment) = state.segments.iter_mut().find(|segment| segment.base == base) {
            segment.aborts = Aborts::Entries(entries);
        }
        Ok(entries)
    }

    /// What is known of the active segment's index in a partition that ends at `end`.
    pub(super) fn aborts_up_to(&self, end: LogEnd) -> Result<Aborts, SegmentError> {
        let base = end.segment_base;
        let (index, sums) = (self.if_there(base, Kind::Aborts)?, self.if_there(base, Kind::AbortSums)?);
        if index.is_none() && sums.is_none() {
            return Ok(Aborts::None);
        }
        let entries = abort_sums::check_active(index.as_deref(), sums.as_deref(), end.next_offset)?;
        Ok(Aborts::Entries(entries))
    }

    /// Cuts the active segment's checksums to so many entries; true if they were longer. Makes them, durably and at once, for
    /// entries that an earlier program has written: half of them would look like fewer entries.
    pub(super) fn cut_sums(&self, base: i64, entries: u64) -> Result<bool, SegmentError> {
        if entries == 0 || self.if_there(base, Kind::AbortSums)?.is_some() {
            return self.cut(base, Kind::AbortSums, entries * SUM_BYTES as u64);
        }
        let index = self.handle(base, Kind::Aborts, Open::Write)?;
        let known = (0..entries).map(|n| transaction_index::entry(&index, n)).collect::<Result<Vec<_>, _>>()?;
        self.replace_index(base, Kind::AbortSums, &abort_sums::of_entries(&known))?;
        Ok(false)
    }

    fn if_there(&self, base: i64, kind: Kind) -> Result<Option<Arc<Handle>>, SegmentError> {
        match self.handle(base, kind, Open::Write) {
            Ok(handle) => Ok(Some(handle)),
            Err(SegmentError::Io(e)) if e.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The checksum of the entries so far, for the next one to go on from.
fn chain_at(sums: &Handle, entries: u64) -> Result<u32, SegmentError> {
    let found = sums.file.len().at("look at", &sums.path)?;
    let Some(last) = entries.checked_sub(1) else { return Ok(0) };
    let mut bytes = [0; SUM_BYTES];
    if found == entries * SUM_BYTES as u64 {
        sums.file.read_exact_at(&mut bytes, last * SUM_BYTES as u64).at("read", &sums.path)?;
        if let Some(sum) = Sum::from_bytes(&bytes) {
            return Ok(sum.chain);
        }
    }
    let what = format!("it vouches for {} of {entries} aborted transactions", found / SUM_BYTES as u64);
    Err(SegmentError::Corrupt { path: sums.path.clone(), position: found, what })
}
