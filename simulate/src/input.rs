//! What a simulated machine has on its disk before the job starts: topics of its log, and files.

use std::path::{Path, PathBuf};

use cutwater_partition_log::batch::{BatchBuilder, Compression};
use cutwater_partition_log::{Log, LogOptions};
use cutwater_platform::{Files, Open, Platform};
use cutwater_testkit::{LossPolicy, SimDisk, SimPlatform};

use crate::{LOG_DIR, SimulationError};

/// Records of a batch of input.
const BATCH: usize = 8;

/// One record of input: key and value.
type Pair = (Option<Vec<u8>>, Vec<u8>);

/// Topics and files that are there before a job starts; the same for every schedule.
///
/// ```
/// use cutwater_simulate::Input;
///
/// let input = Input::new()
///     .topic("words", ["to", "be", "or", "not", "to", "be"])
///     .partitions("clicks", [vec!["1", "4"], vec!["2", "2", "5"]])
///     .file("flights.csv", "day,origin\n1,EWR\n");
/// # let _ = input;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Input {
    topics: Vec<(String, Vec<Vec<Pair>>)>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Input {
    /// Nothing.
    pub fn new() -> Input {
        Input::default()
    }

    /// A topic with one partition that holds these values, in order.
    #[must_use]
    pub fn topic<V: Into<Vec<u8>>>(self, name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Input {
        self.partitions(name, [values])
    }

    /// A topic with several partitions of values.
    #[must_use]
    pub fn partitions<V: Into<Vec<u8>>>(
        mut self,
        name: impl Into<String>,
        partitions: impl IntoIterator<Item = impl IntoIterator<Item = V>>,
    ) -> Input {
        let values = |partition: &mut dyn Iterator<Item = V>| partition.map(|v| (None, v.into())).collect();
        let partitions = partitions.into_iter().map(|p| values(&mut p.into_iter())).collect();
        self.topics.push((name.into(), partitions));
        self
    }

    /// A topic with several partitions of keys and values.
    #[must_use]
    pub fn keyed<K: Into<Vec<u8>>, V: Into<Vec<u8>>>(
        mut self,
        name: impl Into<String>,
        partitions: impl IntoIterator<Item = Vec<(K, V)>>,
    ) -> Input {
        let pairs = |p: Vec<(K, V)>| p.into_iter().map(|(k, v)| (Some(k.into()), v.into())).collect();
        self.topics.push((name.into(), partitions.into_iter().map(pairs).collect()));
        self
    }

    /// A file on the simulated disk.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> Input {
        self.files.push((path.into(), bytes.into()));
        self
    }

    /// The names of its topics.
    pub(crate) fn topic_names(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(|(name, _)| name.as_str())
    }

    /// A disk that holds it durably.
    pub(crate) fn disk(&self, dir: &Path) -> Result<SimDisk, SimulationError> {
        let machine = SimPlatform::new(0);
        let platform = machine.platform();
        for (path, bytes) in &self.files {
            write_file(platform.files.as_ref(), path, bytes)
                .map_err(|e| SimulationError::Input { what: path.display().to_string(), reason: e.to_string() })?;
        }
        if !self.topics.is_empty() {
            self.load(&platform, dir)?;
        }
        Ok(machine.disk().restart(LossPolicy::AllLost, 0))
    }

    fn load(&self, platform: &Platform, dir: &Path) -> Result<(), SimulationError> {
        let failed = |what: &str, e: &dyn std::fmt::Display| SimulationError::Input {
            what: format!("topic {what}"),
            reason: e.to_string(),
        };
        let log = Log::open(platform, &dir.join(LOG_DIR), LogOptions::default()).map_err(|e| failed("log", &e))?;
        let producer = log.producer().map_err(|e| failed("log", &e))?;
        let mut batch = BatchBuilder::new(Compression::None);
        for (name, partitions) in &self.topics {
            let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
            let topic = log.create_topic(name, count).map_err(|e| failed(name, &e))?;
            for (partition, records) in (0..).zip(partitions) {
                for chunk in records.chunks(BATCH) {
                    for (key, value) in chunk {
                        batch.push(0, key.as_deref(), Some(value), &[]).map_err(|e| failed(name, &e))?;
                    }
                    let ticket = producer.append(topic, partition, &mut batch).map_err(|e| failed(name, &e))?;
                    ticket.wait().map_err(|e| failed(name, &e))?;
                }
            }
        }
        log.close().map_err(|e| failed("log", &e))
    }
}

fn write_file(files: &dyn Files, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir {
        files.create_dir_all(dir)?;
    }
    let file = files.open(path, Open::Create)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    files.sync_dir(dir.unwrap_or_else(|| Path::new("")))
}
