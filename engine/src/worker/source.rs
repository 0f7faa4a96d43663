//! A source instance inside timely: reads while there is room, cuts when the trigger says so.

use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, CrashPoints};

use crate::checkpoint::{Blob, Counters, PartTimes, SnapshotRef, SnapshotReport};
use crate::config::Limits;
use crate::element::Body;
use crate::id::{CheckpointId, InstanceId};
use crate::observe::{LastCount, Progress};
use crate::source::{Polled, SourceDriver};
use crate::time::Watermark;
use crate::worker::attempt::Failure;
use crate::worker::instance::FinalCounters;
use crate::worker::place::Alarm;
use crate::worker::ports::Ports;

/// One source instance and everything it needs at run time.
pub(crate) struct SourceInstance {
    pub(crate) id: InstanceId,
    pub(crate) name: String,
    pub(crate) driver: Box<dyn SourceDriver>,
    pub(crate) ports: Ports,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    pub(crate) activator: Alarm,
    pub(crate) ended: FinalCounters,
    pub(crate) progress: Arc<Progress>,
    pub(crate) crash: CrashPoints,
    pub(crate) clock: Arc<dyn Clock>,
    /// It has said that it has nothing left.
    pub(crate) exhausted: bool,
    pub(crate) over: bool,
}

impl SourceInstance {
    /// Barrier(n): what was read so far is before the cut.
    pub(crate) fn cut(&mut self, n: CheckpointId) -> Result<(), Failure> {
        let reached = self.clock.monotonic();
        self.ports.barrier(n, &self.crash);
        let mut blobs = vec![];
        for state in self.driver.positions() {
            let bytes = postcard::to_stdvec(&state).map_err(|e| Failure::Fatal(format!("{:?}: {e}", self.name)))?;
            blobs.push(Blob { name: state.split, bytes });
        }
        let snapshot = SnapshotRef {
            instance: self.id,
            chains: vec![],
            blobs,
            committables: vec![],
            counters: self.counters.clone(),
            exhausted: self.exhausted,
        };
        let times = PartTimes::at_once(reached, self.clock.monotonic());
        self.ports.report(n, SnapshotReport::Durable(snapshot), times);
        self.crash.reach("source.cut");
        Ok(())
    }

    /// No barrier will follow.
    pub(crate) fn finish(&mut self) {
        if !self.over {
            self.over = true;
            self.ports.end();
            self.count_last();
        }
    }

    fn count_last(&self) {
        let last = LastCount { instance: self.id, counters: self.counters.clone(), unconfirmed: 0 };
        self.ended.borrow_mut().push(last);
    }

    /// Nothing will follow: promises the end of event time, and says so to the trigger.
    fn exhaust(&mut self) {
        self.exhausted = true;
        self.ports.signal(&Body::Watermark(Watermark::MAX));
        self.ports.flush_signals();
        self.ports.ready(self.id);
    }

    /// Reads on. True when nothing is left for ever.
    pub(crate) fn read(&mut self) -> Result<bool, Failure> {
        if self.over || self.exhausted {
            self.ports.room();
            self.ports.flush_signals();
            return Ok(self.exhausted);
        }
        if self.progress.stop_requested() {
            // The last barrier comes after this was asked for; nothing may follow it, so nothing is read from here on.
            self.ports.room();
            self.ports.flush_signals();
            return Ok(false);
        }
        if self.progress.drain_requested() {
            self.exhaust();
            return Ok(true);
        }
        for _ in 0..self.limits.batches_per_step {
            if self.ports.room() == 0 {
                // Returning credit activates us.
                return Ok(false);
            }
            match self.driver.poll(self.limits.batch_records)? {
                Polled::Records(batch) => {
                    let records = batch.len() as u64;
                    self.counters.emitted[0] += records;
                    self.progress.read(records);
                    self.ports.records(0, batch);
                }
                Polled::Wait(again) => {
                    if let Some(ms) = again {
                        self.activator.activate_after(Duration::from_millis(ms));
                    }
                    return Ok(false);
                }
                Polled::Exhausted => {
                    self.exhaust();
                    return Ok(true);
                }
            }
        }
        self.activator.activate();
        Ok(false)
    }
}

/// As of an operator's instance.
impl Drop for SourceInstance {
    fn drop(&mut self) {
        if !self.over {
            self.count_last();
        }
    }
}
