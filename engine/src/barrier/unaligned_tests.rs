use std::collections::BTreeSet;

use super::*;

const FIRST: CheckpointId = CheckpointId(5);

/// What a sender puts on a channel. Records and watermarks are told apart by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Frame {
    Record(u8),
    Watermark(u8),
    Barrier(CheckpointId),
    End,
}

/// A mistake of the caller, to see that the walk would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// What arrives after the cut and before its barrier isn't recorded.
    LateArrivalsLost,
    /// What stands in the queues at the cut isn't recorded.
    QueuesLost,
    /// What stands behind the barrier in a queue is recorded too.
    RecordedPastTheBarrier,
    /// Watermarks aren't recorded.
    WatermarksLost,
    /// Frames of a held channel are processed.
    HeldProcessed,
    /// Frames of fixed channels are overtaken as well.
    FixedOvertaken,
    /// The barrier stays in the queue after the cut.
    BarrierKept,
}

/// An instance with its queues, as the driver has it, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Instance {
    machine: Overtaker,
    /// Per channel how many frames have arrived.
    sent: Vec<usize>,
    queues: Vec<Vec<Frame>>,
    processed: Vec<Vec<Frame>>,
    /// Per cut and channel: what had been processed since the start, then what was recorded.
    snapshots: Vec<Vec<Vec<Frame>>>,
    ended: bool,
}

struct Walk {
    channels: Vec<Vec<Frame>>,
    fixed: Vec<bool>,
    fault: Fault,
    /// Overtaking is tried whenever it can be, and never held back (unaligned); otherwise at any moment or never (aligned with a
    /// time-out).
    at_once: bool,
    seen: BTreeSet<u64>,
    overtaken: usize,
    recorded: usize,
    ends: usize,
}

fn digest(instance: &Instance) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    instance.hash(&mut hasher);
    hasher.finish()
}

impl Walk {
    /// Every order of arrivals, processing and overtaking.
    fn all_orders(channels: &[Vec<Frame>], fixed: &[bool], at_once: bool, fault: Fault) -> Result<Walk, String> {
        let count = channels.len();
        let mut walk = Walk {
            channels: channels.to_vec(),
            fixed: fixed.to_vec(),
            fault,
            at_once,
            seen: BTreeSet::new(),
            overtaken: 0,
            recorded: 0,
            ends: 0,
        };
        let fixed = match fault {
            Fault::FixedOvertaken => vec![false; count],
            _ => fixed.to_vec(),
        };
        let start = Instance {
            machine: Overtaker::new(&fixed, FIRST, FIRST),
            sent: vec![0; count],
            queues: vec![vec![]; count],
            processed: vec![vec![]; count],
            snapshots: vec![],
            ended: false,
        };
        let mut open = vec![start];
        while let Some(instance) = open.pop() {
            if walk.seen.insert(digest(&instance)) {
                walk.steps(&instance, &mut open)?;
            }
        }
        Ok(walk)
    }

    fn steps(&mut self, instance: &Instance, open: &mut Vec<Instance>) -> Result<(), String> {
        if let Some(n) = instance.machine.overtakable() {
            let mut after = instance.clone();
            self.overtake(&mut after, n)?;
            open.push(after);
            if self.at_once {
                return Ok(());
            }
        }
        let mut moved = false;
        for channel in 0..self.channels.len() {
            if let Some(frame) = self.channels[channel].get(instance.sent[channel]) {
                let mut after = instance.clone();
                self.arrive(&mut after, channel, *frame)?;
                open.push(after);
                moved = true;
            }
            let held = instance.machine.held(index(channel)) && self.fault != Fault::HeldProcessed;
            if !instance.queues[channel].is_empty() && !held {
                let mut after = instance.clone();
                self.process(&mut after, channel)?;
                open.push(after);
                moved = true;
            }
        }
        if !moved {
            self.judge_the_end(instance)?;
        }
        Ok(())
    }

    fn arrive(&mut self, at: &mut Instance, channel: usize, frame: Frame) -> Result<(), String> {
        at.sent[channel] += 1;
        let queued = match frame {
            Frame::Barrier(n) => at.machine.arrived(index(channel), n).map_err(|e| e.to_string())? == Arrival::Queue,
            Frame::End => {
                at.machine.end_arrived(index(channel)).map_err(|e| e.to_string())?;
                true
            }
            Frame::Record(_) | Frame::Watermark(_) => {
                let lost = self.fault == Fault::LateArrivalsLost
                    || self.fault == Fault::WatermarksLost && matches!(frame, Frame::Watermark(_));
                if at.machine.records(index(channel)) && !lost {
                    at.snapshots.last_mut().ok_or("recorded without a cut")?[channel].push(frame);
                    self.recorded += 1;
                }
                true
            }
        };
        if queued || self.fault == Fault::BarrierKept {
            at.queues[channel].push(frame);
        }
        self.settle(at)
    }

    fn process(&mut self, at: &mut Instance, channel: usize) -> Result<(), String> {
        let outcome = match at.queues[channel].remove(0) {
            frame @ (Frame::Record(_) | Frame::Watermark(_)) => {
                at.processed[channel].push(frame);
                return Ok(());
            }
            Frame::Barrier(n) => at.machine.reached(index(channel), n),
            Frame::End => at.machine.end_reached(index(channel)),
        };
        match outcome.map_err(|e| e.to_string())? {
            Alignment::Wait => {}
            Alignment::Cut(n) => self.cut(at, n)?,
            Alignment::Ended => at.ended = true,
        }
        self.settle(at)
    }

    fn overtake(&mut self, at: &mut Instance, n: CheckpointId) -> Result<(), String> {
        let held: Vec<bool> = (0..at.queues.len()).map(|i| at.machine.held(index(i))).collect();
        if at.machine.overtake() != Some(n) {
            return Err("it took back that it would overtake".to_string());
        }
        self.cut(at, n)?;
        self.overtaken += 1;
        // The barrier of a held channel is no more in its queue: everything there is behind it.
        for (channel, queue) in at.queues.iter_mut().enumerate().filter(|(channel, _)| !held[*channel]) {
            let barrier = queue.iter().position(|frame| *frame == Frame::Barrier(n));
            let end = match self.fault {
                Fault::RecordedPastTheBarrier => queue.len(),
                _ => barrier.unwrap_or(queue.len()),
            };
            let before: Vec<Frame> = queue[..end]
                .iter()
                .copied()
                .filter(|frame| match frame {
                    Frame::Record(_) => true,
                    Frame::Watermark(_) => self.fault != Fault::WatermarksLost,
                    Frame::Barrier(_) | Frame::End => false,
                })
                .collect();
            if self.fixed[channel] && !before.is_empty() {
                return Err(format!("channel {channel} can't be recorded, and was overtaken"));
            }
            if self.fault != Fault::QueuesLost {
                self.recorded += before.len();
                at.snapshots.last_mut().expect("just cut")[channel].extend(before);
            }
            if let Some(barrier) = barrier.filter(|_| self.fault != Fault::BarrierKept) {
                queue.remove(barrier);
            }
        }
        self.settle(at)
    }

    fn cut(&self, at: &mut Instance, n: CheckpointId) -> Result<(), String> {
        self.judge_last(at)?;
        if n.0 != FIRST.0 + at.snapshots.len() as u64 {
            return Err(format!("checkpoint {n} was cut as number {}", at.snapshots.len()));
        }
        at.snapshots.push(at.processed.clone());
        Ok(())
    }

    /// What is due without a further event.
    fn settle(&mut self, at: &mut Instance) -> Result<(), String> {
        while let Some(n) = at.machine.overdue() {
            self.cut(at, n)?;
        }
        if at.machine.recording().is_none() { self.judge_last(at) } else { Ok(()) }
    }

    /// The definition: on every channel exactly what stands before the barrier, or all if none comes.
    fn judge_last(&self, at: &Instance) -> Result<(), String> {
        let Some(snapshot) = at.snapshots.last() else { return Ok(()) };
        let n = CheckpointId(FIRST.0 + at.snapshots.len() as u64 - 1);
        for (channel, frames) in self.channels.iter().enumerate() {
            let end = frames.iter().position(|f| *f == Frame::Barrier(n)).unwrap_or(frames.len());
            let before = |f: &&Frame| matches!(f, Frame::Record(_) | Frame::Watermark(_));
            let expected: Vec<Frame> = frames[..end].iter().filter(before).copied().collect();
            if snapshot[channel] != expected {
                return Err(format!("checkpoint {n}, channel {channel}: {:?} for {expected:?}", snapshot[channel]));
            }
        }
        Ok(())
    }

    fn judge_the_end(&mut self, at: &Instance) -> Result<(), String> {
        let barriers = self.channels.iter().flatten().filter_map(|f| match f {
            Frame::Barrier(id) => Some(id.0 + 1 - FIRST.0),
            _ => None,
        });
        let most = barriers.max().unwrap_or(0) as usize;
        if !at.ended || at.snapshots.len() != most || at.machine.recording().is_some() {
            return Err(format!("stuck with {} of {most} cuts at {:?}", at.snapshots.len(), at.machine));
        }
        self.ends += 1;
        Ok(())
    }
}

fn index(channel: usize) -> ChannelIndex {
    ChannelIndex(channel as u32)
}

/// A channel with a record before each barrier and a watermark behind it, then `End`.
fn channel(barriers: u64) -> Vec<Frame> {
    let mut frames = vec![Frame::Record(0)];
    for i in 0..barriers {
        frames.push(Frame::Barrier(CheckpointId(FIRST.0 + i)));
        frames.push(if i % 2 == 0 { Frame::Watermark(i as u8) } else { Frame::Record(1 + i as u8) });
    }
    frames.push(Frame::End);
    frames
}

/// All ways to give each of `count` channels up to two barriers before its end, and to fix any of them.
fn all_worlds(count: usize) -> impl Iterator<Item = (Vec<Vec<Frame>>, Vec<bool>)> {
    (0..3usize.pow(count as u32)).flat_map(move |code| {
        let channels: Vec<_> = (0..count).map(|i| channel((code / 3usize.pow(i as u32) % 3) as u64)).collect();
        (0..1usize << count).map(move |fixed| (channels.clone(), (0..count).map(|i| fixed >> i & 1 == 1).collect()))
    })
}

#[test]
fn in_every_order_what_was_processed_and_what_was_recorded_is_what_stands_before_the_barrier() {
    let (mut states, mut overtaken, mut recorded) = (0, 0, 0);
    for at_once in [true, false] {
        for (channels, fixed) in (1..=2).flat_map(all_worlds) {
            let walk = Walk::all_orders(&channels, &fixed, at_once, Fault::None).expect("no order breaks it");
            assert!(walk.ends > 0);
            (states, overtaken, recorded) =
                (states + walk.seen.len(), overtaken + walk.overtaken, recorded + walk.recorded);
        }
    }
    // Three channels, with two barriers on each and on all but one.
    for (third, fixed) in [(2, [false; 3]), (1, [false; 3]), (2, [false, true, false])] {
        let channels = [channel(2), channel(2), channel(third)];
        let walk = Walk::all_orders(&channels, &fixed, true, Fault::None).expect("no order breaks it");
        states += walk.seen.len();
    }
    assert!(states > 20_000 && overtaken > 500 && recorded > 1_000, "{states} states, {overtaken}, {recorded}");
}

#[test]
fn a_mistake_of_the_caller_shows_itself_in_some_order() {
    let found = |fault| {
        let channels = [channel(2), channel(2)];
        let fixed = [false, fault == Fault::FixedOvertaken];
        Walk::all_orders(&channels, &fixed, true, fault).err().unwrap_or_else(|| panic!("{fault:?} isn't found"))
    };
    for fault in [Fault::LateArrivalsLost, Fault::QueuesLost, Fault::RecordedPastTheBarrier, Fault::WatermarksLost] {
        let text = found(fault);
        assert!(text.starts_with("checkpoint"), "{fault:?}: {text}");
    }
    assert!(found(Fault::HeldProcessed).contains("held"));
    assert!(found(Fault::FixedOvertaken).contains("can't be recorded"));
    assert!(found(Fault::BarrierKept).contains("came again"));
}

#[test]
fn never_asked_to_overtake_it_decides_as_the_aligner_does() {
    use crate::barrier::Aligner;
    for (channels, _) in all_worlds(2) {
        // Arrivals first, then every order of processing.
        let mut open = vec![(Overtaker::new(&[false; 2], FIRST, FIRST), Aligner::new(2, FIRST), [0usize; 2])];
        for (channel, frames) in channels.iter().enumerate() {
            for frame in frames {
                match frame {
                    Frame::Barrier(n) => {
                        assert_eq!(open[0].0.arrived(index(channel), *n), Ok(Arrival::Queue));
                    }
                    Frame::End => open[0].0.end_arrived(index(channel)).expect("one end"),
                    Frame::Record(_) | Frame::Watermark(_) => assert!(!open[0].0.records(index(channel))),
                }
            }
        }
        while let Some((machine, aligner, places)) = open.pop() {
            for at in 0..2 {
                assert_eq!(machine.held(index(at)), aligner.held(index(at)));
                let Some(frame) = channels[at].get(places[at]).filter(|_| !machine.held(index(at))) else { continue };
                let (mut machine, mut aligner, mut places) = (machine.clone(), aligner.clone(), places);
                places[at] += 1;
                match frame {
                    Frame::Record(_) | Frame::Watermark(_) => {}
                    Frame::Barrier(n) => {
                        assert_eq!(machine.reached(index(at), *n), aligner.barrier(index(at), *n));
                    }
                    Frame::End => assert_eq!(machine.end_reached(index(at)), aligner.end(index(at))),
                }
                open.push((machine, aligner, places));
            }
        }
    }
}

#[test]
fn before_its_number_nothing_is_overtaken() {
    let mut machine = Overtaker::new(&[false; 2], CheckpointId(4), CheckpointId(5));
    let (a, b) = (index(0), index(1));
    machine.arrived(a, CheckpointId(4)).expect("the next");
    assert_eq!((machine.coming(), machine.overtakable()), (Some(CheckpointId(4)), None));
    assert_eq!(machine.reached(a, CheckpointId(4)), Ok(Alignment::Wait));
    machine.arrived(a, CheckpointId(5)).expect("the next");
    assert_eq!(machine.overtake(), None);
    machine.arrived(b, CheckpointId(4)).expect("the next");
    assert_eq!(machine.reached(b, CheckpointId(4)), Ok(Alignment::Cut(CheckpointId(4))));
    assert_eq!(machine.overtake(), Some(CheckpointId(5)));
    assert_eq!((machine.recording(), machine.records(a), machine.records(b)), (Some(CheckpointId(5)), false, true));
}

#[test]
fn frames_out_of_order_are_refused_and_change_nothing() {
    let mut machine = Overtaker::new(&[false; 2], FIRST, FIRST);
    let (a, b) = (index(0), index(1));
    let before = machine.clone();
    assert!(matches!(machine.arrived(a, CheckpointId(6)), Err(AlignError::Skipped { .. })));
    assert!(matches!(machine.arrived(a, CheckpointId(4)), Err(AlignError::Repeated { .. })));
    assert!(matches!(machine.arrived(index(2), FIRST), Err(AlignError::NoSuchChannel { .. })));
    assert!(matches!(machine.reached(a, FIRST), Err(AlignError::Repeated { .. })), "it hasn't arrived");
    assert_eq!(machine, before);
    machine.arrived(a, FIRST).expect("the next");
    machine.reached(a, FIRST).expect("the next");
    assert!(matches!(machine.reached(a, FIRST), Err(AlignError::WhileHeld { .. })));
    assert!(matches!(machine.end_reached(a), Err(AlignError::WhileHeld { .. })));
    machine.end_arrived(b).expect("once");
    assert!(matches!(machine.end_arrived(b), Err(AlignError::AfterEnd { .. })));
    assert!(matches!(machine.arrived(b, FIRST), Err(AlignError::AfterEnd { .. })));
}
