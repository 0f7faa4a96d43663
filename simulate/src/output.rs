//! What readers see afterwards: every topic that the job wrote, read committed, and whatever else the program can read.

use std::collections::BTreeMap;
use std::path::Path;

use cutwater_partition_log::{Isolation, Log, LogOptions, Offset};
use cutwater_platform::Platform;
use cutwater_testkit::{multiset_diff, sequence_diff};

use crate::LOG_DIR;

/// One record as a reader sees it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Row {
    /// The value as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{} = {}", key.escape_ascii(), self.value.escape_ascii()),
            None => write!(f, "{}", self.value.escape_ascii()),
        }
    }
}

/// Everything that readers see after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// For each topic that isn't input, its partitions, each in order.
    pub topics: BTreeMap<String, Vec<Vec<Row>>>,
    /// What the program's own readers answer, by their names.
    pub read: BTreeMap<String, Vec<String>>,
}

impl Output {
    /// A topic's rows, partition after partition; none if there is no such topic.
    pub fn rows(&self, topic: &str) -> Vec<&Row> {
        self.topics.get(topic).into_iter().flatten().flatten().collect()
    }

    /// Reads the log in `dir`; there may be none.
    pub(crate) fn of_log(platform: &Platform, dir: &Path, input: &[String]) -> Result<Output, String> {
        let mut output = Output::default();
        let dir = dir.join(LOG_DIR);
        if !platform.files.exists(&dir).map_err(|e| e.to_string())? {
            return Ok(output);
        }
        let log =
            Log::open(platform, &dir, LogOptions::default()).map_err(|e| format!("the log can't be opened: {e}"))?;
        for topic in log.topics().into_iter().filter(|topic| !input.contains(&topic.name)) {
            let partitions = (0..topic.partitions).map(|partition| {
                let consumer = log.consumer(topic.id, partition, Offset(0), Isolation::ReadCommitted);
                let mut consumer = consumer.map_err(|e| format!("{}: {e}", topic.name))?;
                let mut rows = vec![];
                loop {
                    let fetched = consumer.poll(1 << 20).map_err(|e| format!("{}: {e}", topic.name))?;
                    let each = |record: cutwater_partition_log::batch::RecordRef<'_>| {
                        let (key, value) = (record.key.map(<[u8]>::to_vec), record.value.unwrap_or_default().to_vec());
                        rows.push(Row { key, value });
                    };
                    fetched.for_each(each).map_err(|e| format!("{}: {e}", topic.name))?;
                    if fetched.is_empty() && consumer.position() >= consumer.readable_end() {
                        break;
                    }
                }
                Ok(rows)
            });
            output.topics.insert(topic.name.clone(), partitions.collect::<Result<_, String>>()?);
        }
        let left = log.transactions();
        let closed = log.close();
        if !left.is_empty() {
            return Err(format!("transactions were left open or prepared: {left:?}"));
        }
        closed.map_err(|e| format!("the log doesn't close: {e}"))?;
        Ok(output)
    }
}

/// How far the order of a topic's rows is the same whatever the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Each partition is the same sequence.
    Partition,
    /// The rows of each key are the same sequence, as long as they have keys.
    Key,
    /// The same rows, each equally often.
    Rows,
}

fn by_key(partitions: &[Vec<Row>]) -> BTreeMap<Option<&Vec<u8>>, Vec<&Row>> {
    let mut rows: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    partitions.iter().flatten().for_each(|row| rows.entry(row.key.as_ref()).or_default().push(row));
    rows
}

/// `None` if `found` is `expected` as far as `order` says; else the story of the first difference.
pub(crate) fn difference(expected: &[Vec<Row>], found: &[Vec<Row>], order: Order) -> Option<String> {
    let flat = |partitions: &[Vec<Row>]| partitions.iter().flatten().cloned().collect::<Vec<_>>();
    if let Some(diff) = multiset_diff(&flat(expected), &flat(found)) {
        return Some(diff);
    }
    match order {
        Order::Rows => None,
        Order::Key => {
            let (expected, found) = (by_key(expected), by_key(found));
            expected.iter().filter(|(key, _)| key.is_some()).find_map(|(key, rows)| {
                let seen = found.get(key).map(Vec::as_slice).unwrap_or_default();
                sequence_diff(rows, seen)
                    .map(|diff| format!("key {:?}: {diff}", key.map(|k| k.escape_ascii().to_string())))
            })
        }
        Order::Partition => (0..).zip(expected.iter().zip(found)).find_map(|(partition, (expected, found))| {
            sequence_diff(expected, found).map(|diff| format!("partition {partition}: {diff}"))
        }),
    }
}

/// The strongest order in which all of these agree; `None` if not even their rows do.
pub(crate) fn agreement(all: &[&[Vec<Row>]]) -> Option<Order> {
    let (first, rest) = all.split_first()?;
    [Order::Partition, Order::Key, Order::Rows]
        .into_iter()
        .find(|order| rest.iter().all(|other| difference(first, other, *order).is_none()))
}
