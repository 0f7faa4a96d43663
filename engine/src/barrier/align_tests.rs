use std::collections::BTreeMap;

use super::*;

const FIRST: CheckpointId = CheckpointId(5);

/// What stands on a channel. Records are told apart by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Record,
    Barrier(CheckpointId),
    End,
}

/// A channel with a record, then so many barriers with records around each, then `End`.
fn channel(barriers: u64) -> Vec<Frame> {
    let mut frames = vec![Frame::Record];
    for i in 0..barriers {
        frames.push(Frame::Barrier(CheckpointId(FIRST.0 + i)));
        frames.push(Frame::Record);
    }
    frames.push(Frame::End);
    frames
}

/// Walks all orders in which an instance can process its channels, respecting `held`, and checks each cut against the
/// definition: on every channel everything before the barrier has been processed and nothing after it; on a channel
/// that ends without the barrier, everything.
///
/// Orders that lead to the same places are walked on once; that they then have the same aligner is checked.
struct Walk {
    channels: Vec<Vec<Frame>>,
    seen: BTreeMap<Vec<usize>, (Aligner, Vec<CheckpointId>)>,
    ends_reached: usize,
}

impl Walk {
    fn all_orders(channels: Vec<Vec<Frame>>) -> Walk {
        let mut walk = Walk { channels, seen: BTreeMap::new(), ends_reached: 0 };
        let start = vec![0; walk.channels.len()];
        walk.from(start, Aligner::new(walk.channels.len(), FIRST), vec![]);
        walk
    }

    fn from(&mut self, places: Vec<usize>, aligner: Aligner, cuts: Vec<CheckpointId>) {
        if let Some(before) = self.seen.get(&places) {
            assert_eq!(before, &(aligner, cuts), "the order decided at {places:?} of {:?}", self.channels);
            return;
        }
        self.seen.insert(places.clone(), (aligner.clone(), cuts.clone()));
        let mut moved = false;
        for index in 0..places.len() {
            let at = ChannelIndex(index as u32);
            let Some(frame) = self.channels[index].get(places[index]) else { continue };
            if aligner.held(at) {
                continue;
            }
            moved = true;
            let mut after = aligner.clone();
            let outcome = match frame {
                Frame::Record => Alignment::Wait,
                Frame::Barrier(id) => after.barrier(at, *id).expect("barriers come in order"),
                Frame::End => after.end(at).expect("one end"),
            };
            let mut places = places.clone();
            places[index] += 1;
            let mut cuts = cuts.clone();
            match outcome {
                Alignment::Wait => assert_eq!(after.next(), aligner.next(), "a cut was passed over in silence"),
                Alignment::Cut(id) => {
                    self.assert_consistent_cut(id, &places);
                    assert!(places.iter().enumerate().all(|(i, _)| !after.held(ChannelIndex(i as u32))));
                    cuts.push(id);
                }
                Alignment::Ended => {
                    assert!(after.all_ended() && places.iter().zip(&self.channels).all(|(p, c)| *p == c.len()));
                    self.ends_reached += 1;
                }
            }
            self.from(places, after, cuts);
        }
        if !moved {
            assert!(aligner.all_ended(), "all channels wait for each other at {places:?} of {:?}", self.channels);
            let most = self.channels.iter().flatten().filter_map(|f| match f {
                Frame::Barrier(id) => Some(*id),
                _ => None,
            });
            let expected: Vec<_> = (FIRST.0..=most.max().map_or(FIRST.0 - 1, |id| id.0)).map(CheckpointId).collect();
            assert_eq!(cuts, expected, "every checkpoint with a barrier is cut once, in order: {:?}", self.channels);
        }
    }

    fn assert_consistent_cut(&self, id: CheckpointId, places: &[usize]) {
        for (frames, place) in self.channels.iter().zip(places) {
            let expected = match frames.iter().position(|f| *f == Frame::Barrier(id)) {
                Some(barrier) => barrier + 1,
                None => frames.len(),
            };
            assert_eq!(*place, expected, "the cut for {id} at {places:?} of {:?}", self.channels);
        }
    }
}

/// All ways to give each of `count` channels up to three barriers before its end.
fn all_worlds(count: usize) -> impl Iterator<Item = Vec<Vec<Frame>>> {
    (0..4usize.pow(count as u32))
        .map(move |code| (0..count).map(|i| channel((code / 4usize.pow(i as u32) % 4) as u64)).collect())
}

#[test]
fn every_order_of_arrival_gives_consistent_cuts_and_none_hangs() {
    let mut states = 0;
    for count in 1..=3 {
        for channels in all_worlds(count) {
            let walk = Walk::all_orders(channels);
            assert!(walk.ends_reached > 0);
            states += walk.seen.len();
        }
    }
    assert!(states > 3_000, "only {states} states were visited");
}

#[test]
fn without_barriers_nothing_is_ever_held() {
    let mut aligner = Aligner::new(3, FIRST);
    for (index, outcome) in [(1, Alignment::Wait), (0, Alignment::Wait), (2, Alignment::Ended)] {
        assert!((0..3).all(|i| !aligner.held(ChannelIndex(i))));
        assert_eq!(aligner.aligning(), None);
        assert_eq!(aligner.end(ChannelIndex(index)), Ok(outcome));
    }
}

#[test]
fn the_channels_waited_for_are_named() {
    let mut aligner = Aligner::new(4, FIRST);
    aligner.end(ChannelIndex(3)).unwrap();
    aligner.barrier(ChannelIndex(1), FIRST).unwrap();
    assert_eq!(aligner.aligning(), Some(FIRST));
    assert_eq!(aligner.awaited().collect::<Vec<_>>(), [ChannelIndex(0), ChannelIndex(2)]);
}

/// What may be done to an aligner.
#[derive(Clone, Copy, Debug)]
enum Event {
    Barrier(u32, u64),
    End(u32),
}

/// All words of up to five events on two channels, against the grammar written down separately: on a channel barriers
/// rise by one from the first, nothing comes after End, nothing while held.
#[test]
fn any_frame_out_of_order_is_refused_by_name_and_changes_nothing() {
    let mut alphabet = vec![];
    for channel in 0..2 {
        alphabet.push(Event::End(channel));
        alphabet.extend((FIRST.0 - 1..FIRST.0 + 3).map(|id| Event::Barrier(channel, id)));
    }
    let mut refused = BTreeMap::new();
    explore(&alphabet, 5, Aligner::new(2, FIRST), [(0, false); 2], &mut refused);
    let kinds: Vec<&str> = refused.keys().copied().collect();
    assert_eq!(kinds, ["after end", "repeated", "skipped", "while held"], "all kinds were met: {refused:?}");
}

/// `model`: per channel how many barriers have come, and whether it has ended.
fn explore(
    alphabet: &[Event],
    depth: usize,
    aligner: Aligner,
    model: [(u64, bool); 2],
    refused: &mut BTreeMap<&'static str, usize>,
) {
    if depth == 0 {
        return;
    }
    let cuts = |model: [(u64, bool); 2]| {
        // Ended channels don't count; if both have ended, what the last open one had was cut.
        let open = model.iter().filter(|(_, ended)| !ended).map(|(barriers, _)| *barriers);
        open.min().unwrap_or(model[0].0.max(model[1].0))
    };
    for event in alphabet {
        let mut after = aligner.clone();
        let (channel, outcome) = match *event {
            Event::Barrier(channel, id) => (channel, after.barrier(ChannelIndex(channel), CheckpointId(id))),
            Event::End(channel) => (channel, after.end(ChannelIndex(channel))),
        };
        let (barriers, ended) = model[channel as usize];
        let expected = FIRST.0 + cuts(model);
        let wrong = if ended {
            Some("after end")
        } else if barriers > cuts(model) {
            Some("while held")
        } else if let Event::Barrier(_, id) = event
            && *id != expected
        {
            Some(if *id < expected { "repeated" } else { "skipped" })
        } else {
            None
        };
        let found = match outcome {
            Err(AlignError::AfterEnd { .. }) => Some("after end"),
            Err(AlignError::WhileHeld { .. }) => Some("while held"),
            Err(AlignError::Repeated { .. }) => Some("repeated"),
            Err(AlignError::Skipped { .. }) => Some("skipped"),
            Err(AlignError::NoSuchChannel { .. }) => Some("no such channel"),
            Ok(_) => None,
        };
        assert_eq!(found, wrong, "{event:?} after {model:?}");
        if let Some(kind) = wrong {
            assert_eq!(after, aligner, "a refused frame changed something");
            *refused.entry(kind).or_default() += 1;
            continue;
        }
        let mut model = model;
        match event {
            Event::Barrier(..) => model[channel as usize].0 += 1,
            Event::End(_) => model[channel as usize].1 = true,
        }
        assert_eq!(after.next().0, FIRST.0 + cuts(model), "{event:?} led to {model:?}");
        explore(alphabet, depth - 1, after, model, refused);
    }
}

#[test]
fn a_channel_outside_the_plan_is_refused() {
    let mut aligner = Aligner::new(1, FIRST);
    let error = AlignError::NoSuchChannel { channel: ChannelIndex(1), channels: 1 };
    assert_eq!(aligner.barrier(ChannelIndex(1), FIRST), Err(error));
    assert_eq!(aligner.end(ChannelIndex(1)), Err(error));
}
