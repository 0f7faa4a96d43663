//! Divides the partitions of topics among those who want to read them. Pure.
//!
//! * `uniform` (the first choice): as even as subscriptions allow, and nobody loses a partition without need. Partitions stay where they
//!   were; what is free goes to whoever has least; then single ones move from whoever has two more than somebody else who wants
//!   the topic.
//! * `range`: each topic is cut into one piece per reader, in the readers' order, so that the same number of two topics goes to the
//!   same reader.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cutwater_partition_log::TopicPartition;

use super::machine::Known;

/// How partitions are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Assignor {
    /// Even over all topics, sticky.
    #[default]
    Uniform,
    /// Piece by piece, topic by topic.
    Range,
}

impl Assignor {
    /// Kafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// The assignor of a name.
    pub(crate) fn named(name: &str) -> Option<Assignor> {
        [Assignor::Uniform, Assignor::Range].into_iter().find(|assignor| assignor.name() == name)
    }
}

/// Somebody who wants partitions.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) id: String,
    /// By what it is ordered: a name that outlives the process, if it has one.
    pub(crate) order: String,
    pub(crate) topics: BTreeSet<Known>,
    /// What it was to have so far.
    pub(crate) has: BTreeSet<TopicPartition>,
}

/// The assignor that most members ask for; `uniform` if nobody asks, or as many ask for it.
pub(crate) fn elect(asked: impl Iterator<Item = Assignor>) -> Assignor {
    let (mut uniform, mut range) = (0, 0);
    for assignor in asked {
        match assignor {
            Assignor::Uniform => uniform += 1,
            Assignor::Range => range += 1,
        }
    }
    if range > uniform { Assignor::Range } else { Assignor::Uniform }
}

/// What each reader shall have; all partitions of all topics that somebody wants are given away, each once.
pub(crate) fn assign(assignor: Assignor, mut readers: Vec<Reader>) -> BTreeMap<String, BTreeSet<TopicPartition>> {
    readers.sort_by(|a, b| (&a.order, &a.id).cmp(&(&b.order, &b.id)));
    let given = match assignor {
        Assignor::Uniform => uniform(&readers),
        Assignor::Range => range(&readers),
    };
    readers.into_iter().map(|reader| reader.id).zip(given).collect()
}

/// The readers of each topic, by place.
fn by_topic(readers: &[Reader]) -> BTreeMap<Known, Vec<usize>> {
    let mut topics: BTreeMap<Known, Vec<usize>> = BTreeMap::new();
    for (place, reader) in readers.iter().enumerate() {
        for topic in &reader.topics {
            topics.entry(*topic).or_default().push(place);
        }
    }
    topics
}

fn range(readers: &[Reader]) -> Vec<BTreeSet<TopicPartition>> {
    let mut given = vec![BTreeSet::new(); readers.len()];
    for ((topic, partitions), places) in by_topic(readers) {
        let (each, more) = (partitions as usize / places.len(), partitions as usize % places.len());
        let mut next = 0;
        for (index, place) in places.into_iter().enumerate() {
            let end = next + each + usize::from(index < more);
            let piece = (next..end).map(|partition| TopicPartition::new(topic, partition as u32));
            if let Some(of) = given.get_mut(place) {
                of.extend(piece);
            }
            next = end;
        }
    }
    given
}

fn uniform(readers: &[Reader]) -> Vec<BTreeSet<TopicPartition>> {
    let topics = by_topic(readers);
    let mut given: Vec<BTreeSet<TopicPartition>> = vec![BTreeSet::new(); readers.len()];
    let mut owners: BTreeMap<TopicPartition, usize> = BTreeMap::new();
    for (place, reader) in readers.iter().enumerate() {
        let wanted = |at: &&TopicPartition| {
            reader.topics.iter().any(|(topic, partitions)| at.topic == *topic && at.partition < *partitions)
        };
        for at in reader.has.iter().filter(wanted) {
            if let Entry::Vacant(free) = owners.entry(*at) {
                free.insert(place);
                given[place].insert(*at);
            }
        }
    }
    for ((topic, partitions), places) in &topics {
        for partition in 0..*partitions {
            let at = TopicPartition::new(*topic, partition);
            if owners.contains_key(&at) {
                continue;
            }
            if let Some(least) = places.iter().copied().min_by_key(|place| (given[*place].len(), *place)) {
                given[least].insert(at);
                owners.insert(at, least);
            }
        }
    }
    // Each move makes two readers more even, so that there are only so many.
    while let Some((at, from, to)) = uneven(&topics, &given) {
        given[from].remove(&at);
        given[to].insert(at);
    }
    given
}

/// A partition that should move, from whom to whom: the reader with most of those who have some of a topic has two more than
/// another one who wants it.
fn uneven(
    topics: &BTreeMap<Known, Vec<usize>>,
    given: &[BTreeSet<TopicPartition>],
) -> Option<(TopicPartition, usize, usize)> {
    let mut widest: Option<(usize, TopicPartition, usize, usize)> = None;
    for ((topic, _), places) in topics {
        let of = |place: usize| {
            let (first, last) = (TopicPartition::new(*topic, 0), TopicPartition::new(*topic, u32::MAX));
            given[place].range(first..=last).next_back().copied()
        };
        let most = places.iter().copied().filter(|place| of(*place).is_some()).max_by_key(|place| given[*place].len());
        let least = places.iter().copied().min_by_key(|place| (given[*place].len(), *place));
        let (Some(most), Some(least)) = (most, least) else { continue };
        let gap = given[most].len() - given[least].len();
        if gap >= 2
            && widest.is_none_or(|(known, ..)| gap > known)
            && let Some(at) = of(most)
        {
            widest = Some((gap, at, most, least));
        }
    }
    widest.map(|(_, at, from, to)| (at, from, to))
}
