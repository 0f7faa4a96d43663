//! `cutwater topics` and `cutwater read`: what is in a log that nobody is running on.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use cutwater_partition_log::batch::{BatchError, RecordRef};
use cutwater_partition_log::{
    CloseError, FetchError, Holder, Isolation, Log, LogOptions, Offset, OpenError, PartitionOffsets, Topic,
};
use cutwater_platform::{IoContext, IoError, Platform};
use thiserror::Error;

use crate::advice;

/// Bytes of one poll.
const POLL_BYTES: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// A job's data directory, or a log's. Whoever runs there must have ended: a log has one owner at a time.
    #[arg(long = "dir", alias = "data", value_name = "DIR", env = "CUTWATER_DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TopicsArguments {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// The topic.
    topic: String,
    #[command(flatten)]
    place: Place,
    /// Only this partition; all of them one after the other otherwise.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// The first offset of each partition to show.
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    from: u64,
    /// At most so many records.
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// Show records of transactions that are open or were aborted, too.
    #[arg(long)]
    uncommitted: bool,
    /// What stands on a line, separated by tabs.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "value")]
    show: Vec<Column>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Column {
    /// The number of the partition
    Partition,
    /// The offset in it
    Offset,
    /// The time stamp, in milliseconds since 1970
    Time,
    /// The key, as it is; nothing if there is none
    Key,
    /// The value, as it is; nothing if there is none
    Value,
}

#[derive(Debug, Error)]
pub(crate) enum RecordsError {
    #[error("there is no log in {}: it holds neither a log's directories (base, wal) nor a job's (log)", dir.display())]
    NoLog { dir: PathBuf },
    #[error("{source}{}", advice::about_data(source))]
    Open {
        #[from]
        source: OpenError,
    },
    #[error("there is no topic {topic:?}; there {}", there_are(there))]
    NoTopic { topic: String, there: Vec<String> },
    #[error("the topic {topic:?} has no partition {partition}: they are numbered from 0, and there are {partitions}")]
    NoPartition { topic: String, partition: u32, partitions: u32 },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("a batch can't be decoded: {0}")]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Look(#[from] IoError),
    #[error("standard output can't be written: {0}")]
    Out(io::Error),
    #[error(transparent)]
    Close(#[from] CloseError),
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => "are none at all".to_string(),
        [one] => format!("is {one}"),
        more => format!("are {}", more.join(", ")),
    }
}

/// `cutwater topics`: a topic a line, with its partitions and the records that its log spans.
pub(crate) fn topics(arguments: &TopicsArguments) -> Result<(), RecordsError> {
    on_log(&arguments.place, |log, out| {
        for topic in sorted(log.topics()) {
            let Topic { id, name, partitions } = topic;
            let offsets = (0..partitions).map(|partition| log.offsets(id, partition));
            let spanned = offsets.map(|offsets| {
                offsets.map(|PartitionOffsets { log_start, high_watermark, .. }| high_watermark.0 - log_start.0)
            });
            let spanned: u64 = spanned.sum::<Result<u64, FetchError>>()?;
            writeln!(out, "{name}\t{partitions} partitions\t{spanned} offsets").map_err(RecordsError::Out)?;
        }
        Ok(())
    })
}

/// `cutwater read TOPIC`: a record a line.
pub(crate) fn read(arguments: &ReadArguments) -> Result<(), RecordsError> {
    on_log(&arguments.place, |log, out| {
        let Some(topic) = log.topic(&arguments.topic) else {
            let there = sorted(log.topics()).into_iter().map(|topic| topic.name).collect();
            return Err(RecordsError::NoTopic { topic: arguments.topic.clone(), there });
        };
        let partitions = match arguments.partition {
            Some(partition) if partition >= topic.partitions => {
                let partitions = topic.partitions;
                return Err(RecordsError::NoPartition { topic: topic.name, partition, partitions });
            }
            Some(partition) => partition..partition + 1,
            None => 0..topic.partitions,
        };
        let mut left = arguments.first.unwrap_or(u64::MAX);
        for partition in partitions {
            left = read_partition(log, &topic, partition, arguments, left, out)?;
        }
        Ok(())
    })
}

/// Shows at most `left` records of a partition; answers how many may still be shown.
fn read_partition(
    log: &Log,
    topic: &Topic,
    partition: u32,
    arguments: &ReadArguments,
    mut left: u64,
    out: &mut dyn Write,
) -> Result<u64, RecordsError> {
    let isolation = if arguments.uncommitted { Isolation::ReadUncommitted } else { Isolation::ReadCommitted };
    let start = log.offsets(topic.id, partition)?.log_start;
    let mut consumer = log.consumer(topic.id, partition, Offset(arguments.from.max(start.0)), isolation)?;
    while left > 0 && consumer.position() < consumer.readable_end() {
        let fetched = consumer.poll(POLL_BYTES)?;
        let mut told = Ok(());
        fetched.for_each(|record| {
            if left > 0 && told.is_ok() {
                told = line(out, partition, &record, &arguments.show);
                left -= 1;
            }
        })?;
        told.map_err(RecordsError::Out)?;
    }
    Ok(left)
}

fn line(out: &mut dyn Write, partition: u32, record: &RecordRef<'_>, show: &[Column]) -> io::Result<()> {
    for (i, column) in show.iter().enumerate() {
        if i > 0 {
            out.write_all(b"\t")?;
        }
        match column {
            Column::Partition => write!(out, "{partition}")?,
            Column::Offset => write!(out, "{}", record.offset)?,
            Column::Time => write!(out, "{}", record.timestamp_ms)?,
            Column::Key => out.write_all(record.key.unwrap_or_default())?,
            Column::Value => out.write_all(record.value.unwrap_or_default())?,
        }
    }
    out.write_all(b"\n")
}

fn sorted(mut topics: Vec<Topic>) -> Vec<Topic> {
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    topics
}

/// Opens the log, does what is to be done with it, and closes it. Whoever reads the output may have seen enough before its end.
fn on_log(
    place: &Place,
    act: impl FnOnce(&Log, &mut dyn Write) -> Result<(), RecordsError>,
) -> Result<(), RecordsError> {
    let platform = Platform::real();
    let dir = find(&platform, &place.dir)?;
    let holder = Holder { job: "cutwater".to_string(), attempt: 0 };
    let log = Log::open(&platform, &dir, LogOptions { holder, ..LogOptions::default() })?;
    let mut out = BufWriter::new(io::stdout().lock());
    let done = act(&log, &mut out).and_then(|()| out.flush().map_err(RecordsError::Out));
    log.close()?;
    match done {
        Err(RecordsError::Out(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The log in a directory that is one, or a job's.
fn find(platform: &Platform, dir: &Path) -> Result<PathBuf, RecordsError> {
    let is_log = |dir: &Path| -> Result<bool, RecordsError> {
        for name in ["base", "wal"] {
            let path = dir.join(name);
            if !platform.files.exists(&path).at("look for", &path)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let below = dir.join("log");
    match (is_log(dir)?, is_log(&below)?) {
        (true, _) => Ok(dir.to_path_buf()),
        (false, true) => Ok(below),
        (false, false) => Err(RecordsError::NoLog { dir: dir.to_path_buf() }),
    }
}
