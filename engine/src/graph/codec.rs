//! Records of an edge as bytes, made where their type is known: what lets a barrier overtake them (I-4).
//!
//! An edge between workers always has a codec, because its records must be [`Data`] anyway. An edge within a worker has one
//! only if the job asks for it ([`Stream::overtakable`](super::Stream::overtakable)): its records may be of any type, and nobody
//! knows their keys but the job.
//!
//! Bytes are postcard, without types; the schema fingerprint beside them says whose they are.

use std::marker::PhantomData;

use crate::element::{Batch, Data};
use crate::exchange::{CanonicalKey, GroupAssignment, group_of};
use crate::id::WorkerIndex;
use crate::state::schema_fingerprint;

/// Turns the records of one edge into bytes and back.
pub(crate) trait EdgeCodec {
    /// The fingerprint of their type.
    fn schema(&self) -> u64;
    /// Appends the bytes of a batch.
    fn encode(&self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), String>;
    /// The batch of `records` records that was encoded to `bytes`.
    fn decode(&self, records: u32, bytes: &[u8]) -> Result<Batch, String>;
    /// Of a decoded batch that an instance of another number of workers had before it, what `worker` takes now: the records of
    /// its keys. `None` if they have no key: where a later record of the same origin will pass, nobody knows.
    fn share(&self, batch: Batch, assignment: GroupAssignment, worker: WorkerIndex) -> Option<Batch>;
}

/// For edges within a worker.
pub(crate) struct LocalCodec<R> {
    /// The hash of a record's key, by which its sender was found.
    key_hash: Option<KeyHash<R>>,
}

/// Gives the hash of a record's key.
pub(crate) type KeyHash<R> = Box<dyn Fn(&R) -> u64>;

impl<R> LocalCodec<R> {
    /// With the hash of a record's key, if it has one.
    pub(crate) fn new(key_hash: Option<KeyHash<R>>) -> LocalCodec<R> {
        LocalCodec { key_hash }
    }
}

impl<R: Data> EdgeCodec for LocalCodec<R> {
    fn schema(&self) -> u64 {
        schema_fingerprint::<(), R>(0)
    }

    fn encode(&self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), String> {
        encode_rows::<R>(batch, out)
    }

    fn decode(&self, records: u32, bytes: &[u8]) -> Result<Batch, String> {
        Ok(Batch::local(decode_rows::<R>(records, bytes)?))
    }

    fn share(&self, batch: Batch, assignment: GroupAssignment, worker: WorkerIndex) -> Option<Batch> {
        let key_hash = self.key_hash.as_ref()?;
        let mut rows = batch.take::<R>();
        rows.retain(|row| assignment.worker_of(group_of(key_hash(row), assignment.groups())) == worker);
        Some(Batch::local(rows))
    }
}

/// For edges between workers, divided by key.
pub(crate) struct KeyedCodec<K, V>(PhantomData<fn() -> (K, V)>);

impl<K, V> Default for KeyedCodec<K, V> {
    fn default() -> Self {
        KeyedCodec(PhantomData)
    }
}

impl<K: Data + CanonicalKey, V: Data> EdgeCodec for KeyedCodec<K, V> {
    fn schema(&self) -> u64 {
        schema_fingerprint::<K, V>(0)
    }

    fn encode(&self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), String> {
        // Bytes if it has come from another process.
        batch.encode(out)
    }

    fn decode(&self, records: u32, bytes: &[u8]) -> Result<Batch, String> {
        Ok(Batch::wire(decode_rows::<(K, V)>(records, bytes)?))
    }

    fn share(&self, batch: Batch, assignment: GroupAssignment, worker: WorkerIndex) -> Option<Batch> {
        let mut rows = batch.take_wire::<(K, V)>();
        rows.retain(|(key, _)| assignment.worker_of(group_of(key.key_hash(), assignment.groups())) == worker);
        Some(Batch::wire(rows))
    }
}

fn encode_rows<R: Data>(batch: &Batch, out: &mut Vec<u8>) -> Result<(), String> {
    let rows = batch.rows::<R>().expect("the graph's builder connects equal types only");
    let taken = std::mem::take(out);
    *out = postcard::to_extend(rows, taken).map_err(|e| e.to_string())?;
    Ok(())
}

fn decode_rows<R: Data>(records: u32, bytes: &[u8]) -> Result<Vec<R>, String> {
    // The length is looked at before anything is made of it.
    let (length, _) = postcard::take_from_bytes::<u64>(bytes).map_err(|e| e.to_string())?;
    if length != u64::from(records) {
        return Err(format!("{records} records expected, {length} found"));
    }
    match postcard::take_from_bytes::<Vec<R>>(bytes) {
        Ok((rows, [])) => Ok(rows),
        Ok((_, rest)) => Err(format!("{} bytes are left over", rest.len())),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::exchange::KeyGroups;

    #[test]
    fn records_come_back_and_wrong_bytes_are_refused() {
        let codec = LocalCodec::<(String, u64)>::new(None);
        let rows = vec![("a".to_string(), 1u64), ("b".to_string(), 2)];
        let mut bytes = vec![];
        codec.encode(&Batch::local(rows.clone()), &mut bytes).expect("it encodes");
        assert_eq!(codec.decode(2, &bytes).expect("whole").take::<(String, u64)>(), rows);
        for len in 0..bytes.len() {
            codec.decode(2, &bytes[..len]).expect_err("cut short");
        }
        codec.decode(3, &bytes).expect_err("another number");
        bytes.push(0);
        codec.decode(2, &bytes).expect_err("added to");
        // A vector of nothing, as long as can be: refused by its length, not counted out.
        LocalCodec::<()>::new(None).decode(1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).expect_err("too long");
    }

    #[test]
    fn every_record_goes_to_exactly_one_worker_whatever_their_number() {
        let keyed = KeyedCodec::<u64, u64>::default();
        let local = LocalCodec::<(u64, u64)>::new(Some(Box::new(|row| row.0.key_hash())));
        let anybody = LocalCodec::<u64>::new(None);
        for workers in 1..=5 {
            let assignment = GroupAssignment::new(KeyGroups::default(), NonZeroU32::new(workers).expect("not zero"));
            let mut seen = vec![];
            for worker in (0..workers).map(WorkerIndex) {
                let rows: Vec<(u64, u64)> = (0..200).map(|i| (i % 50, i)).collect();
                let mine = keyed.share(Batch::wire(rows.clone()), assignment, worker).expect("they have keys");
                let mine = mine.take_wire::<(u64, u64)>();
                let same = local.share(Batch::local(rows), assignment, worker).expect("they have keys");
                assert_eq!(same.take::<(u64, u64)>(), mine, "equal keys go to the same worker on every edge");
                assert!(anybody.share(Batch::local(vec![7u64]), assignment, worker).is_none());
                assert!(mine.is_sorted_by_key(|row| row.1), "in their order");
                seen.extend(mine.into_iter().map(|row| row.1));
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..200).collect::<Vec<_>>());
        }
    }
}
