use super::*;
use crate::time::EventTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Watermark(i64),
    Finish,
    Idle,
    Active,
}

const EVENTS: [Event; 5] = [Event::Watermark(1), Event::Watermark(2), Event::Finish, Event::Idle, Event::Active];

/// The definition, computed from the whole history each time: what the channel is after its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active(Watermark),
    Idle,
    Finished,
}

fn state_after(events: impl Iterator<Item = Event>) -> State {
    let mut highest = EventTime::MIN;
    let mut idle = false;
    for event in events {
        match event {
            Event::Watermark(t) => (highest, idle) = (highest.max(EventTime(t)), false),
            Event::Finish => return State::Finished,
            Event::Idle => idle = true,
            Event::Active => idle = false,
        }
    }
    if idle { State::Idle } else { State::Active(highest) }
}

/// The merged watermark and idleness after a history, by the words of the module's head: the highest, over all moments
/// so far, of the minimum over the channels active then.
fn definition(history: &[(usize, Event)], channels: usize, restored: Watermark) -> (Watermark, bool) {
    let mut merged = restored;
    let mut idle = false;
    for moment in 0..=history.len() {
        let states: Vec<State> = (0..channels)
            .map(|channel| state_after(history[..moment].iter().filter(|(at, _)| *at == channel).map(|(_, e)| *e)))
            .collect();
        let active = states.iter().filter_map(|s| if let State::Active(t) = s { Some(*t) } else { None }).min();
        idle = active.is_none() && states.contains(&State::Idle);
        let candidate = match active {
            Some(t) => Some(t),
            None if idle => None,
            None => Some(EventTime::MAX),
        };
        merged = merged.max(candidate.unwrap_or(merged));
    }
    (merged, idle)
}

fn apply(merger: &mut WatermarkMerger, channel: usize, event: Event) -> Merged {
    let channel = ChannelIndex(channel as u32);
    match event {
        Event::Watermark(t) => merger.watermark(channel, EventTime(t)),
        Event::Finish => merger.watermark(channel, EventTime::MAX),
        Event::Idle => merger.idle(channel),
        Event::Active => merger.active(channel),
    }
}

/// Walks all words of `depth` more events and compares each step with the definition.
fn walk(
    merger: &WatermarkMerger,
    history: &mut Vec<(usize, Event)>,
    channels: usize,
    restored: Watermark,
    depth: usize,
) {
    if depth == 0 {
        return;
    }
    for channel in 0..channels {
        for event in EVENTS {
            let mut after = merger.clone();
            let outcome = apply(&mut after, channel, event);
            history.push((channel, event));
            let expected = definition(history, channels, restored);
            assert_eq!((after.current(), after.is_idle()), expected, "after {history:?}");
            let change = match () {
                () if after.current() > merger.current() => Merged::Advance(after.current()),
                () if after.is_idle() && !merger.is_idle() => Merged::Idle,
                () if !after.is_idle() && merger.is_idle() => Merged::Active,
                () => Merged::Unchanged,
            };
            assert_eq!(outcome, change, "what is said isn't what changed, after {history:?}");
            assert!(!(outcome == Merged::Advance(after.current()) && after.is_idle()), "idle and rising: {history:?}");
            walk(&after, history, channels, restored, depth - 1);
            history.pop();
        }
    }
}

#[test]
fn every_word_of_events_on_up_to_three_channels_gives_what_the_definition_says() {
    for (channels, restored, depth) in [
        (1, EventTime::MIN, 6),
        (1, EventTime(1), 6),
        (1, EventTime::MAX, 6),
        (2, EventTime::MIN, 5),
        (2, EventTime(1), 4),
        (3, EventTime::MIN, 5),
        (3, EventTime(1), 4),
    ] {
        walk(&WatermarkMerger::new(channels, restored), &mut vec![], channels, restored, depth);
    }
}

/// Longer words on three channels, of those events alone that can bring a channel back.
#[test]
fn a_channel_that_comes_back_never_pulls_the_watermark_back() {
    fn walk(merger: &WatermarkMerger, depth: usize) {
        if depth == 0 {
            return;
        }
        for channel in 0..3 {
            for event in EVENTS {
                let mut after = merger.clone();
                apply(&mut after, channel, event);
                assert!(after.current() >= merger.current());
                if after != *merger {
                    walk(&after, depth - 1);
                }
            }
        }
    }
    walk(&WatermarkMerger::new(3, EventTime::MIN), 6);
}

#[test]
fn two_mergers_in_a_row_agree_with_one_over_all_channels_once_all_are_finished() {
    let mut inner = WatermarkMerger::new(2, EventTime::MIN);
    let mut outer = WatermarkMerger::new(2, EventTime::MIN);
    outer.watermark(ChannelIndex(1), EventTime::MAX);
    assert_eq!(inner.idle(ChannelIndex(0)), Merged::Unchanged);
    assert_eq!(inner.watermark(ChannelIndex(1), EventTime::MAX), Merged::Idle, "the idle one may come back");
    assert_eq!(outer.idle(ChannelIndex(0)), Merged::Idle);
    assert_eq!(inner.watermark(ChannelIndex(0), EventTime::MAX), Merged::Advance(EventTime::MAX));
    assert_eq!(outer.watermark(ChannelIndex(0), EventTime::MAX), Merged::Advance(EventTime::MAX));
}

#[test]
fn an_instance_restored_at_the_end_of_time_announces_it_because_it_will_never_advance_again() {
    let mut merger = WatermarkMerger::new(1, EventTime::MAX);
    assert_eq!(merger.announcement(), Some(EventTime::MAX));
    assert_eq!(merger.watermark(ChannelIndex(0), EventTime::MAX), Merged::Unchanged);
    assert_eq!(WatermarkMerger::new(1, EventTime::MIN).announcement(), None);
}

#[test]
fn a_channel_that_is_expected_idle_never_holds_back_the_others_and_its_own_word_counts_from_then_on() {
    let (busy, quiet) = (ChannelIndex(0), ChannelIndex(1));
    let mut merger = WatermarkMerger::new(2, EventTime::MIN);
    merger.expect_idle(quiet);
    assert_eq!(merger.watermark(busy, EventTime(1)), Merged::Advance(EventTime(1)));
    assert_eq!(merger.idle(quiet), Merged::Unchanged);
    assert_eq!(merger.active(quiet), Merged::Unchanged);
    assert_eq!(merger.watermark(busy, EventTime(2)), Merged::Unchanged);
    // Where all are expected idle, the whole is idle only when they have said so: what is downstream wants to hear of
    // it.
    let mut merger = WatermarkMerger::new(2, EventTime::MIN);
    merger.expect_idle(busy);
    merger.expect_idle(quiet);
    assert!(!merger.is_idle());
    assert_eq!(merger.idle(quiet), Merged::Idle);
}
