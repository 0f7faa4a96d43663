//! The channel state of the checkpoint an attempt starts from, for one instance (I-4).
//!
//! With as many workers as then, an instance gets back what stood before it. With another number its records are dealt out anew, to
//! the owners of their key groups; those without a key refuse. A record far up may then share no channel with a newer one of its
//! key, so the attempt *closes* the checkpoint first: its barrier comes once more, from the sources, aligned, and nothing new
//! passes an instance before all that was in flight has ([`Restore::closing_barrier`]).

use std::num::NonZeroU32;
use std::rc::Rc;

use crate::checkpoint::{CHANNEL_STATE, StateChain};
use crate::graph::codec::EdgeCodec;
use crate::id::{CheckpointId, InstanceId, WorkerIndex};
use crate::in_flight::{Item, Recorded, Recording, Restored, in_time_order, schema};
use crate::snapshot::StateFileReader;
use crate::worker::attempt::Failure;
use crate::worker::restore::Restore;

/// An input port, as far as channel state asks.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) by_key: bool,
    pub(crate) codec: Option<Rc<dyn EdgeCodec>>,
}

impl Port {
    /// How many channels come in on it.
    fn channels(&self, workers: NonZeroU32) -> u32 {
        if self.by_key { workers.get() } else { 1 }
    }
}

impl Restore {
    /// The barrier by which the checkpoint that was gone back to is closed before the first new one; `None` if nothing was in
    /// flight, or if everything goes back to where it was.
    pub(crate) fn closing_barrier(&self, first: CheckpointId) -> Option<CheckpointId> {
        let manifest = self.manifest.as_ref()?;
        let in_flight = manifest.snapshots.iter().any(|snapshot| snapshot.channel_state().is_some());
        (in_flight && manifest.workers != self.assignment.workers().get()).then(|| CheckpointId(first.0 - 1))
    }

    /// What an instance is given before anything new.
    pub(crate) fn in_flight(&self, id: InstanceId, ports: &[Port]) -> Result<Vec<Restored>, Failure> {
        let Some(manifest) = &self.manifest else { return Ok(vec![]) };
        let now = self.assignment.workers();
        let then = NonZeroU32::new(manifest.workers)
            .ok_or_else(|| Failure::Fatal("a manifest without workers".to_string()))?;
        let expected = schema(&ports.iter().map(|port| port.codec.clone()).collect::<Vec<_>>());
        let mut recorded = vec![];
        for from in (0..then.get()).map(WorkerIndex) {
            if then == now && from != id.worker {
                continue;
            }
            let snapshot = manifest.snapshot(InstanceId { operator: id.operator, worker: from });
            let Some(chain) = snapshot.and_then(|s| s.channel_state()) else { continue };
            if chain.schema != expected {
                let text = format!(
                    "the records in flight before {id} are of other types (fingerprint {:016x}, and this program's is \
                     {expected:016x}); finish the checkpoint with the program that took it: start it, and stop it again",
                    chain.schema
                );
                return Err(Failure::Incompatible(text));
            }
            let channels = ports.iter().map(|port| port.channels(then)).sum();
            recorded.push((from, self.recorded(chain, channels)?));
        }
        let mut restored = vec![];
        for (_, item) in in_time_order(recorded) {
            let (channel, records, bytes) = match item {
                Item::Watermark(t) => {
                    restored.push(Restored::Watermark(t));
                    continue;
                }
                Item::Records { channel, records, bytes } => (channel, records, bytes),
            };
            let (port, sender, first) = place_of(ports, channel, then, now);
            let broken = |text: String| Failure::Fatal(format!("the records in flight before {id}: {text}"));
            let codec = port.codec.as_ref().ok_or_else(|| broken("their edge has no codec".to_string()))?;
            let mut batch = codec.decode(records, &bytes).map_err(broken)?;
            if then != now {
                batch = codec.share(batch, self.assignment, id.worker).ok_or_else(|| unkeyed(id, then, now))?;
            }
            if !batch.is_empty() {
                let channel = first + (sender % port.channels(now)) as usize;
                restored.push(Restored::Records { channel, batch });
            }
        }
        Ok(restored)
    }

    fn recorded(&self, chain: &StateChain, channels: u32) -> Result<Recorded, Failure> {
        let store = self.store.as_ref().ok_or_else(|| Failure::Fatal("a manifest without its store".to_string()))?;
        let mut recording = Recording::default();
        for file in &chain.files {
            let below = |text: String| Failure::Fatal(format!("{}/state/{text}", store.place()));
            let opened = store.open_state_file(&file.name).map_err(Failure::from)?;
            let mut reader = StateFileReader::open(opened, file).map_err(|e| below(e.to_string()))?;
            if reader.header().state != CHANNEL_STATE || reader.header().schema != chain.schema {
                return Err(below(format!("{} is not the channel state that the manifest names", file.name)));
            }
            while let Some(block) = reader.next_block().map_err(|e| below(e.to_string()))? {
                recording.take(block.bytes).map_err(|e| below(format!("{}: {e}", file.name)))?;
            }
        }
        if recording.channels() != channels {
            let text = format!("channel state of {} channels, where {channels} were", recording.channels());
            return Err(Failure::Fatal(text));
        }
        Ok(recording.finish())
    }
}

fn unkeyed(id: InstanceId, then: NonZeroU32, now: NonZeroU32) -> Failure {
    Failure::Incompatible(format!(
        "records without a key were in flight before {id}, on {then} workers, and nobody knows to which of {now} they belong; run          the job with {then} workers and stop it (the last checkpoint has nothing in flight), then go on with {now}. Streams          behind a keyed operator that say `overtakable_by` instead of `overtakable` have keys"
    ))
}

/// The port of a former channel, its number within the port, and the first channel of that port now.
fn place_of(ports: &[Port], channel: u32, then: NonZeroU32, now: NonZeroU32) -> (&Port, u32, usize) {
    let (mut before, mut first) = (0, 0);
    for port in ports {
        let had = port.channels(then);
        if channel < before + had {
            return (port, channel - before, first);
        }
        before += had;
        first += port.channels(now) as usize;
    }
    unreachable!("the number of channels was compared, and each entry's channel with it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_channel_is_found_again_under_any_number_of_workers() {
        let port = |by_key| Port { by_key, codec: None };
        let ports = [port(true), port(false), port(true)];
        let workers = |n| NonZeroU32::new(n).expect("not zero");
        let found = |channel, then, now| {
            let (port, sender, first) = place_of(&ports, channel, workers(then), workers(now));
            (port.by_key, sender, first)
        };
        assert_eq!(found(0, 3, 2), (true, 0, 0));
        assert_eq!(found(2, 3, 2), (true, 2, 0));
        assert_eq!(found(3, 3, 2), (false, 0, 2));
        assert_eq!(found(4, 3, 2), (true, 0, 3));
        assert_eq!(found(6, 3, 2), (true, 2, 3));
        assert_eq!(found(2, 1, 4), (true, 0, 5));
    }
}
