//! The lives of a topic, one after the other, and what was written and read meanwhile. Pure.
//!
//! * What was acknowledged before a life was asked for, or sent only after it had ended, isn't in it: no record of an earlier one
//!   appears. What was sent while one ended and the next began may be in either, or in both: who sends it again can't know.
//! * Within a life every value stands at one offset, and every offset has one value; offsets are 0, 1, 2 and so on, and the
//!   values of a writer rise.
//! * What was sent and acknowledged within a life stands at its offset; of the last life all of it is read at the end.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

/// "Not yet" as a stamp.
const NEVER: u64 = u64::MAX;

/// One incarnation.
#[derive(Clone, Copy, Debug)]
struct Life {
    id: Uuid,
    /// When its creation was asked for, and when it was surely there.
    asked: u64,
    born: u64,
    /// When its deletion was asked for, and when it was surely gone.
    dies: u64,
    dead: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    partition: u32,
    value: u64,
    first: u64,
    acknowledged: u64,
    offset: Option<u64>,
}

/// All that happened, with stamps of its own.
#[derive(Debug, Default)]
pub(crate) struct Story {
    clock: u64,
    lives: Vec<Life>,
    sent: Vec<Sent>,
    /// Life, partition, offset, value: each once.
    read: BTreeSet<(Uuid, u32, u64, u64)>,
    /// Where the partitions of the last life ended when all was over.
    ends: BTreeMap<u32, u64>,
}

impl Story {
    pub(crate) fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn is_born(&mut self, id: Uuid, asked: u64) {
        let born = self.now();
        self.lives.push(Life { id, asked, born, dies: NEVER, dead: NEVER });
    }

    /// Its deletion is about to be asked for.
    pub(crate) fn dies(&mut self) -> Option<Uuid> {
        let now = self.now();
        let life = self.lives.last_mut()?;
        life.dies = now;
        Some(life.id)
    }

    pub(crate) fn is_dead(&mut self) {
        let now = self.now();
        if let Some(life) = self.lives.last_mut() {
            life.dead = now;
        }
    }

    /// The one that was surely gone last.
    pub(crate) fn newest_dead(&self) -> Option<Uuid> {
        self.lives.iter().rfind(|life| life.dead != NEVER).map(|life| life.id)
    }

    /// Whether it was made for sure, and nobody has asked for its deletion.
    pub(crate) fn is_there(&self, id: Uuid) -> bool {
        self.lives.iter().any(|life| life.id == id && life.dies == NEVER)
    }

    /// The one that is there when all is over.
    pub(crate) fn lives_last(&self) -> Option<Uuid> {
        self.lives.last().filter(|life| life.dies == NEVER).map(|life| life.id)
    }

    pub(crate) fn deaths(&self) -> u64 {
        self.lives.iter().filter(|life| life.dead != NEVER).count() as u64
    }

    pub(crate) fn written(&self) -> u64 {
        self.sent.iter().filter(|sent| sent.acknowledged != NEVER).count() as u64
    }

    /// Values are about to be sent as one batch; the number by which they are acknowledged.
    pub(crate) fn sends(&mut self, partition: u32, values: &[u64]) -> (usize, usize) {
        let (first, from) = (self.now(), self.sent.len());
        let sent = |value: &u64| Sent { partition, value: *value, first, acknowledged: NEVER, offset: None };
        self.sent.extend(values.iter().map(sent));
        (from, self.sent.len())
    }

    pub(crate) fn acknowledged(&mut self, (from, to): (usize, usize), base: Option<u64>) {
        let now = self.now();
        for (n, sent) in (0..).zip(&mut self.sent[from..to]) {
            (sent.acknowledged, sent.offset) = (now, base.map(|base| base + n));
        }
    }

    pub(crate) fn reads(&mut self, id: Uuid, partition: u32, records: &[(u64, u64)]) {
        self.read.extend(records.iter().map(|(offset, value)| (id, partition, *offset, *value)));
    }

    /// A partition of the last life was read to its end.
    pub(crate) fn whole(&mut self, partition: u32, end: u64) {
        self.ends.insert(partition, end);
    }

    /// What is wrong.
    pub(crate) fn judge(&self) -> Vec<String> {
        let mut wrong = vec![];
        let lives: BTreeMap<Uuid, (usize, &Life)> =
            self.lives.iter().enumerate().map(|(n, l)| (l.id, (n, l))).collect();
        if lives.len() != self.lives.len() {
            wrong.push("an id came back".to_string());
        }
        let sent: BTreeMap<u64, &Sent> = self.sent.iter().map(|sent| (sent.value, sent)).collect();
        let mut at: BTreeMap<(usize, u32, u64), u64> = BTreeMap::new();
        let mut places: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut before: Option<(Uuid, u32, u64, u64)> = None;
        for &(id, partition, offset, value) in &self.read {
            let Some((n, life)) = lives.get(&id).copied() else {
                wrong.push(format!("records of {id}, which was never made"));
                continue;
            };
            match sent.get(&value) {
                None => wrong.push(format!("life {n}: {value} was never sent")),
                Some(sent) if sent.partition != partition => {
                    wrong.push(format!(
                        "life {n}: {value} is in partition {partition}, and was sent to {}",
                        sent.partition
                    ));
                }
                Some(sent) if sent.acknowledged < life.asked => {
                    wrong.push(format!(
                        "life {n}: {value} at {offset} was acknowledged before that topic was asked for"
                    ));
                }
                Some(sent) if sent.first > life.dead => {
                    wrong.push(format!("life {n}: {value} at {offset} was sent only when that topic was gone"));
                }
                Some(_) => {}
            }
            if let Some(other) = at.insert((n, partition, offset), value).filter(|other| *other != value) {
                wrong.push(format!("life {n}: offset {offset} of partition {partition} has {other} and {value}"));
            }
            if let Some(other) = places.insert((n, value), offset).filter(|other| *other != offset) {
                wrong.push(format!("life {n}: {value} stands at {other} and at {offset}"));
            }
            let (expected, least) = match before.filter(|(i, p, ..)| (*i, *p) == (id, partition)) {
                Some((_, _, o, v)) => (o + 1, v),
                None => (0, 0),
            };
            if offset > expected {
                wrong.push(format!("life {n}: partition {partition} has nothing from {expected} to {offset}"));
            }
            if value < least {
                wrong.push(format!("life {n}: partition {partition} has {value} at {offset}, behind {least}"));
            }
            before = Some((id, partition, offset, value));
        }
        for sent in self.sent.iter().filter(|sent| sent.acknowledged != NEVER) {
            let within = |life: &&Life| life.born < sent.first && sent.acknowledged < life.dies;
            let Some(n) = self.lives.iter().position(|life| within(&life)) else { continue };
            let (value, partition, Some(offset)) = (sent.value, sent.partition, sent.offset) else {
                wrong.push(format!("life {n}: {} was acknowledged without an offset", sent.value));
                continue;
            };
            let is_last = n + 1 == self.lives.len() && self.ends.contains_key(&partition);
            match at.get(&(n, partition, offset)) {
                Some(found) if *found != value => {
                    wrong.push(format!("life {n}: {value} was acknowledged at {offset}, where {found} stands"));
                }
                None if is_last => {
                    wrong.push(format!("life {n}: {value} was acknowledged at {offset}, and isn't there"))
                }
                _ => {}
            }
        }
        wrong.truncate(8);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    /// Two lives; 1 and 2 are acknowledged in the first one, 3 is sent over its end and lands in the second, 4 in the second.
    fn story() -> Story {
        let mut story = Story::default();
        let asked = story.now();
        story.is_born(id(1), asked);
        let batch = story.sends(0, &[1, 2]);
        story.acknowledged(batch, Some(0));
        story.reads(id(1), 0, &[(0, 1), (1, 2)]);
        let spans = story.sends(0, &[3]);
        story.dies();
        story.is_dead();
        let asked = story.now();
        story.is_born(id(2), asked);
        story.acknowledged(spans, Some(0));
        let batch = story.sends(0, &[4]);
        story.acknowledged(batch, Some(1));
        story
    }

    fn with(records: &[(u64, u64)]) -> Vec<String> {
        let mut story = story();
        story.reads(id(2), 0, records);
        story.whole(0, records.len() as u64);
        story.judge()
    }

    #[test]
    fn what_was_sent_over_the_end_of_a_life_may_be_in_either_or_both_and_all_else_in_its_own() {
        assert_eq!(with(&[(0, 3), (1, 4)]), Vec::<String>::new());
        let mut both = story();
        both.reads(id(1), 0, &[(2, 3)]);
        both.reads(id(2), 0, &[(0, 3), (1, 4)]);
        assert_eq!(both.judge(), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_must_not_be_is_told() {
        for (records, told) in [
            (&[(0, 2), (1, 4)][..], "acknowledged before that topic"),
            (&[(1, 4)], "nothing from 0 to 1"),
            (&[(0, 3), (1, 9)], "never sent"),
            (&[(0, 3), (1, 4), (2, 3)], "stands at 0 and at 2"),
            (&[(0, 3), (1, 4), (1, 3)], "has 3 and 4"),
            (&[(0, 4), (1, 3)], "behind 4"),
            (&[(0, 3)], "isn't there"),
        ] {
            let wrong = with(records);
            assert!(wrong.iter().any(|what| what.contains(told)), "{records:?}: {wrong:?}");
        }
        let mut late = story();
        late.reads(id(1), 0, &[(2, 4)]);
        assert!(late.judge().iter().any(|what| what.contains("when that topic was gone")), "{:?}", late.judge());
        let mut other = story();
        other.reads(id(3), 0, &[(0, 3)]);
        other.reads(id(2), 1, &[(0, 3)]);
        let wrong = other.judge();
        assert!(wrong.iter().any(|what| what.contains("never made")), "{wrong:?}");
        assert!(wrong.iter().any(|what| what.contains("sent to 0")), "{wrong:?}");
        let mut again = story();
        let asked = again.now();
        again.is_born(id(1), asked);
        assert!(again.judge()[0].contains("came back"));
    }
}
